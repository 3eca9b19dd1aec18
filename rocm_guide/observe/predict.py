# SPDX-License-Identifier: MIT
"""Work out what the launches of a function take on an MI300X, by a model of its kernels: executed, not timed.

This is a *model*, not a measurement. Each launch is compiled for gfx942, and its first workgroup is executed and laid
out on a compute unit beside as many others as fit (:mod:`cdna.step.timeline`): instructions issued, waits, LDS, matrix
cores. The grid takes as many rounds as it needs, the last one with as many workgroups as are left. Beside that stand
the bytes that the workgroups ask of the L2 caches, and the bytes that must come from memory or go there. The longest of
the three is the prediction. What only the last workgroup of a split sum does is left out, and a launch itself is
charged nothing beyond the start and the end of its workgroups: AMD publishes no figure for it.
Source of the L2's rate, 2,048 bytes a cycle for each XCD: "AMD CDNA 3 Architecture", AMD, white paper, 2023.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cdna.dry_run.driver import dry_run
from cdna.predict.specs import gpu
from cdna.report import KernelReport
from cdna.run.counters import LINE
from cdna.step.state import Recording
from cdna.step.steady import events_of
from cdna.step.timeline import timeline

__all__ = [
    "L2_BYTES",
    "LEFT_OUT",
    "Launched",
    "Prediction",
    "launches_of",
    "makespan",
    "predict_launches",
    "with_memory",
]

#: Bytes a cycle from the L2 of one XCD.
L2_BYTES = 2048
#: What a prediction does not charge.
LEFT_OUT = (
    "compute units in each other's way, the Infinity Cache, lines fetched twice, what only the last workgroup of a "
    "split sum does, a launch and a clock below its peak"
)
_LIMIT = 20_000_000  # steps of a workgroup; a long sum takes millions


@dataclass(frozen=True)
class Launched:
    """One kernel on an MI300X, in the model.

    Attributes:
        kernel: its name.
        workgroups: of the launch.
        resident: workgroups on a compute unit at a time.
        rounds: how often the GPU is filled.
        cycles: until the last workgroup is done, by instructions, waits and units of the compute unit.
    """

    kernel: str
    workgroups: int
    resident: int
    rounds: float
    cycles: int


@dataclass(frozen=True)
class Prediction:
    """The time of a function on an MI300X, by the model of its own kernels.

    Attributes:
        parts: microseconds by what is busy: ``compute units``, ``L2``, ``HBM``.
        launches: the kernels, in their order.
    """

    parts: dict[str, float]
    launches: tuple[Launched, ...]

    @property
    def us(self) -> float:
        """Microseconds: no launch can take less, by this model."""
        return max(self.parts.values())


def with_memory(value: Any) -> Any:
    """Return the argument with zeros where a tensor had no memory."""
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


def launches_of(call: Callable[[], object]) -> list[tuple[Any, tuple[int, int, int], dict[str, Any], KernelReport]]:
    """Return compiled kernel, grid, arguments and report of each launch of ``call``, in which no tensor has memory."""
    found: list[tuple[Any, tuple[int, int, int], dict[str, Any]]] = []

    def keep(compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        found.append((compiled, grid, {n: v for n, v in arguments.items() if compiled.signature[n] != "constexpr"}))

    with dry_run("gfx942", device="meta", on_launch=keep) as run:
        call()
    return [(*f, launch.report) for f, launch in zip(found, run.launches, strict=True)]


def executed(compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> Recording:
    """Return the run of a launch's first workgroup, on zeros."""
    return events_of(compiled, grid, {n: with_memory(v) for n, v in arguments.items()}, 0, _LIMIT)


def predict_launches(call: Callable[[], object], nbytes: int) -> Prediction:
    """Return the prediction for a function, worked out now: from a second to a minute of one core.

    Args:
        call: launches Triton kernels on tensors that it makes on "cuda"; nothing is computed and no GPU is asked.
        nbytes: what must come from memory or go there.

    Raises:
        RunError: a kernel does what the hardware does not allow.
    """
    spec = gpu("MI300X")
    _, mhz = spec.flops["fp32"]
    lines, launches = 0, []
    for compiled, grid, arguments, report in launches_of(call):
        count = math.prod(grid)
        resident = min(max(1, report.occupancy.workgroups_per_cu), math.ceil(count / spec.units))
        run = executed(compiled, grid, arguments)
        rounds = math.ceil(count / (spec.units * resident))
        # In the last round fewer workgroups share a compute unit.
        last = math.ceil((count - (rounds - 1) * spec.units * resident) / spec.units)
        cycles = (rounds - 1) * timeline(run, groups=resident).cycles + timeline(run, groups=last).cycles
        # What a workgroup asks of the L2 if its L1 keeps what it needs again.
        lines += count * len({line for wave in run.events for e in wave for line in e.lines})
        filled = round(count / (spec.units * resident), 2)
        launches.append(Launched(compiled.name, count, resident, filled, round(cycles)))
    parts = {
        "compute units": sum(launched.cycles for launched in launches) / mhz,
        "L2": lines * LINE / (L2_BYTES * spec.dies * mhz),
        "HBM": nbytes / spec.bandwidth_tb_s / 1e6,
    }
    return Prediction(parts, tuple(launches))
