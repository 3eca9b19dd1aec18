# SPDX-License-Identifier: MIT
"""Which tile an INT8 product takes: the GEMM's tables, with an eye for products of few rows."""

from __future__ import annotations

import triton

from rocm_guide.kernels.arguments import choose
from rocm_guide.kernels.gemm.configs import CONFIGS, GemmTile, transpose_for_hopper

__all__ = ["pick_int8_tile"]


def pick_int8_tile(m: int, n: int, batch: int, arch: str, units: int, *, weight: bool = True) -> GemmTile:
    """The tile with the highest speed times the share of its grid that works, and of its elements that are wanted.

    A model that decodes has few rows. A tile of 256 rows would spend most of its products on rows that are not there,
    and leave most of the compute units without a tile.

    >>> [pick_int8_tile(m, 8192, 1, "gfx942", 304).bm for m in (32, 512, 8192)]
    [32, 128, 256]
    """

    def rate(tile: GemmTile) -> float:
        down, across = triton.cdiv(m, tile.bm), triton.cdiv(n, tile.bn)
        tiles = down * across * batch
        wanted = m * n / (down * tile.bm * across * tile.bn)
        return float(tile.speed * wanted * tiles / (triton.cdiv(tiles, units) * units))

    tiles = [transpose_for_hopper(tile, arch, 8, weight) for tile in choose(CONFIGS, arch)[8]]
    return max(tiles, key=rate)
