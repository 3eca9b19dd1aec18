# SPDX-License-Identifier: MIT
"""From a timeline to answers: what ran, for which part of the model, and why the device stood still.

A kernel's event does not say which module asked for it. Three links of the trace lead there: the kernel carries the
correlation id of the runtime call that launched it, that call lies inside a ``record_function`` range of the same
thread, and a backward operator carries the sequence number of the forward operator that it answers.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocm_guide.observe.profiling.torch_trace.slices import kernel_slice, module_place
from rocm_guide.observe.profiling.torch_trace.timeline import NONE, Columns, Timeline

__all__ = []

#: How :func:`~rocm_guide.observe.profiling.torch_trace.recording.mark_modules` names its ranges: prefix, place, path,
#: joined by "::".
MARK = "slice"
#: Idle stretches that are kept.
MOST_GAPS = 10


def in_order(keys: Sequence[float], last: Sequence[float] | None = None) -> Sequence[int]:
    """Return the indices that sort ``keys``, equal ones by falling ``last``, else as they stand.

    A trace is mostly in order already, and a sorted list of Python's numbers takes ten times the bytes of a column.

    >>> list(in_order([3, 1, 1], [0, 5, 9]))
    [2, 1, 0]
    """
    if last is None:
        if all(a <= b for a, b in pairwise(keys)):
            return range(len(keys))
        order = sorted(range(len(keys)), key=keys.__getitem__)
    else:
        if all(a < b or (a == b and x >= y) for (a, x), (b, y) in pairwise(zip(keys, last, strict=True))):
            return range(len(keys))
        # Twice, because keys that are pairs would be objects of their own.
        order = sorted(range(len(keys)), key=last.__getitem__, reverse=True)
        order.sort(key=keys.__getitem__)
    return array("q", order)


def parents(starts: Sequence[float], ends: Sequence[float]) -> array[int]:
    """Return for each interval the innermost one that encloses it, or -1; they nest, as calls on one thread do.

    >>> list(parents([0, 1, 5, 6], [10, 4, 9, 8]))
    [-1, 0, 0, 2]
    """
    found = array("q", [NONE]) * len(starts)
    stack: list[int] = []
    for i in in_order(starts, ends):
        while stack and ends[stack[-1]] <= starts[i]:
            stack.pop()
        if stack:
            found[i] = stack[-1]
        stack.append(i)
    return found


def innermost(starts: Sequence[float], ends: Sequence[float], times: Sequence[float]) -> array[int]:
    """Return for each time the innermost interval that contains it, or -1.

    >>> list(innermost([0, 1], [10, 4], [2, 7, 11]))
    [1, 0, -1]
    """
    found = array("q", [NONE]) * len(times)
    stack: list[int] = []
    order = in_order(starts, ends)
    at = 0
    for q in in_order(times):
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


class _LastOf:
    """Finds by its number the last entry that has it, as a dictionary would, in the bytes of a column."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.order = in_order(numbers)
        self.sorted = array("q", (numbers[i] for i in self.order))

    def __call__(self, number: int) -> int:
        """Return its index, or -1."""
        at = bisect_right(self.sorted, number) - 1
        return self.order[at] if at >= 0 and self.sorted[at] == number else NONE


@dataclass(frozen=True, slots=True)
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


def _by_lane(columns: Columns) -> dict[int, array[int]]:
    lanes: dict[int, array[int]] = {}
    for i, lane in enumerate(columns.lane):
        lanes.setdefault(lane, array("q")).append(i)
    return lanes


def _ends(columns: Columns, chosen: Sequence[int]) -> tuple[array[float], array[float]]:
    starts = array("d", (columns.start[i] for i in chosen))
    return starts, array("d", (columns.start[i] + columns.duration[i] for i in chosen))


class _Places:
    """The place in the model of any moment on any thread, as an index into ``known``; 0 is no place."""

    def __init__(self, line: Timeline) -> None:
        self.known = [""]
        self.lanes: dict[int, tuple[array[float], array[float], array[int]]] = {}
        codes: dict[str, int] = {"": 0}
        seen: dict[tuple[int, int], int] = {}
        for lane, chosen in _by_lane(line.marks).items():
            starts, ends = _ends(line.marks, chosen)
            around = parents(starts, ends)
            places = array("i", [0]) * len(chosen)
            for i in in_order(starts, ends):
                key = line.marks.name[chosen[i]], places[around[i]] if around[i] != NONE else 0
                if key not in seen:
                    place = self._place(line.names[key[0]], self.known[key[1]])
                    if place not in codes:
                        codes[place] = len(codes)
                        self.known.append(place)
                    seen[key] = codes[place]
                places[i] = seen[key]
            self.lanes[lane] = starts, ends, places

    @staticmethod
    def _place(name: str, outer: str) -> str:
        if name.startswith(f"{MARK}::"):
            return name.split("::")[1]
        if name.startswith("nn.Module: "):
            cls = name.removeprefix("nn.Module: ").rpartition("_")[0]
            return module_place("", cls, outer)  # "" for a whole model: its frame says nothing of a kernel
        return outer

    def at(self, lane: int, times: Sequence[float]) -> array[int]:
        if lane not in self.lanes:
            return array("i", [0]) * len(times)
        starts, ends, places = self.lanes[lane]
        return array("i", (places[i] if i != NONE else 0 for i in innermost(starts, ends, times)))


def _place_of_moments(line: Timeline, lanes: Sequence[int], times: Sequence[float]) -> tuple[array[int], list[str]]:
    """Return where in the model the CPU was at each (thread, time), by the forward operator in a backward pass,
    as indices into the list behind them."""
    marks = _Places(line)
    numbers, made = array("q"), array("i")
    backward: dict[int, tuple[array[float], array[float], array[int]]] = {}
    for lane, chosen in _by_lane(line.ops).items():
        numbered = array("q", (i for i in chosen if line.ops.key[i] >= 0))
        for i, place in zip(numbered, marks.at(lane, _ends(line.ops, numbered)[0]), strict=True):
            if place:
                numbers.append(line.ops.key[i])
                made.append(place)
        answers = array("q", (i for i in chosen if line.ops.key[i] < NONE))
        if answers:
            backward[lane] = (*_ends(line.ops, answers), array("q", (-2 - line.ops.key[i] for i in answers)))
    forward = _LastOf(numbers)  # the last operator with a number is the one that made the node
    places = array("i", [0]) * len(times)
    queries: dict[int, array[int]] = {}
    for q, lane in enumerate(lanes):
        queries.setdefault(lane, array("q")).append(q)
    for lane, chosen in queries.items():
        moments = array("d", (times[q] for q in chosen))
        for q, place in zip(chosen, marks.at(lane, moments), strict=True):
            places[q] = place
        if lane in backward:
            starts, ends, answered = backward[lane]
            for q, i in zip(chosen, innermost(starts, ends, moments), strict=True):
                if not places[q] and i != NONE and (found := forward(answered[i])) != NONE:
                    places[q] = made[found]
    return places, marks.known


def outside_steps(line: Timeline) -> bytearray:
    """Return 1 for each kernel that belongs to no recorded step: it ran where the GPU's own step marks are not, and
    nothing in the trace launched it (it was launched before the recording began).

    Without such marks, or if no kernel would be left, nothing is outside.
    """
    found = bytearray(len(line.device))
    if not len(line.gpu_steps):
        return found
    call = _LastOf(line.launches.key)
    starts, ends = _ends(line.gpu_steps, range(len(line.gpu_steps)))
    first, last = min(starts), max(ends)
    for i, (start, key) in enumerate(zip(line.device.start, line.device.key, strict=True)):
        if not first <= start < last and (key == NONE or call(key) == NONE):
            found[i] = 1
    return found if 0 in found else bytearray(len(line.device))


def iter_device_work(line: Timeline) -> Iterator[GpuWork]:
    """Yield everything that the device did, in order of its start, each with its slice.

    With a GPU in the trace these are its kernels, copies and fills (those of :func:`outside_steps` are left out);
    without one, the CPU operators with the time that
    each spends itself (without the operators it calls).
    """
    if len(line.device):
        columns = line.device
        own = columns.duration
        call = _LastOf(line.launches.key)
        calls = array("q", (call(key) if key != NONE else NONE for key in columns.key))
        launched = array("d", (line.launches.start[i] if i != NONE else math.nan for i in calls))
        outside = outside_steps(line)
        known = array("q", (i for i, c in enumerate(calls) if c != NONE))
        lanes = array("q", (line.launches.lane[calls[i]] for i in known))
        found, names = _place_of_moments(line, lanes, array("d", (launched[i] for i in known)))
        places = array("i", [0]) * len(columns)
        for i, place in zip(known, found, strict=True):
            places[i] = place
    else:
        columns = line.ops
        own = array("d", columns.duration)
        for chosen in _by_lane(columns).values():
            for i, above in zip(chosen, parents(*_ends(columns, chosen)), strict=True):
                if above != NONE:
                    own[chosen[above]] -= columns.duration[i]
        launched = columns.start
        places, names = _place_of_moments(line, columns.lane, columns.start)
        outside = bytearray(len(columns))
    slices: dict[tuple[int, int], str] = {}
    for i in in_order(columns.start):
        if outside[i]:
            continue
        key = columns.name[i], places[i]
        if key not in slices:
            slices[key] = kernel_slice(line.names[key[0]], names[key[1]])
        yield GpuWork(line.names[key[0]], slices[key], columns.start[i], max(0.0, own[i]), launched[i])


def each_device(line: Timeline) -> list[tuple[str, int, float, float]]:
    """Return name, kernels, busy and work time in microseconds of each GPU of a trace, without :func:`outside_steps`.

    Joined over all of them, two GPUs that wait for each other in turn would seem never to wait.
    """
    found = []
    outside = outside_steps(line)
    for lane, chosen in _by_lane(line.device).items():
        own = array("q", (i for i in chosen if not outside[i]))
        starts, ends = _ends(line.device, own)
        busy, until = 0.0, -math.inf
        for i in in_order(starts):
            busy += max(0.0, ends[i] - max(starts[i], until))
            until = max(until, ends[i])
        found.append((line.devices[lane], len(own), busy, sum(line.device.duration[i] for i in own)))
    return sorted(found)


def idle_gaps(line: Timeline) -> tuple[float, float, float, list[Gap]]:
    """Return the span of the device's work, its busy time over all streams together, and the gaps between.

    Returns:
        (span, busy, launch, gaps), microseconds; launch is the sum of all gaps with that cause, and gaps are the ten
        longest, the longest first.
    """
    columns = line.device if len(line.device) else line.ops
    host = not len(line.device)
    asked = _LastOf(line.launches.key)
    outside = bytearray(len(columns)) if host else outside_steps(line)
    order = array("q", (i for i in in_order(columns.start) if not outside[i]))
    longest: list[tuple[float, int, Gap]] = []
    first = until = columns.start[order[0]]
    busy = launch = 0.0
    for n, i in enumerate(order):
        start, end = columns.start[i], columns.start[i] + columns.duration[i]
        if start > until:
            call = asked(columns.key[i]) if columns.key[i] != NONE else NONE
            late = call != NONE and line.launches.start[call] >= until
            cause = "host" if host else "launch" if late else "wait"
            launch += (start - until) if cause == "launch" else 0.0
            gap = Gap(until, start - until, cause, line.names[columns.name[i]])
            heapq.heappush(longest, (start - until, -n, gap))
            if len(longest) > MOST_GAPS:
                heapq.heappop(longest)
            until = start
        if end > until:
            busy += end - until
            until = end
    return until - first, busy, launch, [gap for _, _, gap in sorted(longest, reverse=True)]
