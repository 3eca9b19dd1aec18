# SPDX-License-Identifier: MIT
"""Read what AMD's kernel profilers write: rocprofv3, rocprofv2 and the old rocprof as CSV, rocprof-compute's tables.

Four generations of tools name the same columns differently. :func:`read_csv` recognises each by its header line and
turns the rows into one shape: a dispatch with its name, time, resources and counters.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import shown
from rocm_guide.observe.profiling.torch_trace.events import TraceError, open_text

__all__ = []

#: Characters of a line that are read at once; a row of a profiler has a few thousand, with all counters.
LONGEST_LINE = 1 << 22


class Row:
    """A row with its place in the file, so that an error can name it.

    >>> row = Row("run.csv", 2, {"Calls": "3", "Name": "gemm"})
    >>> row.number(("Count", "Calls")), row.first(("Kernel_Name", "Name"))
    (3, 'gemm')
    """

    def __init__(self, file: str, line: int, cells: dict[str, str]) -> None:
        self.file, self.line, self.cells = file, line, cells

    def first(self, names: tuple[str, ...]) -> str | None:
        """Return the cell under the first of these names that the header has."""
        return next((self.cells[name] for name in names if name in self.cells), None)

    def number(self, names: tuple[str, ...], default: float | None = None) -> float:
        """Return that cell as a number, a whole one exactly; ``default`` when there is none."""
        text = self.first(names)
        if text is None or text == "":
            if default is not None:
                return default
            raise TraceError(f"{self.file}, line {self.line}: no value for {names[0]}; the file is cut short or edited")
        # Timestamps have 16 digits and more: a float would round them.
        if text.isascii() and text.strip().isdigit() and len(text) < 30:
            return int(text)
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if value != value or abs(value) > 1e30:
            raise TraceError(f"{self.file}, line {self.line}: {names[0]} is {text[:40]!r}, not a number")
        return value

    def integer(self, names: tuple[str, ...]) -> int | None:
        """Return that cell as an integer, None when there is none."""
        text = self.first(names)
        return None if text in (None, "") else int(self.number(names))

    def product(self, whole: tuple[str, ...], kind: str) -> int | None:
        """Return a size given whole, or as the product of its X, Y and Z columns."""
        size = self.integer(whole)
        axes = [n for axis in "XYZ" if (n := self.integer((f"{kind}_Size_{axis}",))) is not None]
        if size is None and len(axes) == 3:
            size = axes[0] * axes[1] * axes[2]
        return size


def table_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV with a header line, one at a time.

    Raises:
        TraceError: missing, not a table, or a row that has more or fewer cells than the header.
    """
    name = str(path)
    with open_text(path) as stream:
        # In pieces: a damaged or hostile file may be one line without end.
        reader = csv.reader(iter(lambda: stream.readline(LONGEST_LINE), ""))
        try:
            header = [cell.strip() for cell in next(reader, [])]
            if len(header) < 2 or len(set(header)) != len(header):
                raise TraceError(f"{name}: the first line is not a header of a profiler's table ({str(header)[:60]})")
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    what = f"{len(cells)} cells, the header has {len(header)}; the file is cut short or edited"
                    if "Dispatch_ID" in header and len(header) - len(cells) == 2:
                        what = (
                            "two cells short of the header, a known slip of rocprofv2 (ROCm/rocprofiler issue 144): no "
                            "cell can be told for sure; record again with rocprofv3"
                        )
                    raise TraceError(f"{name}, line {reader.line_num}: {what}")
                # Names come from the profiled program, and are printed.
                cells = [c if c.isprintable() else shown(c, len(c)) for c in cells]
                yield Row(name, reader.line_num, dict(zip(header, cells, strict=True)))
        except (csv.Error, OSError, EOFError, zlib.error) as e:
            raise TraceError(f"{name}: not a readable table ({e}); copy the file again") from e


@dataclass
class Dispatch:
    """One kernel launch. Times in ns; registers per work item; LDS in bytes per workgroup; None: not in the file."""

    name: str
    start_ns: int | None
    duration_ns: int | None
    agent: str = ""
    workgroup: int | None = None
    grid: int | None = None
    lds: int | None = None
    scratch: int | None = None
    vgpr: int | None = None
    accum_vgpr: int | None = None
    sgpr: int | None = None
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make escapes and line breaks in the name visible: it comes from the profiled program, and is printed."""
        if not self.name.isprintable():
            self.name = shown(self.name, len(self.name))


@dataclass(frozen=True)
class KernelTotal:
    """All launches of one kernel: nanoseconds and the share of all of them."""

    name: str
    calls: int
    total_ns: float
    average_ns: float
    shortest_ns: float
    longest_ns: float
    share: float


@dataclass(frozen=True)
class RocprofReport:
    """A profiler's output file.

    Attributes:
        kind: "kernel trace", "counters", "statistics", "api trace", "memory copies" or "metrics".
        tool: the profiler whose format it is.
        dispatches: for the first two kinds, and with calls of the API or copies as "dispatches" for the next two.
        totals: for "statistics", as the tool computed them; otherwise computed from the dispatches.
        metrics: for "metrics" (rocprof-compute), metric -> (average, unit, peak).
    """

    file: str
    kind: str
    tool: str
    dispatches: tuple[Dispatch, ...] = ()
    totals: tuple[KernelTotal, ...] = ()
    metrics: dict[str, tuple[float | None, str, float | None]] = field(default_factory=dict)


#: Column names by meaning; the first that is in the header is taken. Sources: the pages cited in read_csv.
_NAME = ("Kernel_Name", "KernelName", "Function", "Direction", "Name", "Operation")
_START = ("Start_Timestamp", "BeginNs", "Start_Timestamp(ns)", "Start")
_END = ("End_Timestamp", "EndNs", "End_Timestamp(ns)", "End")
_AGENT = ("Agent_Id", "GPU_ID", "gpu-id", "Source_Agent_Id")
_WORKGROUP = ("Workgroup_Size", "WGR", "wgr")
_GRID = ("Grid_Size", "GRD", "grd")
_RESOURCES = {
    "lds": ("LDS_Block_Size", "LDS_Per_Workgroup", "Group_Segment_Size", "LDS", "lds"),
    "scratch": ("Scratch_Size", "Scratch_Per_Workitem", "Private_Segment_Size", "SCR", "scr"),
    "vgpr": ("VGPR_Count", "Arch_VGPR", "arch_vgpr", "vgpr"),
    "accum_vgpr": ("Accum_VGPR_Count", "Accum_VGPR", "ACCUM_VGPR", "accum_vgpr"),
    "sgpr": ("SGPR_Count", "SGPR", "sgpr"),
}
#: Columns that describe a dispatch; whatever else a wide file has is a counter.
_DESCRIPTIVE = {
    *("Index", "Kind", "Domain", "Dispatch_Id", "Dispatch_ID", "Queue_Id", "Queue_ID", "Queue_Index", "queue-id"),
    *("queue-index", "Stream_Id", "Process_Id", "Thread_Id", "PID", "TID", "pid", "tid", "Kernel_Id", "Kernel_ID"),
    *("Correlation_Id", "Correlation_ID", "Counter_Name", "Counter_Value", "Wave_Size", "wave_size", "fbar", "sig"),
    *("SIG", "OBJ", "obj", "DispatchNs", "CompleteNs", "DurationNs", "Destination_Agent_Id", "Node", "XCC", "Counters"),
    *(f"{kind}_Size_{axis}" for kind in ("Grid", "Workgroup") for axis in "XYZ"),
    *(name for names in (_NAME, _START, _END, _AGENT, _WORKGROUP, _GRID, *_RESOURCES.values()) for name in names),
}


def _dispatch(row: Row, counters: bool, timed: bool = True) -> Dispatch:
    name = re.sub(r"( \[clone \.kd\]| \(\.kd\)|\.kd)$", "", row.first(_NAME) or "")  # old tools name the descriptor
    if not name:
        raise TraceError(f"{row.file}, line {row.line}: no kernel name; the file is cut short or edited")
    found = Dispatch(name, None, None, row.first(_AGENT) or "")
    if timed:
        start, end = int(row.number(_START)), int(row.number(_END))
        if end < start:
            raise TraceError(f"{row.file}, line {row.line}: {name[:40]!r} ends {start - end} ns before it starts")
        found.start_ns, found.duration_ns = start, end - start
    found.workgroup, found.grid = row.product(_WORKGROUP, "Workgroup"), row.product(_GRID, "Grid")
    for attribute, names in _RESOURCES.items():
        setattr(found, attribute, row.integer(names))
    if counters:
        for column, text in row.cells.items():
            if column not in _DESCRIPTIVE and column and text:
                found.counters[column] = row.number((column,))
    return found


def top_kernels(dispatches: tuple[Dispatch, ...]) -> tuple[KernelTotal, ...]:
    """Add up the launches by name, longest total first; those without a time (counters of older tools) are left out.

    >>> top_kernels((Dispatch("gemm", 0, 30), Dispatch("norm", 40, 10), Dispatch("gemm", 60, 40)))[0]
    KernelTotal(name='gemm', calls=2, total_ns=70, average_ns=35.0, shortest_ns=30, longest_ns=40, share=0.875)
    """
    times: dict[str, list[int]] = {}
    for d in dispatches:
        if d.duration_ns is not None:
            times.setdefault(d.name, []).append(d.duration_ns)
    all_ns = sum(map(sum, times.values())) or 1
    rows = [KernelTotal(n, len(t), sum(t), sum(t) / len(t), min(t), max(t), sum(t) / all_ns) for n, t in times.items()]
    return tuple(sorted(rows, key=lambda r: (-r.total_ns, r.name)))


def report_of(file: str, kind: str, tool: str, dispatches: list[Dispatch]) -> RocprofReport:
    """Return a report of dispatches with its totals; an empty list is refused, because it hides a failed run.

    Raises:
        TraceError: no dispatch.
    """
    if not dispatches:
        raise TraceError(f"{file}: a header but no rows; the profiled program launched no kernel, or stopped early")
    return RocprofReport(file, kind, tool, tuple(dispatches), top_kernels(tuple(dispatches)))


def read_csv(path: str | os.PathLike[str]) -> RocprofReport:
    """Read one CSV of any of the profilers; the format is recognised by its header.

    ================  ==================================================  =====================================
    tool              file                                                recognised by
    ================  ==================================================  =====================================
    rocprofv3         *_kernel_trace.csv, *_counter_collection.csv,       Start_Timestamp with Kernel_Name,
                      *_hip_api_trace.csv, *_memory_copy_trace.csv        Counter_Name, Function or Direction
    rocprofv3, v1     *_kernel_stats.csv, results.stats.csv               TotalDurationNs
    rocprof (v1)      results.csv, with counters as further columns       KernelName and BeginNs
    rocprofv2         results_*.csv, with counters as further columns     Dispatch_ID
    rocprof-compute   pmc_perf.csv; Top_Kernels; the metric panels        Dispatch_ID; Sum(ns); Metric
    ================  ==================================================  =====================================

    Raises:
        TraceError: missing, cut short, with a cell that is not what its column promises, or of no known format.

    Source: rocprofv3, https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html;
    rocprof and rocprofv2, https://rocm.docs.amd.com/projects/rocprofiler/en/latest/; rocprof-compute,
    https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/how-to/analyze/cli.html.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     file = Path(d) / "run_kernel_trace.csv"
    ...     _ = file.write_text('"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\\n'
    ...                         '"KERNEL_DISPATCH","add(float*, int)",1000,1700\\n')
    ...     r = read_csv(file)
    >>> r.tool, r.kind, r.totals[0].name, r.totals[0].total_ns
    ('rocprofv3', 'kernel trace', 'add(float*, int)', 700)
    """
    path = Path(path)
    name = path.name
    rows = table_rows(path)
    first = next(rows, None)
    if first is None:
        raise TraceError(f"{path}: a header but no rows; the profiled program launched no kernel, or stopped early")
    columns = first.cells.keys()
    rows = itertools.chain([first], rows)
    if "Metric" in columns:
        return RocprofReport(name, "metrics", "rocprof-compute", metrics=_metrics(rows))
    if "TotalDurationNs" in columns or "Sum(ns)" in columns:
        return _statistics(name, rows, "rocprof-compute" if "Sum(ns)" in columns else "rocprof")
    timed = bool(set(_START) & columns and set(_END) & columns)
    if not timed and not ("Counter_Name" in columns and set(_NAME) & columns):  # rocprofv3 of ROCm 6.2 gave no times
        raise TraceError(f"{path}: columns {', '.join(columns)[:80]!r} belong to no profiler known here; see read_csv")
    if "Counter_Name" in columns:
        return report_of(name, "counters", "rocprofv3", _narrow(rows, timed))
    wide = "KernelName" in columns or "Dispatch_ID" in columns
    tool = "rocprof" if "KernelName" in columns else "rocprofv2, rocprof-compute" if wide else "rocprofv3"
    found = [_dispatch(row, wide) for row in _once(rows)]
    if "Direction" in columns:
        return report_of(name, "memory copies", tool, found)
    if "Function" in columns:
        return report_of(name, "api trace", tool, found)
    return report_of(name, "counters" if any(d.counters for d in found) else "kernel trace", tool, found)


def _once(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows, each of which is there once: two launches differ in their times, at least."""
    seen: dict[int, int] = {}
    for row in rows:
        other = seen.setdefault(hash(tuple(row.cells.values())), row.line)
        if other != row.line:
            raise TraceError(f"{row.file}, line {row.line}: the same as line {other}; the file was edited or merged")
        yield row


def _narrow(rows: Iterator[Row], timed: bool) -> list[Dispatch]:
    """Put the rows of one dispatch together: rocprofv3 writes one row per counter."""
    found: dict[tuple[Any, ...], Dispatch] = {}
    for row in rows:
        key = (row.first(_AGENT), row.first(("Process_Id",)), row.first(("Dispatch_Id", "Correlation_Id")))
        dispatch = found.get(key)
        if dispatch is None:
            dispatch = found[key] = _dispatch(row, False, timed)
        counter = row.first(("Counter_Name",)) or "?"
        # One counter can come once per shader engine or XCD: the dispatch's value is their sum.
        dispatch.counters[counter] = dispatch.counters.get(counter, 0.0) + row.number(("Counter_Value",))
    return list(found.values())


def _statistics(name: str, rows: Iterator[Row], tool: str) -> RocprofReport:
    raw = []
    for row in rows:
        calls, total = row.number(("Calls", "Count")), row.number(("TotalDurationNs", "Sum(ns)"))
        mean = row.number(("AverageNs", "Mean(ns)"), total / calls if calls else 0.0)
        least, most = row.number(("MinNs", "Min(ns)"), mean), row.number(("MaxNs", "Max(ns)"), mean)
        raw.append((row.first(("Name", "Kernel_Name")) or "?", int(calls), total, mean, least, most))
    all_ns = sum(r[2] for r in raw) or 1.0
    totals = [KernelTotal(*r, share=r[2] / all_ns) for r in raw]
    return RocprofReport(name, "statistics", tool, totals=tuple(sorted(totals, key=lambda t: (-t.total_ns, t.name))))


def _metrics(rows: Iterator[Row]) -> dict[str, tuple[float | None, str, float | None]]:
    def value(row: Row, names: tuple[str, ...]) -> float | None:
        text = (row.first(names) or "").strip()
        return None if text in ("", "N/A", "None") else row.number(names)

    found = {}
    for row in rows:
        average, peak = value(row, ("Avg", "Value", "Mean")), value(row, ("Peak", "Peak (Empirical)"))
        found[row.cells["Metric"]] = average, row.first(("Unit", "Units")) or "", peak
    return found
