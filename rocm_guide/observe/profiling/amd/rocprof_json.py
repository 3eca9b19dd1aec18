# SPDX-License-Identifier: MIT
"""Read rocprofv3's JSON: kernels, their counters, copies, of every process in the file."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from rocm_guide.observe.profiling.amd.rocprof_csv import Dispatch, RocprofReport, report_of
from rocm_guide.observe.profiling.torch_trace.events import TraceError, limited, open_text

__all__ = []

#: Characters of a file that is read whole; a run of ten minutes makes some tens of megabytes.
LARGEST_TEXT = 1 << 30


def _get(value: Any, *keys: str) -> Any:
    """Walk down dictionaries; None as soon as a step is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any, what: str, file: str) -> int:
    if type(value) is not int:
        raise TraceError(f"{file}: {what} is {str(value)[:30]!r}, not an integer; the file is damaged")
    return value


def _volume(value: Any) -> int | None:
    sides = [_get(value, axis) for axis in "xyz"]
    return sides[0] * sides[1] * sides[2] if all(type(s) is int for s in sides) else None


def _count(value: Any) -> int | None:
    # A number of registers or bytes; None where there is none, or something else stands there.
    return value if type(value) is int else None


class _Process:
    """The names that the records of one process refer to by number."""

    def __init__(self, tool: dict[str, Any], file: str) -> None:
        self.tool, self.file = tool, file
        self.kernels: dict[Any, str] = {}
        for symbol in _list(tool.get("kernel_symbols")):
            for key in ("formatted_kernel_name", "truncated_kernel_name", "demangled_kernel_name", "kernel_name"):
                name = _get(symbol, key)
                if isinstance(name, str) and name:
                    self.kernels[str(_get(symbol, "kernel_id"))] = name
                    break
        self.counters = {
            str(_get(c, "id", "handle")): str(_get(c, "name"))
            for c in _list(tool.get("counters"))
            if isinstance(_get(c, "name"), str)
        }

    def dispatch(self, record: Any) -> Dispatch:
        info = _get(record, "dispatch_info")
        kernel = _get(info, "kernel_id")
        start = _whole(_get(record, "start_timestamp"), "start_timestamp", self.file)
        end = _whole(_get(record, "end_timestamp"), "end_timestamp", self.file)
        if end < start:
            raise TraceError(f"{self.file}: dispatch {_get(info, 'dispatch_id')} ends before it starts")
        return Dispatch(
            name=self.kernels.get(str(kernel), f"kernel {str(kernel)[:20]}"),
            start_ns=start,
            duration_ns=end - start,
            agent=str(_get(info, "agent_id", "handle") or ""),
            workgroup=_volume(_get(info, "workgroup_size")),
            grid=_volume(_get(info, "grid_size")),
            lds=_count(_get(info, "group_segment_size")),
            scratch=_count(_get(info, "private_segment_size")),
        )

    def add_counters(self, found: dict[Any, Dispatch]) -> bool:
        """Attach the counters to the dispatches of the same number. Whether there were any."""
        records = _list(_get(self.tool, "callback_records", "counter_collection"))
        for record in records:
            data = _get(record, "dispatch_data")
            number = _get(data, "dispatch_info", "dispatch_id")
            if number is None or any(other.startswith("row ") for other in found):
                what = "counters" if number is None else "a dispatch that has counters,"
                raise TraceError(f"{self.file}: {what} without a dispatch_id: whose they are is not told; record again")
            key = str(number)
            dispatch = found.get(key)
            if dispatch is None:
                # Collected without a kernel trace: the record then carries the times itself.
                dispatch = found[key] = self.dispatch(data)
            dispatch.vgpr = _count(_get(record, "arch_vgpr_count"))
            dispatch.accum_vgpr = _count(_get(record, "accum_vgpr_count"))
            dispatch.sgpr = _count(_get(record, "sgpr_count"))
            lds = _count(_get(record, "lds_block_size_v"))
            dispatch.lds = lds if lds is not None else dispatch.lds
            for sample in _list(_get(record, "records")):
                value = _get(sample, "value")
                if type(value) not in (int, float) or value != value or abs(value) > 1e30:
                    raise TraceError(f"{self.file}: a counter's value is {str(value)[:30]!r}, not a number")
                handle = str(_get(sample, "counter_id", "handle"))
                name = self.counters.get(handle, f"counter {handle[:20]}")
                dispatch.counters[name] = dispatch.counters.get(name, 0.0) + value
        return bool(records)


def read_json(path: str | os.PathLike[str]) -> RocprofReport:
    """Read a ``*_results.json`` of ``rocprofv3 --output-format json``.

    It holds names once and refers to them by number; this puts them back together. The file is read whole: it has no
    per-event text, so a long run stays far smaller than a torch trace.

    Raises:
        TraceError: missing, not JSON, or without ``rocprofiler-sdk-tool``.

    Source: "JSON output schema" in
    https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html.

    >>> import tempfile
    >>> run = {"rocprofiler-sdk-tool": [{"kernel_symbols": [{"kernel_id": 7, "formatted_kernel_name": "add(float*)"}],
    ...        "buffer_records": {"kernel_dispatch": [{"start_timestamp": 100, "end_timestamp": 350,
    ...        "dispatch_info": {"kernel_id": 7, "dispatch_id": 1}}]}}]}
    >>> with tempfile.TemporaryDirectory() as d:
    ...     file = Path(d) / "1_results.json"
    ...     _ = file.write_text(json.dumps(run))
    ...     r = read_json(file)
    >>> r.totals[0].name, r.totals[0].total_ns
    ('add(float*)', 250)
    """
    path = Path(path)
    try:
        with open_text(path) as stream:
            document = json.loads(limited(stream, LARGEST_TEXT, str(path)))
    except (ValueError, RecursionError, OSError, EOFError, zlib.error) as e:
        if isinstance(e, TraceError):
            raise
        raise TraceError(f"{path}: not valid JSON ({str(e)[:80]}); the file is cut short or damaged") from e
    processes = _get(document, "rocprofiler-sdk-tool")
    if not isinstance(processes, list):
        raise TraceError(f"{path}: no rocprofiler-sdk-tool in it; pass what rocprofv3 --output-format json wrote")
    everything: list[Dispatch] = []
    counted = False
    for tool in processes:
        if not isinstance(tool, dict):
            raise TraceError(f"{path}: a process that is not an object; the file is damaged")
        process = _Process(tool, str(path))
        found: dict[Any, Dispatch] = {}
        for i, record in enumerate(_list(_get(tool, "buffer_records", "kernel_dispatch"))):
            number = _get(record, "dispatch_info", "dispatch_id")
            key = str(number) if number is not None else f"row {i}"
            if key in found:  # the number counts up over all GPUs of a process
                raise TraceError(
                    f"{path}: dispatch {key[:20]} of a process stands twice; the file was edited or merged"
                )
            found[key] = process.dispatch(record)
        counted |= process.add_counters(found)
        everything += found.values()
    return report_of(path.name, "counters" if counted else "kernel trace", "rocprofv3", everything)
