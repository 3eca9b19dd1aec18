# SPDX-License-Identifier: MIT
"""The choice among the tiles of the GEMM on NVIDIA's Hopper (:mod:`rocm_guide.kernels.gemm.hopper.kernel`): that of the
least expected time (:mod:`rocm_guide.kernels.gemm.hopper.times`).

Triton 3.6 has no clusters of programs, and an instruction for each block of columns; the choice is then among the other
tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import triton

from rocm_guide.kernels.gemm.hopper.tiles import HOPPER_TILES, HopperTile
from rocm_guide.kernels.gemm.hopper.times import (
    ACROSS,
    APART,
    COSTS,
    ODD,
    PLAIN,
    Costs,
    Operands,
    at_once,
    expected_time,
    expected_times,
    tiles_of,
)

__all__ = []

#: So few steps of K are not shared out further.
LEAST_STEPS = 3
MOST_PARTS = 16


@cache
def candidates(bits: int, operands: Operands = PLAIN, clusters: bool = False) -> tuple[HopperTile, ...]:
    """All tiles for elements of that many bits: also flipped, the wide ones also shared out by steps, and what could be
    copied. ``clusters``: whether this Triton has them."""
    tiles = [t for t in HOPPER_TILES[bits] if clusters or (t.ctas == 1 and t.blocks[-1] > 8)]
    streams = [replace(t, stream=True) for t in tiles if t.bm * t.width == 128 * 256 and t.ctas == 1]
    tiles += [*(replace(t, flip=True) for t in tiles), *streams]
    across = ("a" if operands.a == ACROSS else "") + ("b" if operands.b == ACROSS else "")
    if operands.c == ODD:
        # C is then stored without TMA, which takes registers that the sums of the largest tiles need.
        tiles = [t for t in tiles if t.rows * t.width <= 128 * 128]
    return tuple(replace(t, copied=copied) for copied in dict.fromkeys(("", *across, across)) for t in tiles)


def parts_of(tile: HopperTile, m: int, n: int, k: int, units: int) -> range:
    """Into how many parts K can be shared out, for products with too few tiles to fill a GPU twice; at least one."""
    fit = 2 * at_once(tile, units) // max(tiles_of(tile, m, n), 1)
    most = 1 if tile.stream else min(MOST_PARTS, triton.cdiv(k, tile.bk) // LEAST_STEPS, fit)
    return range(1, max(most, 1) + 1)


def in_parts(tile: HopperTile, m: int, n: int, k: int, units: int) -> Iterator[HopperTile]:
    """The ways to share K out, in two parts or more."""
    return (replace(tile, parts=parts) for parts in parts_of(tile, m, n, k, units)[1:])


def pick_hopper_tile(
    m: int,
    n: int,
    k: int,
    bits: int,
    units: int,
    operands: Operands = PLAIN,
    costs: Costs = COSTS,
    clusters: bool = False,
) -> HopperTile:
    """The tile, the number of parts of K, and the way to read A and B, with the least expected time.

    >>> str(pick_hopper_tile(8192, 8192, 8192, 16, 132)), str(pick_hopper_tile(512, 384, 10496, 16, 132))
    ('128x256x64, flipped', '64x192x64 in 7')
    """
    tiles = candidates(bits, operands, clusters)
    if not clusters:
        costs = replace(costs, apart=APART)
    found, least = (tiles[0], 1), math.inf
    work = 2e-6 * m * n * k
    copying = costs.copy + bits / 4e3 * k * min(m, n) / costs.copied
    for t in tiles:
        # No tile is faster than the arithmetic at its rate, and no copy is free.
        if costs.start + work / t.rate + (copying if t.copied else 0.0) > least:
            continue
        time_in = expected_times(t, m, n, k, bits, units, operands, costs)
        for parts in parts_of(t, m, n, k, units):
            if (time := time_in(parts)) < least:
                found, least = (t, parts), time
    return replace(found[0], parts=found[1])


def likely_tiles(
    m: int,
    n: int,
    k: int,
    bits: int,
    units: int,
    operands: Operands = PLAIN,
    most: int = 12,
    slack: float = 2.0,
    clusters: bool = False,
) -> list[HopperTile]:
    """What is worth timing: up to ``most`` ways, the least expected time first, none above ``slack`` times that.

    Of each tile K is whole, and in the best two numbers of parts.
    """
    ways = []
    for t in candidates(bits, operands, clusters):
        parts = [(expected_time(w, m, n, k, bits, units, operands), w) for w in in_parts(t, m, n, k, units)]
        ways += [(expected_time(t, m, n, k, bits, units, operands), t), *sorted(parts, key=lambda x: x[0])[:2]]
    ways.sort(key=lambda x: x[0])
    return [t for us, t in ways if us <= slack * ways[0][0]][:most]
