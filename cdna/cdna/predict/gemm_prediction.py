# SPDX-License-Identifier: MIT
"""The predicted time of a tiled matrix product on MI300X: executed cycles of its loop, rounds of workgroups, bytes.

This is a *model*, not a measurement. One workgroup's machine code is executed for two lengths of K and laid out on a
compute unit (:mod:`cdna.step.steady`), with as many workgroups beside it as fit; the grid then takes as
many rounds as it needs. Beside that stand the bytes that the eight L2 caches fetch, at the Infinity Cache's peak of
17.2 TB/s, and the bytes that must come from memory at least. The longest of the three is the prediction, a bound at
2.1 GHz; a GPU that multiplies without a pause does not keep that clock (:mod:`cdna.predict.achieved`).
Source of the bandwidth: "AMD CDNA 3 Architecture", AMD, white paper, 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cdna.compile import Compiled
from cdna.examples.gemm_ladder import Rung
from cdna.predict.specs import GpuSpec, gpu
from cdna.predict.times import ModelTime, loop_budget
from cdna.report import kernel_report
from cdna.step.steady import steady_cycles
from cdna.step.timeline import Timeline

__all__ = ["CACHE_TB_S", "ProductTime", "fetched_bytes", "predict_product"]

CACHE_TB_S = 17.2  # what the Infinity Cache gives all XCDs together at most


@dataclass(frozen=True)
class ProductTime(ModelTime):
    """Model microseconds of one product, by what bounds it, and how they came about.

    Attributes:
        parts: ``compute units``, ``Infinity Cache`` and ``HBM``.
        cycles: of a compute unit for each element along K, all its workgroups together.
        workgroups, rounds: of the grid.
        resident: workgroups on a compute unit at a time.
        timeline: of a compute unit with that many, at the longer of the lengths that were executed; None if none was.
    """

    cycles: float
    workgroups: int
    resident: int
    rounds: int
    timeline: Timeline | None = field(default=None, repr=False, compare=False)


def fetched_bytes(order: Sequence[tuple[int, int]], at_once: int, tile: tuple[int, int], k: int, xcds: int = 8) -> int:
    """Return the bytes of fp16 that the L2 caches fetch if what runs together on an XCD shares its rows of A and
    columns of B.

    Args:
        order: row and column of the tile of each workgroup, in the order of their numbers.
        at_once: workgroups that run at the same time.
        tile: rows and columns of a tile.
        k: the length of the sums.
        xcds: dies; workgroup p runs on die p modulo this.

    >>> fetched_bytes([(0, 0), (0, 1)], 2, (16, 16), 8, xcds=1), fetched_bytes([(0, 0), (0, 1)], 2, (16, 16), 8, xcds=2)
    (768, 1024)
    """
    total = 0
    for start in range(0, len(order), at_once):
        for die in range(xcds):
            mine = [order[p] for p in range(start, min(start + at_once, len(order))) if p % xcds == die]
            total += 2 * k * (tile[0] * len({r for r, _ in mine}) + tile[1] * len({c for _, c in mine}))
    return total


def _aligned(rows: int, columns: int) -> Any:
    """Return zeros that begin at a line of memory, as every allocation of a GPU does: otherwise lines and times would
    vary.
    """
    raw = np.zeros(2 * rows * columns + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + 2 * rows * columns].view(np.float16).reshape(rows, columns)


def predict_product(
    rung: Rung,
    compiled: Compiled,
    size: int,
    *,
    lengths: tuple[int, int] = (128, 256),
    cycles: float | None = None,
    spec: GpuSpec | None = None,
) -> ProductTime:
    """Predict a product of ``size`` x ``size`` x ``size`` in fp16 by one rung of the ladder.

    Args:
        rung: the kernel, its constants and its grid.
        compiled: what it becomes on gfx942.
        lengths: two short lengths of K that are executed.
        cycles: of a compute unit for each element along K, if they are known from another rung with the same loop.
        spec: an MI300X by default.
    """
    spec = spec or gpu("MI300X")
    bm, bn = rung.constants.get("BM", 1), rung.constants["BN"]
    report = kernel_report(compiled)
    resident = max(1, report.occupancy.workgroups_per_cu)

    def launch(k: int) -> tuple[tuple[int, ...], list[object]]:
        return (1,), [_aligned(bm, k), _aligned(k, bn), _aligned(bm, bn), bm, bn, k]

    model = None
    if cycles is None:
        cycles, model = steady_cycles(compiled, launch, lengths, groups=resident)
        # Between two short runs the ends do not cancel exactly: no loop is faster than its busiest unit.
        if bk := rung.constants.get("BK"):
            waves = min(spec.max_waves, resident * compiled.num_warps / spec.simds)
            cycles = max(cycles, loop_budget(compiled, waves=waves, reuse=math.inf).cycles / bk)
    order = rung.order(size, size)
    _, mhz = spec.flops["fp32"]
    at_once = spec.units * resident
    rounds = math.ceil(len(order) / at_once)
    # In the last round fewer workgroups share a compute unit, so it takes as long as the fullest one.
    last = len(order) - (rounds - 1) * at_once
    share = rounds - 1 + math.ceil(last / spec.units) / resident
    parts = {
        "compute units": share * cycles * size / mhz,
        "Infinity Cache": fetched_bytes(order, at_once, (bm, bn), size) / CACHE_TB_S / 1e6,
        "HBM": 6 * size * size / spec.bandwidth_tb_s / 1e6,
    }
    matrix = 2 * size**3 / spec.peak_tflops("fp16") / 1e6 if report.isa.mfma else 0.0
    return ProductTime(parts, cycles, len(order), resident, rounds, model, matrix=matrix)
