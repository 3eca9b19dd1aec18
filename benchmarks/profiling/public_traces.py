# SPDX-License-Identifier: MIT
"""Hold our readers' figures of public traces against a second reading, and against other tools' figures.

    python -m benchmarks.profiling.public_traces FOLDER --hta PYTHON --out benchmarks/results/public_traces.json

FOLDER holds clones, as FOLDER/OWNER/NAME, of the repositories of ``SOURCES`` at those commits; no trace is in this one.
The second reading takes the whole file at once, sums and sorts edges. ``--hta`` names a Python that has
HolisticTraceAnalysis 0.5.0, whose temporal breakdown gives a span and an idle time; it reads traces of one process.
rocprof-compute's figure stands beside its trace. Files of AMD's TraceLens are none of these: they were compared before.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.observe.profiling.amd.reader import read_profile
from rocm_guide.observe.profiling.torch_trace.summary import summarize

#: Repository -> commit.
SOURCES = {
    "facebookresearch/HolisticTraceAnalysis": "f4d0062c382f42bd8a74838bcdad1916c7d5d2da",
    "amd/HPCTrainingExamples": "aaaa72d4dca9a9c3587be883deaf2d0f109fcbfb",
    "ROCm/rocprofiler-sdk": "8ab1ed78d8c2afb25fedddb7684aff08d1233c5c",
}
_HTA, _AMD, _SDK = SOURCES
#: Of an earlier commit of its repository, 4a6bd827.
_OMNIPERF = (
    ".OmniperfExamples-OpenMP/Fortran/collapse_excercise/2-openMPGPU_collapse/workloads/problem/MI300A_A1/"
    "timestamps.csv"
)
#: What is no trace of work on a GPU, and so has no second reading of one.
KINDS = {"cpu": "operators of a CPU alone", "counters": "counters without times", "refused": "refused"}
#: The sum of rocprof-compute's own table in microseconds (pmc_kernel_top.csv beside the trace).
ROCPROF_COMPUTE = {_OMNIPERF: {"work_us": (431_275_823 + 3_489_811 + 3_020_770) / 1e3}}

ASK_HTA = """
import json, logging, os, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
for path in sys.argv[1:]:
    try:
        folder, name = os.path.split(path)
        row = TraceAnalysis({0: name}, folder, include_last_profiler_step=True).get_temporal_breakdown(visualize=False)
        span, idle = float(row["kernel_time(us)"].iloc[0]), float(row["idle_time(us)"].iloc[0])
        print("HTA", json.dumps([path, {"span_us": span, "busy_us": span - idle}]), flush=True)
    except Exception as e:
        print("HTA", json.dumps([path, {"error": f"{type(e).__name__}: {e}"[:90].split("[")[0]}]), flush=True)
"""


def public_files(folder: Path) -> list[tuple[str, Path]]:
    """Return repository and file of every trace below the clones."""
    found = [
        (repo, p)
        for repo, below in ((_HTA, "tests/data"), (_AMD, "MLExamples/TraceLens"), (_SDK, "source/docs/data"))
        for p in sorted((folder / repo / below).rglob("*"))
        if p.name.endswith((".json", ".json.gz", ".csv", ".raw.gz")) and p.name != "mi300.json"
    ]
    return [*found, (_AMD, folder / _AMD / _OMNIPERF)]


def second_reading(path: Path) -> dict[str, float]:
    """Return kernels, span, busy and work time of a trace in microseconds, from the whole of it at once."""
    if path.suffix == ".csv":
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        if "TotalDurationNs" in rows[0]:
            total = sum(int(r["TotalDurationNs"]) for r in rows) / 1e3
            return {"kernels": sum(int(r["Calls"]) for r in rows), "work_us": total}
        spans = [(int(r["Start_Timestamp"]), int(r["End_Timestamp"])) for r in rows]
        return {"kernels": len(rows), "work_us": sum(b - a for a, b in spans) / 1e3}
    raw = path.read_bytes()
    whole = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = [e for e in whole["traceEvents"] if e.get("ph") == "X"]
    work = [e for e in events if str(e.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset")]
    calls = {e["args"].get("correlation") for e in events if str(e.get("cat")).lower().endswith(("runtime", "driver"))}
    span, busy = span_and_busy(work)
    found = {"kernels": len(work), "span_us": span, "busy_us": busy, "work_us": sum(e["dur"] for e in work)}
    # HolisticTraceAnalysis counts kernels that a call of the trace launched, and whatever else names a stream as work.
    span, busy = span_and_busy([e for e in work if e["args"].get("correlation") in calls])
    named = sum(e.get("cat") in ("cuda_sync", "cpu_op") and "stream" in e.get("args", ()) for e in events)
    return {**found, "launched_span_us": span, "launched_busy_us": busy, "others_with_a_stream": named}


def span_and_busy(work: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the microseconds from the first start to the last end, and those in which at least one event lasts."""
    edges = sorted([(e["ts"], 1) for e in work] + [(e["ts"] + e["dur"], -1) for e in work])
    busy = depth = 0.0
    for (at, step), (after, _) in itertools.pairwise(edges):
        depth += step
        busy += after - at if depth > 0 else 0
    return (edges[-1][0] - edges[0][0] if edges else 0.0), busy


def our_figures(path: Path) -> dict[str, Any]:
    """Return what our readers say: the same figures, or the kind of trace that has none, or the refusal."""
    try:
        if path.suffix == ".csv":
            found = read_profile(path)
            if not found.totals:
                return {"kind": "counters"}
            work = sum(t.total_ns for t in found.totals) / 1e3
            return {"kind": found.kind, "kernels": sum(t.calls for t in found.totals), "work_us": work}
        s = summarize(path)
    except GuideError as e:
        return {"kind": "refused", "says": str(e).rpartition(f"{path.name}: ")[2]}
    if s.device == "cpu":
        return {"kind": "cpu", "unknown": s.unknown}
    figures = {"kernels": s.launches, "span_us": s.span_us, "busy_us": s.busy_us, "work_us": s.work_us}
    each = [{"gpu": d.name, "busy_us": d.busy_us} for d in s.devices]
    outside = {"outside": s.outside, "outside_us": s.outside_us} if s.outside else {}
    return {"kind": "gpu", **figures, "steps": s.steps, **({"each": each} if len(each) > 1 else {}), **outside}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows, files = [], public_files(options.folder)
    for repo, path in files:
        ours = our_figures(path)
        row: dict[str, Any] = {"repository": repo, "path": str(path.relative_to(options.folder / repo))}
        row |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "ours": ours}
        if ours["kind"] not in KINDS:
            row["second"] = second_reading(path)
        if row["path"] in ROCPROF_COMPUTE:
            row["rocprof_compute"] = ROCPROF_COMPUTE[row["path"]]
        rows.append(row)
    if options.hta:
        asked = [
            str(p)
            for (_, p), row in zip(files, rows, strict=True)
            if row["ours"]["kind"] == "gpu" and row["repository"] == _HTA
        ]
        done = subprocess.run([options.hta, "-c", ASK_HTA, *asked], capture_output=True, text=True, check=False)
        said = dict(json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("HTA "))
        for (_, path), row in zip(files, rows, strict=True):
            if str(path) in said:
                row["hta"] = said[str(path)]
    result = {
        "question": "do our readers give the figures of public traces that other readers give",
        "commits": SOURCES,
        "versions": {"HolisticTraceAnalysis": "0.5.0"} if options.hta else {},
        "date": time.strftime("%Y-%m-%d"),
    }
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    text = json.dumps(result, indent=1)[:-2] + ',\n "traces": [\n' + lines + "\n ]\n}\n"
    if options.out:
        options.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
