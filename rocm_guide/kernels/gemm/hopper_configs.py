# SPDX-License-Identifier: MIT
"""Tiles of the GEMM on NVIDIA's Hopper (:mod:`rocm_guide.kernels.gemm.hopper`), and the choice among them.

The constants were fitted to the times of 236 products on an NVIDIA H100 80GB (torch 2.11, Triton 3.6), which stand in
benchmarks/results/gemm_hopper_sweep.jsonl and gemm_hopper_named.json; benchmarks/kernels/gemm_hopper.py measures and
fits. There the choice reaches 98 % of the speed of the best tile that was timed, on average. Sharing out steps was the
best way for 15 of the 172 products on which it was timed, and the constants of it are high accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    ``stream``: programs share out steps of K, not tiles (see :mod:`rocm_guide.kernels.gemm.stream_k`).

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
    rate: float = 600.0
    step: float = 0.3

    @property
    def bm(self) -> int:
        """Rows of a tile of C."""
        return self.parties * self.rows

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
        return {"num_warps": 4, "maxnreg": ALL_REGISTERS // (threads * self.per) // 8 * 8 if self.per > 1 else None}

    def __str__(self) -> str:
        how = " stream" if self.stream else f" in {self.parts}" if self.parts > 1 else ""
        return f"{self.bm}x{self.width}x{self.bk}{how}{f', {self.per} at a time' if self.per > 1 else ''}"


#: By bits of the element type.
HOPPER_TILES: dict[int, tuple[HopperTile, ...]] = {
    16: (
        HopperTile(64, 256, 0, 64, 4, rate=763, step=0.35),
        HopperTile(128, 128, 0, 64, 4, 32, rate=725, step=0.35),
        HopperTile(64, 128, 64, 64, 4, rate=726, step=0.3),
        HopperTile(64, 128, 0, 64, 6, rate=634, step=0.22),
        HopperTile(128, 128, 0, 64, 3, 32, parties=1, per=2, rate=582, step=0.25),
        HopperTile(64, 256, 0, 64, 5, 32, parties=1, rate=589, step=0.3),
        HopperTile(64, 128, 0, 64, 4, 32, parties=1, per=2, rate=529, step=0.294),
        HopperTile(128, 64, 0, 64, 4, 32, parties=1, per=2, rate=474, step=0.17),
        HopperTile(64, 64, 0, 64, 4, 32, parties=1, per=3, rate=310, step=0.19),
    ),
    8: (
        HopperTile(64, 128, 128, 128, 4, rate=1478, step=0.4),
        HopperTile(64, 128, 64, 128, 4, rate=1413, step=0.35),
        HopperTile(64, 128, 0, 128, 6, rate=1360, step=0.408),
        HopperTile(64, 128, 0, 128, 4, 32, parties=1, per=2, rate=1228, step=0.304),
        HopperTile(128, 64, 0, 128, 4, 32, parties=1, per=2, rate=885, step=0.304),
        HopperTile(64, 64, 0, 128, 4, 32, parties=1, per=3, rate=1056, step=0.215),
    ),
}

#: So few steps of K are not shared out further.
LEAST_STEPS = 3
MOST_PARTS = 16


@dataclass(frozen=True)
class Costs:
    """Microseconds on an H100: of a launch, of storing a tile, of passing partial sums on, of the two small kernels.

    ``read``, ``written`` and ``copied``: GB/s at which operands come from memory, partial sums go there and back, and
    matrices are copied. ``streamed``: how much longer a product takes for sharing out steps, its start aside.
    """

    start: float = 2.95
    store: float = 0.848
    stream: float = 16.5
    add: float = 1.75
    copy: float = 4.78
    read: float = 2420.0
    written: float = 2410.0
    copied: float = 804.0
    streamed: float = 1.11


COSTS = Costs()


def expected_time(
    tile: HopperTile, m: int, n: int, k: int, bits: int, units: int, copied: int = 0, costs: Costs = COSTS
) -> float:
    """Microseconds that a product is expected to take, with ``copied`` bytes to copy first.

    A model, to choose among tiles by.
    """
    tiles, steps = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.width), triton.cdiv(k, tile.bk)
    # Microseconds of a step while one program has the multiprocessor for itself: see full() for several.
    work = 2e-6 * tile.bm * tile.width * tile.bk / (tile.rate / units)

    def full(programs: int) -> float:
        return max(programs * work, tile.step)

    if tile.stream:
        passed = costs.stream * max(1.0, units / max(tiles, 1))
        time = passed + costs.store * triton.cdiv(tiles, units) + full(1) * max(tiles * steps / units, 4)
        time *= costs.streamed
    else:
        pieces = tiles * tile.parts
        rounds, rest = divmod(pieces, units * tile.per)
        each = triton.cdiv(steps, tile.parts)
        time = rounds * (tile.per * costs.store + each * full(tile.per))
        if rest:
            programs = triton.cdiv(rest, units)
            time += programs * costs.store + each * full(programs)
    time = costs.start + max(time, bits / 8e3 * (m * k + k * n) / costs.read)
    if tile.parts > 1:
        time += costs.add + 4e-3 * tile.parts * m * n / costs.written
    if copied:
        time += costs.copy + 2e-3 * copied / costs.copied
    return time


def candidates(bits: int) -> list[HopperTile]:
    """All tiles for elements of that many bits, and the wide ones also shared out by steps."""
    tiles = HOPPER_TILES[bits]
    return [*tiles, *(replace(t, stream=True) for t in tiles if t.bm * t.width == 128 * 256)]


def in_parts(tile: HopperTile, m: int, n: int, k: int, units: int) -> Iterator[HopperTile]:
    """The ways to share K out, for products with too few tiles to fill a GPU twice."""
    tiles, steps = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.width), triton.cdiv(k, tile.bk)
    most = min(MOST_PARTS, steps // LEAST_STEPS, 2 * units * tile.per // max(tiles, 1))
    return (replace(tile, parts=parts) for parts in range(2, most + 1) if not tile.stream)


def pick_hopper_tile(
    m: int, n: int, k: int, bits: int, units: int, copied: int = 0, costs: Costs = COSTS
) -> HopperTile:
    """The tile, and the number of parts of K, with the least expected time.

    >>> str(pick_hopper_tile(8192, 8192, 8192, 16, 132)), str(pick_hopper_tile(512, 384, 10496, 16, 132))
    ('128x256x64', '128x128x64 in 11')
    """
    ways = [w for t in candidates(bits) for w in (t, *in_parts(t, m, n, k, units))]
    return min(ways, key=lambda t: expected_time(t, m, n, k, bits, units, copied, costs))
