# SPDX-License-Identifier: MIT
"""Public traces: what we say of each is what others say, or the difference has its reason in the trace."""

import gzip
import json
import math
from pathlib import Path

import pytest

from benchmarks.profiling.public_traces import KINDS, SOURCES, our_figures, second_reading

ROOT = Path(__file__).parents[3]
STORED = json.loads((ROOT / "benchmarks/results/public_traces.json").read_text())
TRACES = [t for t in STORED["traces"] if t["ours"]["kind"] not in KINDS]


def same(a, b):
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-3)


def test_there_are_more_than_twenty_of_three_repositories():
    assert STORED["commits"] == SOURCES and {t["repository"] for t in STORED["traces"]} == set(SOURCES)
    assert len({t["sha256"] for t in TRACES}) > 20 and len([t for t in TRACES if t["ours"]["kind"] == "gpu"]) > 20
    assert {t["ours"]["kind"] for t in STORED["traces"]} >= {
        *KINDS,
        "gpu",
        "kernel trace",
        "memory copies",
        "statistics",
    }


@pytest.mark.parametrize("row", TRACES, ids=lambda t: t["path"])
def test_a_second_reading_gives_the_same(row):
    ours, second = row["ours"], row["second"]
    assert ours["kernels"] + ours.get("outside", 0) == second["kernels"]
    assert same(ours["work_us"] + ours.get("outside_us", 0), second["work_us"])
    if "busy_us" in ours and "outside" not in ours:  # kernels of before the first step are in the second reading
        assert same(ours["busy_us"], second["busy_us"]) and same(ours["span_us"], second["span_us"])
        # Of several GPUs none was busy for longer than all of them together.
        assert all(0 < g["busy_us"] <= ours["busy_us"] for g in ours.get("each", ()))
    if "rocprof_compute" in row:
        assert same(ours["work_us"], row["rocprof_compute"]["work_us"])


def test_hta_gives_the_same_of_the_kernels_that_a_call_launched():
    """It cuts starts and durations to whole microseconds, and takes waits and operators that name a stream for work."""
    rows = [r for r in TRACES if "span_us" in r.get("hta", {})]
    exact = [
        r for r in rows if (r["hta"]["span_us"], r["hta"]["busy_us"]) == (r["ours"]["span_us"], r["ours"]["busy_us"])
    ]
    assert len(rows) > 15 and len(exact) >= 5
    for row in rows:
        hta, second = row["hta"], row["second"]
        cut = 2 * second["kernels"]
        if second["others_with_a_stream"]:
            assert hta["busy_us"] >= second["launched_busy_us"] - cut, row["path"]
        else:
            assert abs(hta["busy_us"] - second["launched_busy_us"]) <= cut, row["path"]
            assert abs(hta["span_us"] - second["launched_span_us"]) <= 2, row["path"]


def test_what_is_refused_or_no_gpus_is_said():
    refused = {Path(t["path"]).name: t["ours"]["says"] for t in STORED["traces"] if t["ours"]["kind"] == "refused"}
    assert refused["benchmark_simple_add_et.json.gz"].startswith("no traceEvents array; pass a trace written by torch")
    assert "an event that is not an object" in refused["memory_timeline.raw.gz"] and len(refused) == 3
    unknown = [t["ours"]["unknown"] for t in STORED["traces"] if t["ours"]["kind"] == "cpu"]
    assert {"mtia_ccp_events": 1313} in unknown and {"cuda_profiler_range": 77} in unknown


def test_the_two_readings_are_of_the_file_as_it_is(tmp_path):
    def event(cat, ts, dur, **args):
        return {"ph": "X", "cat": cat, "name": cat, "ts": ts, "dur": dur, "tid": 1, "args": args}

    events = [
        event("cuda_runtime", 0, 2, correlation=1),
        event("kernel", 10, 20, correlation=1, device=0),
        event("gpu_memcpy", 25, 15, correlation=2, device=1),
        event("cuda_sync", 50, 9, stream=1),
    ]
    file = tmp_path / "t.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    second, ours = second_reading(file), our_figures(file)
    assert second == {
        "kernels": 2,
        "span_us": 30,
        "busy_us": 30,
        "work_us": 35,
        "launched_span_us": 20,
        "launched_busy_us": 20,
        "others_with_a_stream": 1,
    }
    assert {k: ours[k] for k in ("kernels", "span_us", "busy_us", "work_us")} == {
        k: second[k] for k in list(second)[:4]
    }
    assert ours["each"] == [{"gpu": "0", "busy_us": 20}, {"gpu": "1", "busy_us": 15}]
    assert our_figures(tmp_path / "none.json")["kind"] == "refused"
