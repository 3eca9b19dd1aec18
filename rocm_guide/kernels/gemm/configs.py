# SPDX-License-Identifier: MIT
"""Launch configurations of the GEMM kernels, as data keyed by architecture, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import triton

from rocm_guide.kernels.arguments import KernelError, choose, compiler_options

if TYPE_CHECKING:
    import torch

__all__ = ["CONFIGS", "GemmTile", "tile_walk"]


@dataclass(frozen=True)
class GemmTile:
    """How one GEMM is launched: the tile, warps per workgroup, pipeline stages, rows of tiles walked together.

    ``descriptors`` lets the hardware fetch whole tiles (TMA, from Hopper on) where the operands' alignment allows it.
    ``speed`` is the tile's rate on a full GPU, relative to the best: measured on sm_90, estimated on gfx942.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int = 2
    group: int = 8
    descriptors: bool = False
    speed: float = 1.0

    def options(self, arch: str) -> dict[str, Any]:
        """The compile options of a launch on ``arch``."""
        return compiler_options(arch, {"num_warps": self.warps, "num_stages": self.stages}, matrix=True)


#: Tiles by architecture and bits of the element type. gfx942 was chosen from its compiled code (notebook 18), its
#: speeds are estimates; sm_90 was measured (benchmarks/kernels/gemm.py).
CONFIGS: dict[str, dict[int, tuple[GemmTile, ...]]] = {
    "gfx942": {
        32: (GemmTile(128, 128, 32, 8), GemmTile(64, 64, 32, 4, speed=0.7), GemmTile(32, 32, 32, 2, speed=0.4)),
        16: (
            GemmTile(256, 256, 32, 8),
            GemmTile(128, 128, 64, 8, speed=0.85),
            GemmTile(64, 64, 64, 4, speed=0.6),
            GemmTile(32, 32, 64, 2, speed=0.3),
        ),
        8: (
            GemmTile(256, 256, 64, 8),
            GemmTile(128, 128, 128, 8, speed=0.85),
            GemmTile(64, 64, 128, 4, speed=0.6),
            GemmTile(32, 32, 128, 2, speed=0.3),
        ),
    },
    "sm_90": {
        32: (GemmTile(128, 128, 32, 8, 3), GemmTile(64, 64, 32, 4, 3, speed=0.8)),
        16: (
            GemmTile(128, 256, 64, 8, 3, 8, True),
            GemmTile(128, 128, 64, 8, 4, 8, True, 0.91),
            GemmTile(64, 64, 64, 4, 4, speed=0.5),
        ),
        8: (
            GemmTile(128, 256, 128, 8, 3, 8, True),
            GemmTile(128, 128, 128, 8, 3, 8, True, 0.8),
            GemmTile(64, 64, 128, 4, 4, speed=0.4),
        ),
    },
    "interpreter": {bits: (GemmTile(32, 32, 32, 4),) for bits in (32, 16, 8)},
}

#: Operands without alignment are loaded element by element, and each mask takes scalar registers: a smaller tile.
RAGGED: dict[str, dict[int, GemmTile]] = {
    "gfx942": {32: GemmTile(64, 64, 32, 8), 16: GemmTile(128, 64, 64, 8), 8: GemmTile(128, 64, 64, 8)},
}


def pick_gemm_tile(
    m: int,
    n: int,
    bits: int,
    arch: str,
    units: int,
    *,
    aligned: bool = True,
    weight: bool = False,
    activation: str = "none",
) -> GemmTile:
    """The tile with the highest speed times the share of ``units`` compute units that its grid keeps busy.

    Operands that are not ``aligned`` get the tile of :data:`RAGGED` where there is one. ``weight``: B is contiguous
    along K.

    Raises:
        KernelError: no configuration for elements of that many bits.

    >>> pick_gemm_tile(8192, 8192, 16, "gfx942", 304).bm, pick_gemm_tile(1024, 1024, 16, "gfx942", 304).bm
    (256, 64)
    """
    table = choose(CONFIGS, arch)
    if bits not in table:
        raise KernelError(f"elements of {bits} bits: the tables have {', '.join(map(str, table))}")
    if not aligned and arch in RAGGED:
        return RAGGED[arch][bits]

    def rate(tile: GemmTile) -> float:
        tiles = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn)
        return float(tile.speed * tiles / (triton.cdiv(tiles, units) * units))

    # erf needs many registers beside the accumulator: on gfx942 a tile of 256 x 256 would spill more than 200 of them.
    fitting = [t for t in table[bits] if activation != "gelu" or t.bm * t.bn < 256 * 256]
    return transpose_for_hopper(max(fitting, key=rate), arch, bits, weight)


def transpose_for_hopper(tile: GemmTile, arch: str, bits: int, weight: bool) -> GemmTile:
    """On Hopper a B that is contiguous along K prefers the wide tile turned by 90 degrees (measured)."""
    if weight and arch == "sm_90" and bits <= 16 and tile.bn > tile.bm:
        return replace(tile, bm=tile.bn, bn=tile.bm)
    return tile


def is_aligned(*matrices: torch.Tensor) -> bool:
    """Whether 128-bit loads are possible: one stride is 1, the other and the address are multiples of 16 bytes."""
    return all(
        min(x.stride()) == 1 and max(x.stride()) * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
        for x in matrices
    )


def units_of(*sizes: int) -> tuple[int, ...]:
    """What ``tile_dot`` tells the compiler of each size: 8 for a multiple of 8 that is none of 16, which Triton sees.

    >>> units_of(1000, 4096, 333, 1)
    (8, 1, 1, 1)
    """
    return tuple(8 if size % 16 == 8 else 1 for size in sizes)


def common_unit(*sizes: int) -> int:
    """8 where all sizes are multiples of 8 and one is none of 16, so that the compiler is to be told, else 1.

    >>> common_unit(32008, 32008), common_unit(4096, 72), common_unit(4096, 128), common_unit(4096, 7)
    (8, 8, 1, 1)
    """
    return 8 if all(size % 8 == 0 for size in sizes) and any(size % 16 for size in sizes) else 1


def promotion_interval(a: torch.Tensor, arch: str, tile: GemmTile) -> int:
    """After how many fp8 products a sum goes on in fp32 (Hopper only; 0 elsewhere: always there)."""
    return min(tile.bk, 128) if arch == "sm_90" and a.element_size() == 1 and a.is_floating_point() else 0


def tile_walk(tiles_m: int, tiles_n: int, group: int, xcds: int = 1) -> list[tuple[int, int]]:
    """The tile (row, column) of each workgroup in turn: what ``tile_order`` computes in the kernel, in plain Python.

    Workgroup ``i`` runs on XCD ``i % xcds``.

    >>> tile_walk(2, 3, group=2)
    [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    """
    total = tiles_m * tiles_n
    each, extra = divmod(total, xcds)
    walk = []
    for i in range(total):
        xcd = i % xcds
        at = xcd * each + min(xcd, extra) + i // xcds
        first = at // (group * tiles_n) * group
        rows, inside = min(tiles_m - first, group), at % (group * tiles_n)
        walk.append((first + inside % rows, inside // rows))
    return walk
