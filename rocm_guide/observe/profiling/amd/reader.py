# SPDX-License-Identifier: MIT
"""Read the file of any AMD profiler: one door for CSV, databases and the folders of rocprof-compute."""

from __future__ import annotations

import math
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocm_guide.common.base import open_regular
from rocm_guide.observe.profiling.amd.counters import RooflinePoint, place
from rocm_guide.observe.profiling.amd.rocprof_csv import Dispatch, RocprofReport, read_csv, report_of
from rocm_guide.observe.profiling.torch_trace.events import TraceError

__all__ = ["counter_sums", "read_profile", "roofline_rows"]

_DISPATCHES = """
    SELECT d.id, d.event_id, d.start, d.end, d.agent_id, d.group_segment_size, d.private_segment_size,
           d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z, d.grid_size_x, d.grid_size_y, d.grid_size_z,
           s.display_name, s.kernel_name, s.arch_vgpr_count, s.accum_vgpr_count, s.sgpr_count
    FROM "rocpd_kernel_dispatch{0}" d LEFT JOIN "rocpd_info_kernel_symbol{0}" s ON s.id = d.kernel_id
    ORDER BY d.start, d.id
"""
_COUNTERS = """
    SELECT e.event_id, p.symbol, SUM(e.value)
    FROM "rocpd_pmc_event{0}" e JOIN "rocpd_info_pmc{0}" p ON p.id = e.pmc_id
    WHERE e.event_id IS NOT NULL GROUP BY e.event_id, p.symbol
"""


#: What a kernel uses, as :class:`Dispatch` calls it, in the order of the first query.
_USED = ("lds", "scratch", "vgpr", "accum_vgpr", "sgpr")


def _number(value: Any, file: Path, what: str) -> int:
    if type(value) is not int:
        raise TraceError(f"{file}: {what} is {str(value)[:30]!r}, not an integer; the database is damaged")
    return value


def _read(connection: sqlite3.Connection, suffix: str, tables: set[str], file: Path) -> tuple[list[Dispatch], bool]:
    counters: dict[Any, dict[str, float]] = {}
    if {f"rocpd_pmc_event{suffix}", f"rocpd_info_pmc{suffix}"} <= tables:
        for event, name, value in connection.execute(_COUNTERS.format(suffix)):
            if type(value) not in (int, float) or value != value:
                raise TraceError(f"{file}: a counter's value is {str(value)[:30]!r}, not a number")
            counters.setdefault(event, {})[str(name)] = float(value)
    found = []
    for row in connection.execute(_DISPATCHES.format(suffix)):
        start, end = _number(row[2], file, "start"), _number(row[3], file, "end")
        if end < start:
            raise TraceError(f"{file}: dispatch {row[0]} ends before it starts; the database is damaged")
        sizes = [_number(v, file, "a size") for v in row[7:13]]
        workgroup, grid = math.prod(sizes[:3]), math.prod(sizes[3:])
        used = {n: v for n, v in zip(_USED, (*row[5:7], *row[15:18]), strict=True) if type(v) is int}
        mine = counters.get(row[1], {}) if row[1] is not None else {}
        name = str(row[13] or row[14] or "?")
        found.append(Dispatch(name, start, end - start, str(row[4]), workgroup, grid, counters=mine, **used))
    return found, bool(counters)


def read_rocpd(path: str | os.PathLike[str]) -> RocprofReport:
    """Read the kernel dispatches, with their counters, of a rocpd database.

    Raises:
        TraceError: missing, damaged, or another kind of SQLite file.

    Source: schema version 3 in rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql
    (https://github.com/ROCm/rocprofiler-sdk); user's view in
    https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html.
    """
    path = Path(path)
    if not path.is_file():
        raise TraceError(f"{path}: cannot be opened (no such file); check the path")
    dispatches: list[Dispatch] = []
    counted = False
    try:
        # immutable: no lock file beside the database, and nothing in it can make SQLite write.
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as connection:
            names = [str(r[0]) for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            suffixes = [m[1] for n in names if (m := re.fullmatch(r"rocpd_kernel_dispatch(\w*)", n))]
            tables = set(names)
            for suffix in suffixes:
                if f"rocpd_info_kernel_symbol{suffix}" in tables:
                    found, some = _read(connection, suffix, tables, path)
                    dispatches += found
                    counted |= some
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as e:
        raise TraceError(f"{path}: not a readable database ({e}); copy the file again") from e
    if not suffixes:
        raise TraceError(f"{path}: no rocpd_kernel_dispatch table in it; pass a *_results.db that rocprofv3 wrote")
    return report_of(path.name, "counters" if counted else "kernel trace", "rocprofv3", dispatches)


def read_profile(path: str | os.PathLike[str]) -> RocprofReport:
    """Read a profiler's file, whatever its kind; a folder of rocprof-compute is read through its pmc_perf.csv.

    Raises:
        TraceError: missing, damaged, or a kind that another command reads (the message names it).
    """
    path = Path(path)
    if path.is_dir():
        for name in ("pmc_perf.csv", "pmc_perf.csv.gz", "pmc_kernel_top.csv"):
            if (path / name).is_file():
                return read_csv(path / name)
        raise TraceError(f"{path}: no pmc_perf.csv in it; pass the workload folder that rocprof-compute wrote")
    try:
        with open_regular(path) as f:
            head = f.read(4096)
    except OSError as e:
        raise TraceError(f"{path}: cannot be opened ({e.strerror or e}); check the path") from e
    if head.startswith(b"SQLite format 3"):
        return read_rocpd(path)
    if b'"traceEvents"' in head:
        raise TraceError(f"{path}: a trace of events; read it with rocm-guide trace summary {path.name}")
    if head.lstrip()[:1] == b"{" or path.suffix in (".json", ".pftrace"):
        raise TraceError(f"{path}: neither CSV nor rocpd; record with rocprofv3 --output-format csv, or give no format")
    return read_csv(path)


def counter_sums(report: RocprofReport) -> dict[str, dict[str, float]]:
    """Return the counters of each kernel, added up over all its dispatches; empty when the file has none.

    >>> from rocm_guide.observe.profiling.amd.rocprof_csv import Dispatch, report_of
    >>> rows = [Dispatch("norm", None, None, counters={"SQ_WAVES": n}) for n in (16.0, 48.0)]
    >>> counter_sums(report_of("x", "counters", "rocprofv3", rows))
    {'norm': {'SQ_WAVES': 64.0}}
    """
    sums: dict[str, dict[str, float]] = {}
    for d in report.dispatches:
        for counter, value in d.counters.items():
            into = sums.setdefault(d.name, {})
            into[counter] = into.get(counter, 0.0) + value
    return sums


def roofline_rows(report: RocprofReport, *, gpu: str = "MI300X", dtype: str = "bf16") -> list[RooflinePoint]:
    """Return one point under the roofline for each kernel, longest total first; none without the right counters.

    Counters and times are those of all its dispatches together; ``gpu`` and ``dtype`` say whose roof.

    Raises:
        GuideError: unknown GPU or type.

    >>> from rocm_guide.observe.profiling.amd.rocprof_csv import Dispatch, report_of
    >>> counted = {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 1e9, "FETCH_SIZE": 1e6, "WRITE_SIZE": 1e5}
    >>> gemm = Dispatch("gemm", 0, 1_000_000, counters=counted)
    >>> (point,) = roofline_rows(report_of("x", "counters", "rocprofv3", [gemm]))
    >>> point.bound, round(point.tflops)
    ('compute', 512)
    """
    sums = counter_sums(report)
    times: dict[str, int] = {}
    for d in report.dispatches:
        if d.counters and d.duration_ns is not None:
            times[d.name] = times.get(d.name, 0) + d.duration_ns
    points = []
    for name in sorted(times, key=lambda n: -times[n]):
        found = sums[name]
        countable = any(c.startswith("SQ_INSTS_VALU_") for c in found)
        movable = ("FETCH_SIZE" in found and "WRITE_SIZE" in found) or any(c.startswith("TCC_EA") for c in found)
        if countable and movable and times[name] > 0:
            points.append(place(name, times[name], found, gpu=gpu, dtype=dtype))
    return points
