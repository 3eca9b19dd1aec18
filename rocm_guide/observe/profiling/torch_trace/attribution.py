# SPDX-License-Identifier: MIT
"""From a timeline to answers: what ran, for which part of the model, and why the device stood still.

A kernel's event does not say which module asked for it. Three links of the trace lead there: the kernel carries the
correlation id of the runtime call that launched it, that call lies inside a ``record_function`` range of the same
thread, and a backward operator carries the sequence number of the forward operator that it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocm_guide.observe.profiling.torch_trace.slices import kernel_slice, module_place
from rocm_guide.observe.profiling.torch_trace.timeline import NONE, Columns, Timeline

__all__ = []

#: How :func:`~rocm_guide.observe.profiling.torch_trace.recording.mark_modules` names its ranges: prefix, place, path,
#: joined by "::".
MARK = "slice"


def parents(starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Return for each interval the innermost one that encloses it, or -1.
    The intervals nest, as calls on one thread do.

    >>> parents([0, 1, 5, 6], [10, 4, 9, 8])
    [-1, 0, 0, 2]
    """
    found = [NONE] * len(starts)
    stack: list[int] = []
    for i in sorted(range(len(starts)), key=lambda i: (starts[i], -ends[i])):
        while stack and ends[stack[-1]] <= starts[i]:
            stack.pop()
        if stack:
            found[i] = stack[-1]
        stack.append(i)
    return found


def innermost(starts: Sequence[float], ends: Sequence[float], times: Sequence[float]) -> list[int]:
    """Return for each time the innermost interval that contains it, or -1.

    >>> innermost([0, 1], [10, 4], [2, 7, 11])
    [1, 0, -1]
    """
    found = [NONE] * len(times)
    stack: list[int] = []
    order = sorted(range(len(starts)), key=lambda i: (starts[i], -ends[i]))
    at = 0
    for q in sorted(range(len(times)), key=times.__getitem__):
        now = times[q]
        while at < len(order) and starts[order[at]] <= now:
            i = order[at]
            while stack and ends[stack[-1]] <= starts[i]:
                stack.pop()
            stack.append(i)
            at += 1
        while stack and ends[stack[-1]] <= now:
            stack.pop()
        if stack:
            found[q] = stack[-1]
    return found


@dataclass(frozen=True)
class GpuWork:
    """One kernel, copy or (in a CPU trace) operator: its name, slice, start and time of its own in microseconds.

    ``launched`` is when the CPU began to ask for it, NaN when the trace does not say.
    """

    name: str
    slice: str
    start: float
    duration: float
    launched: float


@dataclass(frozen=True)
class Gap:
    """A stretch in which the device did nothing.

    ``cause`` is "launch" when the CPU had not yet asked for the kernel behind the gap (Python or the driver is the
    bottleneck), "wait" when it had (a copy, another stream, or synchronisation), "host" in a CPU trace.
    """

    start: float
    duration: float
    cause: str
    next_name: str


def _by_lane(columns: Columns) -> dict[int, list[int]]:
    lanes: dict[int, list[int]] = {}
    for i, lane in enumerate(columns.lane):
        lanes.setdefault(lane, []).append(i)
    return lanes


def _ends(columns: Columns, chosen: list[int]) -> tuple[list[float], list[float]]:
    starts = [columns.start[i] for i in chosen]
    return starts, [columns.start[i] + columns.duration[i] for i in chosen]


class _Places:
    """The place in the model of any moment on any thread."""

    def __init__(self, line: Timeline) -> None:
        self.lanes: dict[int, tuple[list[float], list[float], list[str]]] = {}
        for lane, chosen in _by_lane(line.marks).items():
            starts, ends = _ends(line.marks, chosen)
            around = parents(starts, ends)
            places = [""] * len(chosen)
            for i in sorted(range(len(chosen)), key=lambda i: (starts[i], -ends[i])):
                outer = places[around[i]] if around[i] != NONE else ""
                places[i] = self._place(line.names[line.marks.name[chosen[i]]], outer)
            self.lanes[lane] = starts, ends, places

    @staticmethod
    def _place(name: str, outer: str) -> str:
        if name.startswith(f"{MARK}::"):
            return name.split("::")[1]
        if name.startswith("nn.Module: "):
            cls = name.removeprefix("nn.Module: ").rpartition("_")[0]
            return module_place("", cls, outer or "other")
        return outer

    def at(self, lane: int, times: list[float]) -> list[str]:
        if lane not in self.lanes:
            return [""] * len(times)
        starts, ends, places = self.lanes[lane]
        return [places[i] if i != NONE else "" for i in innermost(starts, ends, times)]


def _place_of_moments(line: Timeline, lanes: Sequence[int], times: Sequence[float]) -> list[str]:
    """Return where in the model the CPU was at each (thread, time),
    through the forward operator if it was in the backward.
    """
    marks = _Places(line)
    forward: dict[int, str] = {}
    backward: dict[int, tuple[list[float], list[float], list[int]]] = {}
    for lane, chosen in _by_lane(line.ops).items():
        numbered = [i for i in chosen if line.ops.key[i] >= 0]
        for i, place in zip(numbered, marks.at(lane, [line.ops.start[i] for i in numbered]), strict=True):
            if place:
                forward[line.ops.key[i]] = place  # the last operator with a number is the one that made the node
        answers = [i for i in chosen if line.ops.key[i] < NONE]
        if answers:
            backward[lane] = (*_ends(line.ops, answers), [-2 - line.ops.key[i] for i in answers])
    places = [""] * len(times)
    queries: dict[int, list[int]] = {}
    for q, lane in enumerate(lanes):
        queries.setdefault(lane, []).append(q)
    for lane, chosen in queries.items():
        moments = [times[q] for q in chosen]
        for q, place in zip(chosen, marks.at(lane, moments), strict=True):
            places[q] = place
        if lane in backward:
            starts, ends, numbers = backward[lane]
            for q, i in zip(chosen, innermost(starts, ends, moments), strict=True):
                if not places[q] and i != NONE:
                    places[q] = forward.get(numbers[i], "")
    return places


def device_work(line: Timeline) -> list[GpuWork]:
    """Return everything that the device did, in order of its start, each with its slice.

    With a GPU in the trace these are its kernels, copies and fills; without one, the CPU operators with the time that
    each spends itself (without the operators it calls).
    """
    if len(line.device):
        columns = line.device
        own = list(columns.duration)
        call = {key: i for i, key in enumerate(line.launches.key)}
        calls = [call.get(key, NONE) if key != NONE else NONE for key in columns.key]
        launched = [line.launches.start[i] if i != NONE else float("nan") for i in calls]
        known = [i for i, c in enumerate(calls) if c != NONE]
        found = _place_of_moments(line, [line.launches.lane[calls[i]] for i in known], [launched[i] for i in known])
        places = [""] * len(columns)
        for i, place in zip(known, found, strict=True):
            places[i] = place
    else:
        columns = line.ops
        own = list(columns.duration)
        for chosen in _by_lane(columns).values():
            for i, above in zip(chosen, parents(*_ends(columns, chosen)), strict=True):
                if above != NONE:
                    own[chosen[above]] -= columns.duration[i]
        own = [max(0.0, t) for t in own]
        launched = list(columns.start)
        places = _place_of_moments(line, columns.lane, columns.start)
    slices: dict[tuple[int, str], str] = {}
    for key in zip(columns.name, places, strict=True):
        if key not in slices:
            slices[key] = kernel_slice(line.names[key[0]], key[1])
    work = [
        GpuWork(line.names[n], slices[n, p], columns.start[i], own[i], launched[i])
        for i, (n, p) in enumerate(zip(columns.name, places, strict=True))
    ]
    work.sort(key=lambda w: w.start)
    return work


def idle_gaps(line: Timeline) -> tuple[float, float, list[Gap]]:
    """Return the span of the device's work, its busy time over all streams together, and the gaps between.

    Returns:
        (span, busy, gaps), microseconds; gaps in order of time.
    """
    columns = line.device if len(line.device) else line.ops
    host = not len(line.device)
    asked = dict(zip(line.launches.key, line.launches.start, strict=True))
    order = sorted(range(len(columns)), key=columns.start.__getitem__)
    gaps: list[Gap] = []
    first = until = columns.start[order[0]]
    busy = 0.0
    for i in order:
        start, end = columns.start[i], columns.start[i] + columns.duration[i]
        if start > until:
            key = columns.key[i]
            cause = "host" if host else ("launch" if key != NONE and asked.get(key, float("-inf")) >= until else "wait")
            gaps.append(Gap(until, start - until, cause, line.names[columns.name[i]]))
            until = start
        if end > until:
            busy += end - until
            until = end
    return until - first, busy, gaps
