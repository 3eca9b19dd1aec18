# SPDX-License-Identifier: MIT
"""Summarise a torch.profiler trace, compare two of them.

The first question to a slow model is never "which kernel is slow" but "what does the time consist of": which slices,
how much standing still, and whether the CPU or the device is the one that waits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cdna.checks import Check
from rocm_guide.common.base import GuideError
from rocm_guide.observe.profiling.torch_trace.attribution import (
    Gap,
    each_device,
    idle_gaps,
    iter_device_work,
    outside_steps,
)
from rocm_guide.observe.profiling.torch_trace.slices import SLICES
from rocm_guide.observe.profiling.torch_trace.timeline import load_timeline

__all__ = ["TraceSummary", "check_kernels", "compare_traces", "replaced_kernels", "summarize"]


@dataclass(frozen=True)
class KernelTime:
    """All launches of one kernel together: times in microseconds, share of the device's work."""

    name: str
    slice: str
    count: int
    total_us: float
    shortest_us: float
    longest_us: float
    share: float


@dataclass(frozen=True)
class DeviceTime:
    """One GPU of a trace: its number there, kernels, and times in microseconds as :class:`TraceSummary` has them."""

    name: str
    launches: int
    busy_us: float
    work_us: float


@dataclass(frozen=True)
class TraceSummary:
    """The result of :func:`summarize`. All times are microseconds.

    Attributes:
        file: the trace's name.
        device: "gpu" or "cpu"; ``device_name`` is the GPU that was there, as the trace gives it, used or not.
        steps: ProfilerStep ranges in the trace; divide by it to get times of one step.
        span_us: from the first start of device work to the last end.
        busy_us: time in which at least one stream of any GPU worked; ``idle_us`` is the rest of the span.
        launch_idle_us: the part of the idle time in which the CPU had not yet asked for the next kernel.
        work_us: the sum over all kernels; more than ``busy_us`` when streams overlap.
        kernels: by total time, longest first.
        slices: time by slice, only those that occur, in the order of ``SLICES``.
        gaps: the ten longest.
        skipped: events without usable times.
        outside, outside_us: kernels that belong to no recorded step, and their time; in none of the figures above.
        devices: each GPU by itself; one, or several of one process, or of processes whose traces were joined.
        unknown: category -> events of a kind that is not read, in none of the figures above.
    """

    file: str
    device: str
    device_name: str
    steps: int
    span_us: float
    busy_us: float
    idle_us: float
    launch_idle_us: float
    work_us: float
    launches: int
    kernels: tuple[KernelTime, ...]
    slices: dict[str, float]
    gaps: tuple[Gap, ...]
    skipped: int
    outside: int = 0
    outside_us: float = 0.0
    devices: tuple[DeviceTime, ...] = ()
    unknown: dict[str, int] = field(default_factory=dict)

    @property
    def idle_share(self) -> float:
        """Idle time / span, 0 to 1."""
        return self.idle_us / self.span_us if self.span_us else 0.0

    @property
    def launch_bound(self) -> bool:
        """Return whether the device mostly waits for the CPU: idle a quarter of the span or more, mostly unasked."""
        return self.device == "gpu" and self.idle_share >= 0.25 and self.launch_idle_us > self.idle_us / 2

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return {**asdict(self), "idle_share": self.idle_share, "launch_bound": self.launch_bound}


def summarize(path: str | os.PathLike[str]) -> TraceSummary:
    """Read a torch.profiler trace (also gzipped) and say where the time went.

    Raises:
        TraceError: the file is missing, damaged or empty.

    >>> import json, tempfile
    >>> events = [
    ...     {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 0, "dur": 4, "tid": 1,
    ...      "args": {"correlation": 1}},
    ...     {"ph": "X", "cat": "kernel", "name": "Cijk_A", "ts": 10, "dur": 30, "args": {"stream": 0,
    ...      "correlation": 1}},
    ...     {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 55, "dur": 4, "tid": 1,
    ...      "args": {"correlation": 2}},
    ...     {"ph": "X", "cat": "kernel", "name": "rms_norm", "ts": 60, "dur": 40, "args": {"stream": 0,
    ...      "correlation": 2}}]
    >>> with tempfile.TemporaryDirectory() as d:
    ...     file = Path(d) / "t.json"
    ...     _ = file.write_text(json.dumps({"traceEvents": events}))
    ...     s = summarize(file)
    >>> s.span_us, s.busy_us, s.idle_us, s.launch_idle_us
    (90.0, 70.0, 20.0, 20.0)
    >>> s.slices
    {'norms': 40.0, 'GEMMs, place unknown': 30.0}
    """
    line = load_timeline(path)
    span, busy, launch, gaps = idle_gaps(line)
    outside = outside_steps(line)
    total, launches = 0.0, 0
    rows: dict[tuple[str, str], list[float]] = {}
    slices: dict[str, float] = {}
    for w in iter_device_work(line):
        total += w.duration
        launches += 1
        slices[w.slice] = slices.get(w.slice, 0.0) + w.duration
        row = rows.setdefault((w.name, w.slice), [0, 0.0, float("inf"), 0.0])
        row[0] += 1
        row[1] += w.duration
        row[2] = min(row[2], w.duration)
        row[3] = max(row[3], w.duration)
    kernels = [
        KernelTime(name, part, int(r[0]), r[1], r[2], r[3], r[1] / total if total else 0.0)
        for (name, part), r in rows.items()
    ]
    return TraceSummary(
        file=Path(path).name,
        device="gpu" if len(line.device) else "cpu",
        device_name=line.device_name,
        steps=line.steps,
        span_us=span,
        busy_us=busy,
        idle_us=span - busy,
        launch_idle_us=launch,
        work_us=total,
        launches=launches,
        kernels=tuple(sorted(kernels, key=lambda k: (-k.total_us, k.name))),
        slices={name: slices[name] for name in SLICES if name in slices},
        gaps=tuple(gaps),
        skipped=line.skipped,
        outside=sum(outside),
        outside_us=sum(us for us, out in zip(line.device.duration, outside, strict=True) if out),
        devices=tuple(DeviceTime(*found) for found in each_device(line)),
        unknown=line.unknown,
    )


@dataclass(frozen=True)
class Change:
    """One row of :func:`compare_traces`: microseconds per step in A and in B."""

    name: str
    a_us: float
    b_us: float

    @property
    def saved_us(self) -> float:
        """Return how much less B takes; negative when it takes more."""
        return self.a_us - self.b_us


def compare_traces(a: TraceSummary, b: TraceSummary, *, by: str = "slice") -> list[Change]:
    """Compare profile A with profile B, per step, the largest difference first.

    Args:
        a, b: two summaries. A trace without step ranges counts as one step.
        by: "slice", "kernel", or "total" (span, busy, idle, waiting for launches).

    Raises:
        GuideError: ``by`` is none of the three, or one trace is of a GPU and the other of a CPU.

    >>> def summary(us):
    ...     return TraceSummary("t", "gpu", "", 2, us, us, 0, 0, us, 1, (), {"norms": us}, (), 0)
    >>> compare_traces(summary(80.0), summary(20.0))
    [Change(name='norms', a_us=40.0, b_us=10.0)]
    """
    if a.device != b.device:
        raise GuideError(f"{a.file} is a {a.device} trace, {b.file} a {b.device} trace; compare two of the same kind")
    tables: list[dict[str, float]] = []
    for s in (a, b):
        if by == "slice":
            table = dict(s.slices)
        elif by == "kernel":
            table = {}
            for k in s.kernels:
                table[k.name] = table.get(k.name, 0.0) + k.total_us
        elif by == "total":
            table = {"span": s.span_us, "busy": s.busy_us, "idle": s.idle_us}
            table["idle, waiting for a launch"] = s.launch_idle_us
        else:
            raise GuideError(f"by={by!r}: choose slice, kernel or total")
        tables.append({name: us / max(1, s.steps) for name, us in table.items()})
    rows = [Change(n, tables[0].get(n, 0.0), tables[1].get(n, 0.0)) for n in {**tables[0], **tables[1]}]
    return sorted(rows, key=lambda r: (-abs(r.saved_us), r.name))


#: What the most common fast path is called in a trace, on ROCm, CUDA and CPU.
FUSED = {"fused attention": r"flash|fmha|attn_fwd|_attention_for_cpu|efficient_attention|FmhaFwd|paged_attention"}


@dataclass(frozen=True)
class KernelCheck:
    """The check that a kind of kernel ran. ``found``: the names that match; ``instead``: the longest of the slice."""

    what: str
    used: bool
    found: tuple[str, ...]
    instead: tuple[str, ...]

    def __str__(self) -> str:
        if self.used:
            return str(Check("OK", f"{self.what}:", self.found[0][:80]))
        instead = ", ".join(n[:50] for n in self.instead) or "nothing like it"
        return str(Check("WARN", f"{self.what}:", f"not used; instead {instead}"))


def check_kernels(
    summary: TraceSummary, expected: Mapping[str, str] = FUSED, *, within: str = "attention"
) -> list[KernelCheck]:
    """Look for the kernels that should have run.

    Args:
        expected: name -> regular expression; by default fused attention, whose fallback is silent.
        within: the slice whose longest kernels are shown when one is missing.

    Raises:
        GuideError: an expression that does not compile.

    >>> def summary(*names):
    ...     rows = tuple(KernelTime(n, "attention", 1, 5.0, 5.0, 5.0, 0.5) for n in names)
    ...     return TraceSummary("t", "cpu", "", 1, 10, 10, 0, 0, 10, 2, rows, {}, (), 0)
    >>> print(check_kernels(summary("aten::bmm", "aten::_softmax"))[0])
    [WARN] fused attention: not used; instead aten::bmm, aten::_softmax
    """
    rows = []
    for what, pattern in expected.items():
        try:
            search = re.compile(pattern, re.I).search
        except re.error as e:
            raise GuideError(f"{what}: {pattern!r} is no regular expression ({e})") from e
        found = tuple(k.name for k in summary.kernels if search(k.name))
        instead = () if found else tuple(k.name for k in summary.kernels if k.slice == within)[:3]
        rows.append(KernelCheck(what, bool(found), found, instead))
    return rows


def replaced_kernels(a: TraceSummary, b: TraceSummary) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return by slice the kernels that only A launches and those that only B launches; equal slices are left out.

    A new library, another dtype or a missing environment variable shows up here before it shows up in the time.

    >>> def summary(name):
    ...     row = KernelTime(name, "attention", 1, 5.0, 5.0, 5.0, 1.0)
    ...     return TraceSummary("t", "gpu", "", 1, 5, 5, 0, 0, 5, 1, (row,), {}, (), 0)
    >>> replaced_kernels(summary("flash_fwd"), summary("softmax"))
    {'attention': (('flash_fwd',), ('softmax',))}
    """
    tables: list[dict[str, set[str]]] = []
    for summary in (a, b):
        table: dict[str, set[str]] = {}
        for k in summary.kernels:
            table.setdefault(k.slice, set()).add(k.name)
        tables.append(table)
    found = {}
    for part in {**tables[0], **tables[1]}:
        left, right = tables[0].get(part, set()), tables[1].get(part, set())
        if left != right:
            found[part] = tuple(sorted(left - right)), tuple(sorted(right - left))
    return found
