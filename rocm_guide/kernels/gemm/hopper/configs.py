# SPDX-License-Identifier: MIT
"""Tiles of the GEMM on NVIDIA's Hopper (:mod:`rocm_guide.kernels.gemm.hopper.kernel`), and the choice among them.

The constants were fitted to the times of 437 products on an NVIDIA H100 80GB (torch 2.11, Triton 3.9), which stand in
benchmarks/results/gemm_hopper_sweep.jsonl and gemm_hopper_named.json; benchmarks/kernels/gemm_hopper.py measures and
fits. There the choice reaches 97 % of the speed of the best tile that was timed, on average. Triton 3.6 has no pairs of
programs; the choice is then among the other tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import triton

__all__ = []

#: Of a multiprocessor.
ALL_REGISTERS = 1 << 16


@dataclass(frozen=True)
class HopperTile:
    """How one GEMM is launched: each of ``parties`` warpgroups has ``rows`` rows and ``bn + rest`` columns of the tile.

    ``stages`` of ``bk`` columns of A wait in shared memory, C leaves in strips of ``strip`` columns, ``group`` rows of
    tiles are walked together, ``per`` programs share a multiprocessor. ``parts``: of K, each summed by itself.
    ``stream``: programs share out steps of K, not tiles (see :mod:`rocm_guide.kernels.gemm.stream_k`). ``copied``: "a",
    "b" or "ab" are copied to rows of whole lines of the cache first. ``ctas``: 2 for pairs of programs, one above the
    other, that fetch B together. ``flip``: what is computed is C^T = B^T A^T, so the rows are the columns of C.

    What it costs on an H100: ``rate``, TFLOPS of a full GPU far from the ends of a product, and ``step``, the least
    microseconds that one step of ``bk`` takes, however few programs there are.
    """

    rows: int
    bn: int
    rest: int
    bk: int
    stages: int
    strip: int = 64
    group: int = 8
    parties: int = 2
    per: int = 1
    stream: bool = False
    parts: int = 1
    copied: str = ""
    ctas: int = 1
    flip: bool = False
    rate: float = 600.0
    step: float = 0.3

    @property
    def bm(self) -> int:
        """Rows of a tile of C (of C^T, if flipped), or of the two of a pair."""
        return self.parties * self.rows * self.ctas

    @property
    def width(self) -> int:
        """Columns of a tile of C."""
        return self.bn + self.rest

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers of a thread of the second warpgroup that multiplies, if there is one, and of one that fetches."""
        return (232, 40) if self.parties == 2 else (40,)

    @property
    def options(self) -> dict[str, Any]:
        """The compile options: several programs share a multiprocessor's registers.

        The assembler wants at least 90 for one instruction that multiplies 64 x 128, whatever the warpgroup has.
        """
        threads = 128 * (self.parties + 1)
        found = {"num_warps": 4, "maxnreg": ALL_REGISTERS // (threads * self.per) // 8 * 8 if self.per > 1 else None}
        return {**found, "num_ctas": self.ctas} if self.ctas > 1 else found

    def __str__(self) -> str:
        how = " stream" if self.stream else f" in {self.parts}" if self.parts > 1 else ""
        how += f", {self.per} at a time" if self.per > 1 else ""
        how += (", in pairs" if self.ctas > 1 else "") + (", flipped" if self.flip else "")
        return f"{self.bm}x{self.width}x{self.bk}{how}{f', {self.copied} copied' if self.copied else ''}"


#: By bits of the element type.
HOPPER_TILES: dict[int, tuple[HopperTile, ...]] = {
    16: (
        HopperTile(64, 256, 0, 64, 4, rate=827, step=0.35),
        HopperTile(128, 128, 0, 64, 4, 32, rate=798, step=0.35),
        HopperTile(64, 128, 64, 64, 4, rate=808, step=0.3),
        HopperTile(64, 128, 0, 64, 6, rate=790, step=0.22),
        HopperTile(128, 128, 0, 64, 3, 32, parties=1, per=2, rate=607, step=0.25),
        HopperTile(64, 256, 0, 64, 5, 32, parties=1, rate=817, step=0.3),
        HopperTile(64, 128, 0, 64, 4, 32, parties=1, per=2, rate=743, step=0.277),
        HopperTile(128, 64, 0, 64, 4, 32, parties=1, per=2, rate=519, step=0.17),
        HopperTile(64, 64, 0, 64, 4, 32, parties=1, per=3, rate=344, step=0.162),
        HopperTile(64, 128, 32, 64, 5, 32, rate=734, step=0.26),
        HopperTile(128, 128, 32, 64, 3, 32, rate=686, step=0.4),
        HopperTile(128, 128, 64, 64, 3, 32, rate=743, step=0.45),
        HopperTile(64, 64, 32, 64, 6, 32, rate=723, step=0.2),
        HopperTile(64, 128, 16, 64, 5, 16, rate=655, step=0.25),
        HopperTile(64, 64, 16, 64, 7, 16, rate=614, step=0.19),
        HopperTile(64, 256, 0, 64, 4, ctas=2, rate=816, step=0.35),
        HopperTile(64, 128, 64, 64, 4, ctas=2, rate=733, step=0.54),
        HopperTile(64, 128, 32, 64, 5, 32, ctas=2, rate=678, step=0.26),
        HopperTile(64, 128, 16, 64, 5, 16, ctas=2, rate=618, step=0.25),
        HopperTile(64, 128, 0, 64, 6, ctas=2, rate=700, step=0.22),
        HopperTile(64, 64, 32, 64, 6, 32, ctas=2, rate=583, step=0.2),
        HopperTile(64, 256, 0, 64, 5, 32, parties=1, ctas=2, rate=680, step=0.3),
        HopperTile(128, 128, 0, 64, 4, 32, ctas=2, rate=766, step=0.35),
        HopperTile(128, 128, 64, 64, 3, 32, ctas=2, rate=725, step=0.45),
    ),
    8: (
        HopperTile(64, 128, 128, 128, 4, rate=1511, step=0.4),
        HopperTile(64, 128, 64, 128, 4, rate=1484, step=0.35),
        HopperTile(64, 128, 0, 128, 6, rate=1526, step=0.346),
        HopperTile(64, 128, 0, 128, 4, 32, parties=1, per=2, rate=1775, step=0.264),
        HopperTile(128, 64, 0, 128, 4, 32, parties=1, per=2, rate=1173, step=0.264),
        HopperTile(64, 64, 0, 128, 4, 32, parties=1, per=3, rate=1599, step=0.18),
        HopperTile(64, 128, 32, 128, 5, 32, rate=1422, step=0.32),
        HopperTile(64, 64, 32, 128, 6, 32, rate=1391, step=0.28),
        HopperTile(64, 128, 16, 128, 5, 16, rate=1245, step=0.31),
        HopperTile(64, 64, 16, 128, 7, 16, rate=1209, step=0.27),
        HopperTile(64, 128, 128, 128, 4, ctas=2, rate=1446, step=0.4),
        HopperTile(64, 128, 64, 128, 4, ctas=2, rate=1402, step=0.35),
        HopperTile(64, 128, 0, 128, 6, ctas=2, rate=1516, step=0.4),
        HopperTile(64, 128, 32, 128, 5, 32, ctas=2, rate=1132, step=0.32),
        HopperTile(64, 64, 32, 128, 6, 32, ctas=2, rate=1006, step=0.28),
    ),
}

#: How the rows of an operand lie in memory, of which a tile asks for 128 bytes at a time: in one line of the cache; in
#: whole sectors of 32 bytes; across sectors; or at addresses that TMA does not take, so that the operand is copied.
IN_LINES, IN_SECTORS, ACROSS, ODD = range(4)

#: So few steps of K are not shared out further.
LEAST_STEPS = 3
MOST_PARTS = 16


@dataclass(frozen=True)
class Operands:
    """How A and B lie in memory: IN_LINES, IN_SECTORS, ACROSS or ODD; and C, where only ODD matters."""

    a: int = IN_LINES
    b: int = IN_LINES
    c: int = IN_LINES

    def copied(self, ways: str, m: int, n: int, k: int) -> tuple[int, int]:
        """Elements at odd addresses that are copied, and other elements: those of ``ways`` ("a", "b", "ab")."""
        odd = m * k * (self.a == ODD) + k * n * (self.b == ODD)
        return odd, m * k * ("a" in ways and self.a == ACROSS) + k * n * ("b" in ways and self.b == ACROSS)


@dataclass(frozen=True)
class Costs:
    """Microseconds on an H100: of a launch, of storing a tile, of passing partial sums on, of the two small kernels.

    ``line``, ``sector``, ``across``: of a multiprocessor's TMA for one row of a tile, 128 bytes: in one line of the
    cache, in whole sectors of two lines, across sectors. ``flipped``: of storing a tile of C^T, how much more.
    ``read``, ``written``: GB/s at which operands come from memory, partial sums go there and back; ``copied`` and
    ``moved``: at which matrices are copied, at odd addresses and at others. ``streamed``: how much longer a product
    takes for sharing out steps, its start aside.
    """

    start: float = 3.62
    store: float = 0.947
    flipped: float = 0.0985
    stream: float = 12.3
    add: float = 1.07
    copy: float = 3.0
    line: float = 0.000886
    sector: float = 0.00133
    across: float = 0.0023
    read: float = 2390.0
    written: float = 2310.0
    copied: float = 964.0
    moved: float = 1000.0
    streamed: float = 1.08


COSTS = Costs()
PLAIN = Operands()


def tiles_of(tile: HopperTile, m: int, n: int) -> int:
    """How many tiles (of pairs, if they are in pairs) a product has."""
    rows, columns = (n, m) if tile.flip else (m, n)
    return triton.cdiv(rows, tile.bm) * triton.cdiv(columns, tile.width)


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
    store = costs.store + (costs.flipped if tile.flip else 0.0)
    # Of each program: a pair has twice the rows, shares the columns, and there are half as many pairs.
    rows, sets = tile.bm // tile.ctas, units // tile.ctas
    # Microseconds of a step while one program has the multiprocessor for itself: see full() for several.
    work = 2e-6 * rows * tile.width * tile.bk / (tile.rate / units)
    row = costs.line, costs.sector, costs.across, costs.line
    of_a, of_b = (row[IN_LINES if x in tile.copied else way] for x, way in (("a", operands.a), ("b", operands.b)))
    left, top = (of_b, of_a) if tile.flip else (of_a, of_b)
    work = together(work, rows * left + tile.width * top / tile.ctas)

    def full(programs: int) -> float:
        return max(programs * work, tile.step)

    least = bits / 8e3 * (m * k + k * n) / costs.read
    odd, other = operands.copied(tile.copied, m, n, k)
    before = costs.start
    if odd or other:
        before += costs.copy + 2e-3 * (bits // 8) * (odd / costs.copied + other / costs.moved)

    def time_in(parts: int) -> float:
        if tile.stream:
            passed = costs.stream * max(1.0, units / max(tiles, 1))
            time = passed + costs.store * triton.cdiv(tiles, units) + full(1) * max(tiles * steps / units, 4)
            time *= costs.streamed
        else:
            rounds, rest = divmod(tiles * parts, sets * tile.per)
            each = -(-steps // parts)
            time = rounds * (tile.per * store + each * full(tile.per)) if rounds else 0.0
            if rest:
                programs = -(-rest // sets)
                time += programs * store + each * full(programs)
        time = before + max(time, least)
        if parts > 1:
            time += costs.add + 4e-3 * parts * m * n / costs.written
        return time

    return time_in


@cache
def candidates(bits: int, operands: Operands = PLAIN, pairs: bool = False) -> tuple[HopperTile, ...]:
    """All tiles for elements of that many bits: also flipped, the wide ones also shared out by steps, and what could be
    copied. ``pairs``: whether this Triton has them."""
    tiles = [t for t in HOPPER_TILES[bits] if pairs or t.ctas == 1]
    streams = [replace(t, stream=True) for t in tiles if t.bm * t.width == 128 * 256 and t.ctas == 1]
    tiles += [*(replace(t, flip=True) for t in tiles), *streams]
    across = ("a" if operands.a == ACROSS else "") + ("b" if operands.b == ACROSS else "")
    if operands.c == ODD:
        # C is then stored without TMA, which takes registers that the sums of the largest tiles need.
        tiles = [t for t in tiles if t.rows * t.width <= 128 * 128]
    return tuple(replace(t, copied=copied) for copied in dict.fromkeys(("", *across, across)) for t in tiles)


def parts_of(tile: HopperTile, m: int, n: int, k: int, units: int) -> range:
    """Into how many parts K can be shared out, for products with too few tiles to fill a GPU twice; at least one."""
    fit = 2 * units * tile.per // tile.ctas // max(tiles_of(tile, m, n), 1)
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
    pairs: bool = False,
) -> HopperTile:
    """The tile, the number of parts of K, and the way to read A and B, with the least expected time.

    >>> str(pick_hopper_tile(8192, 8192, 8192, 16, 132)), str(pick_hopper_tile(512, 384, 10496, 16, 132))
    ('128x256x64', '128x96x64 in 7')
    """
    tiles = candidates(bits, operands, pairs)
    found, least = (tiles[0], 1), math.inf
    # No copy is worth it whose own time, with the arithmetic at the best rate, is more than the least so far.
    copying = costs.copy + bits / 4e3 * k * min(m, n) / costs.moved + 2e-6 * m * n * k / max(t.rate for t in tiles)
    for t in tiles:
        if t.copied and copying > least:
            continue
        time_in = expected_times(t, m, n, k, bits, units, operands, costs)
        for parts in parts_of(t, m, n, k, units):
            if (time := time_in(parts)) < least:
                found, least = (t, parts), time
    return replace(found[0], parts=found[1])
