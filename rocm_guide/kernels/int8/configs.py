# SPDX-License-Identifier: MIT
"""Which tile an INT8 product takes: the GEMM's tables, with an eye for products of few rows."""

from __future__ import annotations

import triton

from rocm_guide.kernels.arguments import choose
from rocm_guide.kernels.gemm.configs import CONFIGS, GemmTile, transpose_for_hopper

__all__ = ["pick_int8_tile"]

#: sm_90, instead of the GEMM's smallest tile: few rows wait for memory, and many small workgroups wait together.
#: Measured (benchmarks/kernels/int8_gemm.py --search --tokens 32 128).
_FEW_ROWS = (GemmTile(64, 64, 128, 4, 4, speed=0.62), GemmTile(32, 32, 128, 4, 6, speed=0.25))
#: The same where each unit has one workgroup at most: nobody else is there to wait with, so each step takes more of K.
_ALONE = {64: GemmTile(64, 64, 256, 4, 4, descriptors=True), 32: GemmTile(32, 32, 256, 4, 5)}


def pick_int8_tile(m: int, n: int, batch: int, arch: str, units: int, *, weight: bool = True) -> GemmTile:
    """The tile with the highest speed times the share of its grid that works, and of its elements that are wanted.

    A model that decodes has few rows. A tile of 256 rows would spend most of its products on rows that are not there,
    and leave most of the compute units without a tile.

    >>> [pick_int8_tile(m, 8192, 1, "gfx942", 304).bm for m in (32, 512, 8192)]
    [32, 128, 256]
    """

    def grid(tile: GemmTile) -> int:
        return triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn) * batch

    def rate(tile: GemmTile) -> float:
        tiles = grid(tile)
        wanted = m * n * batch / (tiles * tile.bm * tile.bn)
        return float(tile.speed * wanted * tiles / (triton.cdiv(tiles, units) * units))

    tiles = [transpose_for_hopper(tile, arch, 8, weight) for tile in choose(CONFIGS, arch)[8]]
    if arch == "sm_90":
        tiles = [*(tile for tile in tiles if tile.bm > 64), *_FEW_ROWS]
    best = max(tiles, key=rate)
    return _ALONE[best.bm] if best in _FEW_ROWS and grid(best) <= units else best
