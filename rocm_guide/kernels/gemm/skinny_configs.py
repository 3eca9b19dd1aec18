# SPDX-License-Identifier: MIT
"""Launch configurations of the skinny GEMM, as data keyed by architecture, and the choice among them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import triton

from rocm_guide.kernels.arguments import choose

__all__ = ["SHAPES", "SkinnyTile", "pick_config", "pick_split"]

#: The projections of Llama 3.1 405B on one of 8 GPUs, (N, K): QKV, gate and up, down.
#: Source: "Creating custom kernels for the AMD MI300", https://huggingface.co/blog/mi300kernels.
SHAPES = ((2304, 16384), (13312, 16384), (16384, 6656))

#: The most parts that K is shared out to: one workgroup of a tile has to read them all.
MOST_PARTS = 32


@dataclass(frozen=True)
class SkinnyTile:
    """How a skinny GEMM is launched: ``bn`` rows of the weight by ``bk`` of K per step, ``groups`` workgroups per CU.

    ``exact`` is for fp8 on Hopper, whose matrix unit adds fp8 products with about 14 bits: after that many the sum goes
    on in fp32 (0: always).

    ``chunks`` pieces of a row of the weight, ``bk`` long and next to each other, fill as many rows of the matrix unit's
    left side, so a workgroup needs fewer rows of the weight. The unit then also multiplies pieces that do not belong
    together; those products are left out at the end. ``direct``: the workgroup with the last part of K waits for the
    sums of the others, instead of all counting who arrives last. That is shorter by a trip to memory, and needs that
    workgroups start in the order of their numbers.
    """

    bn: int
    bk: int
    warps: int
    stages: int
    groups: float
    exact: int = 0
    chunks: int = 1
    direct: bool = False


#: By architecture and bits of the weight's type: for weights whose tiles are fewer than compute units, and for others.
#: gfx942 was chosen from its compiled code, sm_90 by measurement (benchmarks/kernels/skinny_gemm.py).
CONFIGS: dict[str, dict[int, tuple[SkinnyTile, SkinnyTile]]] = {
    "gfx942": {8: (SkinnyTile(64, 256, 4, 2, 2),) * 2, 16: (SkinnyTile(64, 128, 4, 2, 2),) * 2},
    "sm_90": {
        8: (
            SkinnyTile(32, 128, 4, 4, 1.6, 128, chunks=2, direct=True),
            SkinnyTile(64, 256, 4, 4, 1, 128),
        ),
        16: (
            SkinnyTile(32, 64, 4, 5, 1.6, chunks=2, direct=True),
            SkinnyTile(64, 128, 4, 4, 1),
        ),
    },
    "interpreter": {8: (SkinnyTile(32, 64, 4, 2, 2),) * 2, 16: (SkinnyTile(32, 32, 4, 2, 2),) * 2},
}


def pick_config(n: int, bits: int, arch: str, units: int) -> SkinnyTile:
    """The table's launch for a weight of ``n`` rows, of types of ``bits`` bits, on ``units`` compute units.

    >>> pick_config(2304, 8, "gfx942", 304).bk
    256
    """
    few, many = choose(CONFIGS, arch)[bits]
    return few if triton.cdiv(n, many.bn) < units else many


def pick_split(n: int, k: int, tile: SkinnyTile, units: int) -> int:
    """Parts of K such that ``units`` compute units get ``tile.groups`` workgroups each, rounded up; at most 32.

    >>> [pick_split(n, k, CONFIGS["gfx942"][8][0], 304) * n // 64 for n, k in SHAPES]
    [612, 624, 768]
    """
    tiles = int(triton.cdiv(n, tile.bn))
    return max(1, min(math.ceil(units * tile.groups / tiles), int(triton.cdiv(k, tile.bk * tile.chunks)), MOST_PARTS))
