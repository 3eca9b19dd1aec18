# SPDX-License-Identifier: MIT
"""The few numbers per event that a summary needs, kept in columns of machine numbers.

A trace of 500 MB has over a million events. As Python objects they would take gigabytes; as columns (an event name
is stored once, an event is five numbers, 32 bytes) they take tens of megabytes. What is made of them later takes about
as much again, so that ``MOST_EVENTS`` and ``MOST_TEXT`` bound the memory of any trace.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rocm_guide.common.base import shown
from rocm_guide.observe.profiling.torch_trace.events import TraceError, iter_events

__all__ = []

#: Trace categories of work that runs on the device.
DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})

#: Categories that say nothing of where time went: Python's frames, the profiler's own work, marks of waiting for a GPU
#: whose waiting the gaps show. Any other one that is not worked on is named in the summary.
BESIDE = frozenset({"python_function", "Trace", "overhead", "cuda_sync", "cuda_event", "cpu_instant_event"})
#: Names of unknown categories that are told apart.
MOST_UNKNOWN = 20

#: Calls, ranges, kernels and operators that are worked on, and the characters of all names together. A trace beyond
#: either is refused. Of operators that a GPU's trace does not need (:func:`_needed`), PASSED_BY times as many are read.
MOST_EVENTS, MOST_TEXT, PASSED_BY = 6_000_000, 1 << 26, 4

#: An id that no event has.
NONE = -1


class Columns:
    """Events as parallel columns: name (an index), start and duration in microseconds, thread or stream, one id."""

    def __init__(self) -> None:
        self.name, self.lane, self.key = array("i"), array("i"), array("q")
        self.start, self.duration = array("d"), array("d")

    def add(self, name: int, start: float, duration: float, lane: int, key: int = NONE) -> None:
        self.name.append(name)
        self.start.append(start)
        self.duration.append(duration)
        self.lane.append(lane)
        self.key.append(key)

    def __len__(self) -> int:
        return len(self.name)


def _too_large(name: str, what: str) -> TraceError:
    return TraceError(f"{name}: more than {what}; record fewer steps: schedule(wait=1, warmup=1, active=3)")


@dataclass
class Timeline:
    """The part of a trace that :func:`load_timeline` keeps.

    Attributes:
        names: every event name once; the columns hold indices into it.
        device: kernels, copies and fills; lane = which of ``devices``, key = correlation id of the launching call.
        launches: runtime calls by correlation id; lane = thread, key = correlation id.
        ops: CPU operators; lane = thread, key = autograd sequence number, negative below NONE for a backward operator.
        marks: ``record_function`` ranges and traced ``nn.Module`` calls; lane = thread.
        gpu_steps: the GPU's own step marks: where the kernels of each ``ProfilerStep`` lie on the device.
        steps: how many ``ProfilerStep`` ranges there are; one that several processes went through is one.
        devices: the GPUs of the trace, by the number that it gives them.
        device_name: the accelerator, as the trace gives it ("" when it does not).
        skipped: events left out because their times are missing or are not numbers.
        unknown: category -> events left out because it is not known here (another maker's accelerator, counters).
    """

    names: list[str] = field(default_factory=list)
    device: Columns = field(default_factory=Columns)
    launches: Columns = field(default_factory=Columns)
    ops: Columns = field(default_factory=Columns)
    marks: Columns = field(default_factory=Columns)
    gpu_steps: Columns = field(default_factory=Columns)
    steps: int = 0
    devices: list[str] = field(default_factory=list)
    device_name: str = ""
    skipped: int = 0
    unknown: dict[str, int] = field(default_factory=dict)


def _integer(value: Any) -> int:
    """Return an id as a 64-bit integer: ids are numbers in most traces, strings in some."""
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return NONE


def _lane(value: Any, lanes: dict[str, int]) -> int:
    """Return a small number for a thread or stream, whatever the trace calls it."""
    return lanes.setdefault(str(value), len(lanes))


def timeline_of(events: Iterable[dict[str, Any]], trace: str = "trace") -> Timeline:
    """Sort events in the Trace Event Format into columns; ``trace`` is what to call them in an error.

    Raises:
        TraceError: it has more events or longer names than this reads.

    Source: the categories and arguments are those of Kineto's output_json.cpp
    (https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp).

    >>> t = timeline_of([
    ...     {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 3, "args": {"stream": 7, "correlation": 1}},
    ...     {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2, "tid": 4,
    ...      "args": {"correlation": 1}},
    ... ])
    >>> t.names[t.device.name[0]], t.device.key[0] == t.launches.key[0]
    ('gemm', True)
    """
    line = Timeline()
    index: dict[str, int] = {}
    lanes: dict[str, int] = {}
    gpus: dict[str, int] = {}
    steps: set[str] = set()
    text, kept, passed = 0, 0, 0
    for event in events:
        if event.get("ph") != "X":
            continue
        category, name, args = event.get("cat"), event.get("name"), event.get("args")
        if not isinstance(category, str):
            continue
        began: Any = event.get("ts")
        lasted: Any = event.get("dur")
        if type(began) not in (float, int) or type(lasted) not in (float, int) or not isinstance(name, str):
            line.skipped += 1
            continue
        try:
            start, duration = float(began), float(lasted)
        except OverflowError:
            start = math.inf
        if not (math.isfinite(start) and math.isfinite(duration)) or duration < 0 or abs(start) > 1e18:
            line.skipped += 1
            continue
        if not isinstance(args, dict):
            args = {}
        at = index.get(name)
        if at is None:
            text += len(name)
            if text > MOST_TEXT:
                raise _too_large(trace, f"{MOST_TEXT:,} characters of names")
            at = index[name] = len(line.names)
            line.names.append(name if name.isprintable() else shown(name, len(name)))
        plain = category == "cpu_op" and "Sequence number" not in args
        kept, passed = kept + (not plain), passed + plain
        if kept > MOST_EVENTS or passed > MOST_EVENTS * PASSED_BY:
            raise _too_large(trace, f"{MOST_EVENTS * (1 if kept > MOST_EVENTS else PASSED_BY):,} events")
        if category in DEVICE_WORK:
            # The process id of a kernel is its GPU's number, unless traces of several processes were joined.
            gpu = _lane((event.get("pid"), args.get("device")), gpus)
            if gpu == len(line.devices):
                line.devices.append(shown(args.get("device", event.get("pid", "")), 20))
            line.device.add(at, start, duration, gpu, _integer(args.get("correlation")))
        elif category == "cpu_op":
            sequence = _integer(args.get("Sequence number"))
            if sequence != NONE and _integer(args.get("Fwd thread id")) > 0:
                sequence = -2 - sequence  # a backward operator: it carries the number of the forward one it answers
            line.ops.add(at, start, duration, _lane(event.get("tid"), lanes), sequence)
        elif category == "user_annotation" or (category == "python_function" and name.startswith("nn.Module: ")):
            if name.startswith("ProfilerStep"):
                steps.add(name)
            line.marks.add(at, start, duration, _lane(event.get("tid"), lanes))
        elif category == "gpu_user_annotation":
            if name.startswith("ProfilerStep"):
                line.gpu_steps.add(at, start, duration, _lane(args.get("stream"), lanes))
        elif category.endswith(("_runtime", "_driver", "Runtime")):
            correlation = _integer(args.get("correlation"))
            if correlation != NONE:
                line.launches.add(at, start, duration, _lane(event.get("tid"), lanes), correlation)
        elif category not in BESIDE:
            known = category in line.unknown or len(line.unknown) < MOST_UNKNOWN
            kind = shown(category, 40) if known else "others"
            line.unknown[kind] = line.unknown.get(kind, 0) + 1
    line.steps = len(steps)
    if len(line.device):
        line.ops = _needed(line.ops)
        line.steps = line.steps or len({line.gpu_steps.name[i] for i in range(len(line.gpu_steps))})
    elif kept + passed > MOST_EVENTS:
        raise _too_large(trace, f"{MOST_EVENTS:,} events")
    return line


def _needed(ops: Columns) -> Columns:
    """Return the operators that lead from a kernel to its module: those with a number that joins forward and backward.

    In a CPU's trace the operators are the work itself, and all are kept.
    """
    found = Columns()
    for i, key in enumerate(ops.key):
        if key != NONE:
            found.add(ops.name[i], ops.start[i], ops.duration[i], ops.lane[i], key)
    return found


def load_timeline(path: str | os.PathLike[str]) -> Timeline:
    """Stream a trace file into a :class:`Timeline`. Gzipped files are read as they are.

    Raises:
        TraceError: the file is missing, damaged, too large, or holds no event that took time.
    """
    header: dict[str, Any] = {}
    line = timeline_of(iter_events(path, header), str(path))
    if not len(line.device) and not len(line.ops):
        raise TraceError(f"{path}: no operator or kernel in it; record with torch.profiler around at least one step")
    properties = header.get("deviceProperties")
    if isinstance(properties, list):
        names = [str(p["name"]) for p in properties if isinstance(p, dict) and isinstance(p.get("name"), str)]
        line.device_name = names[0] if names else ""
    return line
