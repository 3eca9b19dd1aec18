# SPDX-License-Identifier: MIT
"""Launch configurations of the GEMM kernels, as data keyed by architecture, and the choice among them.

Introduced in notebook 18 (gemm_kernels).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton

from .launch import KernelError, choose

if TYPE_CHECKING:
    import torch

__all__ = ["CONFIGS", "RAGGED", "GemmTile", "exact_every", "is_aligned", "pick_tile", "tile_walk"]


@dataclass(frozen=True)
class GemmTile:
    """How one GEMM is launched: the tile, warps per workgroup, pipeline stages, rows of tiles walked together.

    ``descriptors`` lets the hardware fetch whole tiles (TMA, from Hopper on) where the operands' alignment allows it.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int = 2
    group: int = 8
    descriptors: bool = False

    def options(self, arch: str) -> dict[str, Any]:
        """The compile options of a launch on ``arch``."""
        options: dict[str, Any] = {"num_warps": self.warps, "num_stages": self.stages}
        if arch.startswith("gfx"):
            options["matrix_instr_nonkdim"] = 16
        return options


#: Tiles by architecture and bits of the element type, the largest first: the first that gives every compute unit work
#: is taken. gfx942 was chosen from its compiled code (notebook 18), sm_90 by measurement (benchmarks/gemm.py).
CONFIGS: dict[str, dict[int, tuple[GemmTile, ...]]] = {
    "gfx942": {
        32: (GemmTile(128, 128, 32, 8), GemmTile(64, 64, 32, 4), GemmTile(32, 32, 32, 2)),
        16: (GemmTile(256, 256, 32, 8), GemmTile(128, 128, 64, 8), GemmTile(64, 64, 64, 4), GemmTile(32, 32, 64, 2)),
        8: (GemmTile(256, 256, 64, 8), GemmTile(128, 128, 128, 8), GemmTile(64, 64, 128, 4), GemmTile(32, 32, 128, 2)),
    },
    "sm_90": {
        32: (GemmTile(128, 128, 32, 8, 3), GemmTile(64, 64, 32, 4, 3)),
        16: (GemmTile(128, 256, 64, 8, 3, 8, True), GemmTile(128, 128, 64, 4, 3, 8, True), GemmTile(64, 64, 64, 4, 4)),
        8: (GemmTile(128, 128, 128, 8, 3, 8, True), GemmTile(64, 64, 128, 4, 4)),
    },
    "interpreter": {bits: (GemmTile(32, 32, 32, 4),) for bits in (32, 16, 8)},
}  # fmt: skip

#: Operands without alignment are loaded element by element, and each mask takes scalar registers: a smaller tile.
RAGGED: dict[str, dict[int, GemmTile]] = {
    "gfx942": {32: GemmTile(64, 64, 32, 8), 16: GemmTile(128, 64, 64, 8), 8: GemmTile(128, 64, 64, 8)},
}


def pick_tile(
    m: int, n: int, bits: int, arch: str, units: int, *, aligned: bool = True, activation: str = "none"
) -> GemmTile:
    """The first tile of the table that gives each of ``units`` compute units a workgroup, else the smallest.

    Operands that are not ``aligned`` get the tile of :data:`RAGGED` where there is one.

    Raises:
        KernelError: no configuration for elements of that many bits.

    >>> pick_tile(8192, 8192, 16, "gfx942", 304).bm, pick_tile(1024, 1024, 16, "gfx942", 304).bm
    (256, 32)
    """
    table = choose(CONFIGS, arch)
    if bits not in table:
        raise KernelError(f"elements of {bits} bits: the tables have {', '.join(map(str, table))}")
    if not aligned and arch in RAGGED:
        return RAGGED[arch][bits]
    for tile in table[bits]:
        # erf needs many registers beside the accumulator: on gfx942 a tile of 256 x 256 would spill 217 of them.
        fits = activation != "gelu" or tile.bm * tile.bn < 256 * 256
        if fits and triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn) >= units:
            return tile
    return table[bits][-1]


def is_aligned(*matrices: torch.Tensor) -> bool:
    """Whether 128-bit loads are possible: one stride is 1, the other and the address are multiples of 16 bytes."""
    return all(
        min(x.stride()) == 1 and max(x.stride()) * x.element_size() % 16 == 0 and x.storage_offset() % 16 == 0
        for x in matrices
    )


def exact_every(a: torch.Tensor, arch: str, tile: GemmTile) -> int:
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
