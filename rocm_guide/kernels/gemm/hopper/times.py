# SPDX-License-Identifier: MIT
"""How long a product is expected to take by a tile of the GEMM on NVIDIA's Hopper
(:mod:`rocm_guide.kernels.gemm.hopper.kernel`): a model, to choose among tiles by.

The constants were fitted to 8,900 times of 567 products on an NVIDIA H100 80GB (torch 2.11, Triton 3.9), by the
kernel as it is: benchmarks/results/gemm_hopper_sweep.jsonl and gemm_hopper_named.json, measured and fitted by
benchmarks/kernels/gemm_hopper.py. Among the ways that were timed the choice reaches 98 % of the best speed, on
average, and on 240 other products 97 % of that of a tile found by timing. No way in the files shares out steps
(``stream``): its costs are of an earlier kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton

from rocm_guide.kernels.gemm.hopper.tiles import HopperTile

__all__ = []

#: How the rows of an operand lie in memory, of which a tile asks for 128 bytes at a time: in one line of the cache; in
#: whole sectors of 32 bytes; across sectors; or at addresses that TMA does not take, so that the operand is copied.
IN_LINES, IN_SECTORS, ACROSS, ODD = range(4)


@dataclass(frozen=True)
class Operands:
    """How A and B lie in memory: IN_LINES, IN_SECTORS, ACROSS or ODD; and C, where only ODD matters.

    ``a_along``, ``b_along``: whether their rows in memory are along K, as they are in A B^T.
    """

    a: int = IN_LINES
    b: int = IN_LINES
    c: int = IN_LINES
    a_along: bool = True
    b_along: bool = True

    def copied(self, ways: str, m: int, n: int, k: int) -> int:
        """How many elements are copied: those at odd addresses, and those of ``ways`` ("a", "b", "ab")."""
        return m * k * ("a" in ways or self.a == ODD) + k * n * ("b" in ways or self.b == ODD)

    def as_read(self, ways: str) -> tuple[int, int]:
        """How A and B lie when a tile is fetched: a copy, of ``ways`` or of odd addresses, is in whole lines."""
        a, b = (IN_LINES if way == ODD or x in ways else way for x, way in (("a", self.a), ("b", self.b)))
        return a, b


@dataclass(frozen=True)
class Costs:
    """Microseconds on an H100: of a launch, of storing a tile, of passing partial sums on, of the two small kernels.

    ``late``, ``cluster``: what a launch takes longer that shares out steps, and so does not overlap with the one before
    it; and one of clusters. (Long ones do not overlap either, which is no loss.)
    ``line``, ``sector``, ``across``: of a multiprocessor's TMA for one row of a tile, 128 bytes: in one line of the
    cache, in whole sectors of two lines, across sectors, if all multiprocessors ask; ``alone``: which share of that it
    takes if no other one does. ``upright``, ``flipped``: of storing 10,000 elements of a tile, of C or C^T, and
    ``odd_upright``, ``odd_flipped`` where TMA does not store them. ``crossed``: how much longer multiplying takes with
    narrow blocks of a B whose rows are not along K; ``scattered``: and reading the operand whose readers are at work at
    different times, which is no loss any more (see :func:`group_of`). ``read``, ``written``: GB/s at which operands
    come from memory, C and partial sums go there; ``copied``: at which matrices are copied. ``streamed``: how much
    longer a product takes for sharing out steps, its start aside. ``sustained``: TFLOPS of 16 bits (twice as many of 8)
    that the GPU's power allows, of operations on whole tiles. ``apart``: how much longer multiplying takes for each
    instruction that several blocks of columns need in place of one: see APART.
    """

    start: float = 2.49
    late: float = 0.263
    cluster: float = 0.824
    store: float = 0.087
    upright: float = 0.263
    flipped: float = 0.255
    odd_upright: float = 1.05
    odd_flipped: float = 0.935
    crossed: float = 1.2
    scattered: float = 0.952
    stream: float = 8.02
    add: float = 1.94
    copy: float = 2.28
    line: float = 0.00113
    sector: float = 0.00154
    across: float = 0.00268
    alone: float = 0.197
    read: float = 2960.0
    written: float = 1900.0
    copied: float = 3060.0
    streamed: float = 1.67
    sustained: float = 1190.0
    apart: float = 1.0


COSTS = Costs()
#: Triton 3.6 has an instruction for each block: 2 % longer with two of them (128 x 192), 8 % with three (512 x 208).
APART = 1.03
PLAIN = Operands()
#: Of an H100's 132 multiprocessors, as the driver says (cudaOccupancyMaxActiveClusters).
CLUSTERS_AT_ONCE = {2: 66, 4: 30, 8: 15}


def tiles_of(tile: HopperTile, m: int, n: int) -> int:
    """How many tiles (of clusters, if there are any) a product has."""
    rows, columns = (n, m) if tile.flip else (m, n)
    return triton.cdiv(rows, tile.bm) * triton.cdiv(columns, tile.bn)


def at_once(tile: HopperTile, units: int) -> int:
    """How many programs, or clusters of them, are at work at a time.

    The multiprocessors of a cluster are neighbours (of one GPC), so some are left over from four on.
    """
    return units * CLUSTERS_AT_ONCE.get(tile.ctas, 132 // tile.ctas) * tile.per // 132


def group_of(tile: HopperTile, m: int, n: int, units: int) -> int:
    """How many rows of tiles, or of clusters, are walked together, column by column, so that what they read is shared.

    The taller C is (of a flipped product C^T), the fewer rows: programs at work at the same time, and next to each
    other, then share both operands. Measured on an H100 with 1 to 64 rows, 472 tiles of 67 products: by this rule a
    product takes 0.8 % longer than by the best number, on average, and 1.7 % by the tile's own. 1,857 x 2,304 x 6,848
    in fp8 by 128 x 144, flipped, took 51.8 us in eights and 48.6 in fours; 560 x 9,664 x 4,480 by 192 x 112, flipped,
    76.7 in eights and 68.3 row by row.
    """
    rows, columns = (n, m) if tile.flip else (m, n)
    tall, tiles = rows / columns, tiles_of(tile, m, n) * tile.parts
    at_work = tiles <= at_once(tile, units)
    if tile.ctas == 1:
        if at_work:
            height = 0 if tall < 0.6 else 512 if tall < 2 or tile.parts > 1 else 1
        else:
            height = 0 if tall < 0.2 else 512 if tall < 1.5 else 256 if tall < 11 else 1
        return max(1, height // tile.bm) if height else tile.group
    if tile.ctas == 2:
        return tile.group if tall < 0.5 else 8 if at_work and tall > 4 else 4
    return 1 if at_work and tile.parts == 1 and tall > 4 else tile.group


def is_scattered(tile: HopperTile, m: int, n: int) -> bool:
    """Whether programs that need the same rows at the same time are not next to each other."""
    rows, columns = (n, m) if tile.flip else (m, n)
    return columns > tile.bn and rows > tile.bm * tile.group


def asked_for(tile: HopperTile, way: int, along: bool) -> tuple[int, int]:
    """How many pieces of a row, of up to 128 bytes, a step asks for of the operand that has the columns; and how they
    lie in the cache.

    Where rows are not along K, whole lines are fetched, and tiles whose width is no multiple of a line begin in the
    middle of one.
    """
    if along:
        return tile.width, way
    return triton.cdiv(tile.width, 64) * 64, max(way, IN_SECTORS) if tile.width % 64 else way


def together(a: Any, b: Any) -> Any:
    """How long two things take that go on at the same time: the longer one, and more where they are alike."""
    return (a**4 + b**4) ** 0.25


def expected_time(
    tile: HopperTile,
    m: int,
    n: int,
    k: int,
    bits: int,
    units: int,
    operands: Operands = PLAIN,
    costs: Costs = COSTS,
) -> float:
    """Microseconds that a product is expected to take. A model, to choose among tiles by."""
    return expected_times(tile, m, n, k, bits, units, operands, costs)(tile.parts)


def expected_times(
    tile: HopperTile,
    m: int,
    n: int,
    k: int,
    bits: int,
    units: int,
    operands: Operands = PLAIN,
    costs: Costs = COSTS,
) -> Callable[[int], float]:
    """:func:`expected_time` by parts of K: most of it does not depend on them."""
    tiles, steps = tiles_of(tile, m, n), triton.cdiv(k, tile.bk)
    # Of each program.
    rows, sets = tile.parties * tile.rows, at_once(tile, units) // tile.per
    # Microseconds of a step while one program has the multiprocessor for itself: see full() for several.
    work = 2e-6 * rows * tile.width * tile.bk / (tile.rate / units)
    area = 1e-4 * rows * tile.width
    store = costs.store + area * (costs.flipped if tile.flip else costs.upright)
    to_odd = costs.store + area * (costs.odd_flipped if tile.flip else costs.odd_upright)
    row = costs.line, costs.sector, costs.across
    of_a, of_b = operands.as_read(tile.copied)
    left, top, along = (of_b, of_a, operands.a_along) if tile.flip else (of_a, of_b, operands.b_along)
    pieces, top = asked_for(tile, top, along)
    if not along and tile.blocks[-1] < 64:
        work *= costs.crossed
    if costs.apart > 1:
        work *= costs.apart ** tile.instructions_apart(bits)
    fetched = rows * row[left] / tile.across + pieces * row[top] / tile.down

    def full(programs: int, clusters: int = sets) -> float:
        busy = costs.alone + (1 - costs.alone) * clusters * tile.ctas / units
        return max(programs * together(work, fetched * busy), tile.step)

    kept, read = (k * m, 1.0 * k * n) if tile.flip else (k * n, 1.0 * k * m)
    if is_scattered(tile, m, n):
        read *= costs.scattered
    least = bits / 8e3 * (kept + read) / costs.read + 2e-3 * m * n / costs.written
    powered = 2e-6 * tiles * tile.bm * tile.bn * steps * tile.bk / (costs.sustained * 16 / bits)
    copied = operands.copied(tile.copied, m, n, k)
    before = costs.start + (costs.cluster if tile.ctas > 1 else 0.0)
    if copied:
        before += costs.copy + 2e-3 * (bits // 8) * copied / costs.copied

    def time_in(parts: int) -> float:
        stored = to_odd if parts == 1 and operands.c == ODD else store
        if tile.stream:
            passed = costs.stream * max(1.0, units / max(tiles, 1))
            time = passed + stored * triton.cdiv(tiles, units) + full(1) * max(tiles * steps / units, 4)
            time *= costs.streamed
        else:
            rounds, rest = divmod(tiles * parts, sets * tile.per)
            each = -(-steps // parts)
            time = rounds * (tile.per * stored + each * full(tile.per)) if rounds else 0.0
            if rest:
                programs = -(-rest // sets)
                time += programs * stored + each * full(programs, min(rest, sets))
        time = before + together(together(time, least), powered)
        if tile.stream:
            time += costs.late
        if parts > 1:
            time += costs.add + 4e-3 * parts * m * n / costs.written
        return time

    return time_in
