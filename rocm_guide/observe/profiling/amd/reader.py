# SPDX-License-Identifier: MIT
"""Read the file of any AMD profiler: one door for CSV, databases and the folders of rocprof-compute."""

from __future__ import annotations

import os
from pathlib import Path

from rocm_guide.common.base import open_regular
from rocm_guide.observe.profiling.amd.counters import RooflinePoint, place
from rocm_guide.observe.profiling.amd.rocpd import read_rocpd
from rocm_guide.observe.profiling.amd.rocprof_csv import RocprofReport, read_csv
from rocm_guide.observe.profiling.torch_trace.events import TraceError

__all__ = ["counter_sums", "read_profile", "roofline_rows"]


def read_profile(path: str | os.PathLike[str]) -> RocprofReport:
    """Read a profiler's file, whatever its kind; a folder of rocprof-compute is read through its pmc_perf.csv.

    Raises:
        TraceError: missing, damaged, or a kind that another command reads (the message names it).

    >>> read_profile("no.csv")
    Traceback (most recent call last):
        ...
    rocm_guide.observe.profiling.torch_trace.events.TraceError: no.csv: cannot be opened (No such file or directory); \
check the path
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
    """Return where each kernel lies under the roofline: counters and times of all its dispatches together.

    Args:
        report: with counters; without the right ones the list is empty.
        gpu, dtype: whose roof.

    Returns:
        One point per kernel, longest total first.

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
