# SPDX-License-Identifier: MIT
"""Work out what the kernels of ``measure`` take on an MI300X, by a model of each: compiled and executed, not timed.

This is a *model*, not a measurement. Each launch of a case is compiled for gfx942 as the case makes it, and one of its
workgroups (several, where they have unequal work) is executed and laid out on a compute unit beside as many others as
fit (:mod:`cdna.step.timeline`): instructions issued, waits, LDS, matrix cores. The grid takes as many
rounds as it needs, the last one with as many workgroups as are left. Beside that stand the bytes that the workgroups
ask of the L2 caches, and the bytes that must come from memory or go there. The longest of the three is the prediction.
The rungs of the ladder have the model of notebook 31, :func:`cdna.predict.gemm_prediction.predict_product`.
What only the last workgroup of a split sum does is left out.
A launch itself is charged nothing beyond the start and the end of its workgroups: AMD publishes no figure for it.
Source of the L2's rate, 2,048 bytes a cycle for each XCD: "AMD CDNA 3 Architecture", AMD, white paper, 2023.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from functools import cache
from typing import Any

from cdna.costs import Costs
from cdna.dry_run.driver import dry_run
from cdna.examples.gemm_ladder import RUNGS, Rung
from cdna.predict.gemm_prediction import CACHE_TB_S, ProductTime, predict_product
from cdna.predict.specs import gpu
from cdna.report import KernelReport
from cdna.run.counters import LINE
from cdna.step.state import Recording
from cdna.step.steady import events_of
from cdna.step.timeline import timeline
from rocm_guide.kernels.table_measure import compiled_sources, digest_of
from rocm_guide.observe.measure.cases import CASES, Case
from rocm_guide.observe.measure.predictions import Launched, Prediction

__all__ = ["L2_BYTES", "case_source", "launches_of", "makespan", "predict_all", "predict_case", "with_memory"]

#: Bytes a cycle from the L2 of one XCD.
L2_BYTES = 2048
_LIMIT = 20_000_000  # steps of a workgroup; a long sum takes millions
#: Products whose loop is executed for two short lengths of K, and the rest of it taken to go on like that.
_SHORT = {"gemm": (512, 1024), "stream-K": (512, 1024)}
#: Cases whose workgroups have unequal work: how many of them are executed, from the first to the last.
_UNEQUAL = {"attention causal": 5}
#: Lengths of K for the rungs whose loop takes one element at a time; the others have blocks, and longer ones.
_RUNG_LENGTHS = {"naive": (8, 16), "tiled": (4, 8)}


def _beginning(name: str, table: dict[str, Any]) -> Any:
    return next((value for key, value in table.items() if name.startswith(key)), None)


def case_source(case: Case) -> str:
    """Return a digest of what a prediction is made of: kernels, types and options, and what the model charges.

    Nothing is compiled.
    """
    with dry_run("gfx942", device="meta"), compiled_sources(skip=True) as seen:
        case.make()[0]()
    spec = gpu("MI300X")
    charged = [astuple(Costs()), L2_BYTES, CACHE_TB_S, spec.units, spec.bandwidth_tb_s, spec.flops["fp32"]]
    how = [_beginning(case.name, _SHORT), _beginning(case.name, _UNEQUAL), case.nbytes]
    text = json.dumps([digest_of(seen), charged, how])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def launches_of(call: Callable[[], Any]) -> list[tuple[Any, tuple[int, int, int], dict[str, Any], KernelReport]]:
    """Return compiled kernel, grid, arguments and report of each launch of ``call``, in which no tensor has memory."""
    found: list[tuple[Any, tuple[int, int, int], dict[str, Any]]] = []

    def keep(compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        found.append((compiled, grid, {n: v for n, v in arguments.items() if compiled.signature[n] != "constexpr"}))

    with dry_run("gfx942", device="meta", on_launch=keep) as run:
        call()
    reports = [launch.report for launch in run.launches if not launch.tuning]
    return [(*f, report) for f, report in zip(found, reports, strict=True)]


def with_memory(value: Any) -> Any:
    """Return the argument with zeros where a tensor had no memory."""
    import torch

    if isinstance(value, tuple | list):
        return tuple(map(with_memory, value))
    if hasattr(value, "base") and isinstance(value.base, torch.Tensor):  # Triton's view of a tensor as another type
        value = value.base
    if not isinstance(value, torch.Tensor):
        return value
    extent = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
    # Bytes, so that zeros of any type are to be had. Where executed, a storage begins at a line, as a GPU's do.
    raw = torch.zeros(extent * value.element_size(), dtype=torch.uint8)
    return raw.view(value.dtype).as_strided(value.shape, value.stride())


def makespan(durations: Sequence[float], places: int) -> float:
    """Return when the last of jobs is done that are started in their order, each in the place that is free first.

    >>> makespan([3, 1, 1, 1], 2), makespan([1, 1, 1, 3], 2)
    (3.0, 4.0)
    """
    free = [0.0] * min(places, len(durations))
    for d in durations:
        heapq.heapreplace(free, free[0] + d)
    return max(free)


def _interpolated(at: Sequence[int], values: Sequence[float], count: int) -> list[float]:
    import numpy as np

    return [float(v) for v in np.interp(range(count), at, values)]


def _executed(
    compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any], number: int, short: tuple[int, int] | None
) -> list[tuple[Recording, float]]:
    """Return a workgroup's run; with ``short`` two runs with shorter sums.
    Each with the elements of K that it covers.
    """
    if short is None:
        return [(events_of(compiled, grid, arguments, number, _LIMIT), 0.0)]
    runs = []
    for length in short:
        runs.append((events_of(compiled, grid, {**arguments, "K": length}, number, _LIMIT), float(length)))
    return runs


def _cycles(runs: Sequence[tuple[Recording, float]], groups: int, whole: float) -> float:
    """Return the cycles until a compute unit with ``groups`` such workgroups is done,
    the sums ``whole`` elements long.
    """
    times = [float(timeline(recording, groups=groups).cycles) for recording, _ in runs]
    if len(runs) == 1:
        return times[0]
    (_, short), (_, long) = runs
    return times[1] + (times[1] - times[0]) / (long - short) * (whole - long)


def _lines(recording: Recording) -> float:
    return float(len({line for wave in recording.events for e in wave for line in e.lines}))


def _asked(runs: Sequence[tuple[Recording, float]], whole: float) -> float:
    """Return the lines of memory that a workgroup touches:
    what it asks of the L2 if its L1 keeps what it needs again.
    """
    lines = [_lines(recording) for recording, _ in runs]
    if len(runs) == 1:
        return lines[0]
    (_, short), (_, long) = runs
    return lines[1] + (lines[1] - lines[0]) / (long - short) * (whole - long)


def _predict_launch(
    case: Case, compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any], report: KernelReport
) -> tuple[Launched, float]:
    """Predict one launch, and the lines that all its workgroups ask of the L2."""
    spec = gpu("MI300X")
    count = math.prod(grid)
    arguments = {n: with_memory(v) for n, v in arguments.items()}
    short = _beginning(case.name, _SHORT)
    whole = float(arguments["K"]) if short else 0.0
    samples = _beginning(case.name, _UNEQUAL) or 1
    resident = min(max(1, report.occupancy.workgroups_per_cu), math.ceil(count / spec.units))
    places = spec.units * resident
    at = [0] if samples == 1 else [round(i * (count - 1) / (samples - 1)) for i in range(samples)]
    runs = [_executed(compiled, grid, arguments, n, short) for n in at]
    cycles = [_cycles(r, resident, whole) for r in runs]
    asked = [_asked(r, whole) for r in runs]
    if samples == 1:
        rounds = math.ceil(count / places)
        # In the last round fewer workgroups share a compute unit.
        last = math.ceil((count - (rounds - 1) * places) / spec.units)
        total = (rounds - 1) * cycles[0] + (cycles[0] if last == resident else _cycles(runs[0], last, whole))
        lines = asked[0] * count
    else:
        total = makespan(_interpolated(at, cycles, count), places)
        lines = sum(_interpolated(at, asked, count))
    waves = resident * compiled.num_warps / spec.simds
    return Launched(compiled.name, count, resident, waves, round(count / places, 2), round(total)), lines


@cache
def _rung_time(index: int, size: int) -> tuple[ProductTime, Launched]:
    """Return the time by the model of notebook 31, from the compiled kernel of the case."""
    rung: Rung = RUNGS[index]
    case = next(c for c in CASES.values() if c.name.startswith(f"ladder {rung.name} "))
    ((compiled, _, _, _),) = launches_of(lambda: case.make()[0]())
    p = predict_product(rung, compiled, size, lengths=_RUNG_LENGTHS.get(rung.name, (128, 256)))
    spec = gpu("MI300X")
    waves = p.resident * compiled.num_warps / spec.simds
    total = p.parts["compute units"] * spec.flops["fp32"][1]
    rounds = round(p.workgroups / (spec.units * p.resident), 2)
    return p, Launched(compiled.name, p.workgroups, p.resident, waves, rounds, round(total))


def predict_case(case: Case) -> Prediction:
    """Return the prediction for one case, worked out now: from a second to a minute of one core.

    Raises:
        RunError: a kernel does what the hardware does not allow.
    """
    spec = gpu("MI300X")
    _, mhz = spec.flops["fp32"]
    rung = next((i for i, r in enumerate(RUNGS) if case.name.startswith(f"ladder {r.name} ")), None)
    if rung is not None:
        time, launched = _rung_time(rung, math.isqrt(case.nbytes // 6))
        return Prediction(case.name, time.parts, (launched,), case_source(case))
    found = [_predict_launch(case, *one) for one in launches_of(lambda: case.make()[0]())]
    parts = {
        "compute units": sum(launched.cycles for launched, _ in found) / mhz,
        "L2": sum(lines for _, lines in found) * LINE / (L2_BYTES * spec.dies * mhz),
        "HBM": case.nbytes / spec.bandwidth_tb_s / 1e6,
    }
    return Prediction(case.name, parts, tuple(launched for launched, _ in found), case_source(case))


def predict_all(names: Iterable[str] = (), progress: Callable[[str], object] | None = None) -> list[Prediction]:
    """Return predictions for cases by name; all by default. Minutes of one core."""
    out = []
    for name in list(names) or list(CASES):
        if progress is not None:
            progress(name)
        out.append(predict_case(CASES[name]))
    return out
