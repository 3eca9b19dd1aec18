# SPDX-License-Identifier: MIT
"""AMD's profiler formats: the same dispatches in each file must give the same answer, and that of a plain reading."""

from __future__ import annotations

import csv
import importlib.util
import math
import random
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.observe.profiling.amd.counters import COUNTERS, describe_counter, flops, memory_bytes, place
from rocm_guide.observe.profiling.amd.reader import counter_sums, read_profile, roofline_rows
from rocm_guide.observe.profiling.torch_trace.events import TraceError
from rocm_guide.observe.profiling.torch_trace.summary import check_kernels, replaced_kernels

SAMPLES = Path(__file__).parents[3] / "notebooks" / "recorded"
DISPATCH_FILES = (
    "rocprofv3_kernel_trace.csv",
    "rocprofv3_counter_collection.csv",
    "rocprofv3_results.db",
    "rocprof_results.csv",
    "rocprofv2_results.csv",
    "rocprof_compute",
)
COUNTED = [f for f in DISPATCH_FILES if f != "rocprofv3_kernel_trace.csv"]


@pytest.fixture(scope="module")
def truth():
    spec = importlib.util.spec_from_file_location("make_samples", SAMPLES / "make_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dispatches()


@pytest.mark.parametrize("file", DISPATCH_FILES)
def test_every_format_gives_the_same_dispatches(file, truth):
    found = read_profile(SAMPLES / file)
    assert [(d.name, d.start_ns, d.duration_ns) for d in found.dispatches] == [
        (r["name"], r["start"], r["end"] - r["start"]) for r in truth
    ]
    totals = defaultdict(int)
    for r in truth:
        totals[r["name"]] += r["end"] - r["start"]
    assert {t.name: t.total_ns for t in found.totals} == totals
    assert math.isclose(sum(t.share for t in found.totals), 1.0)


@pytest.mark.parametrize("file", COUNTED)
def test_every_format_gives_the_same_counters_and_resources(file, truth):
    for d, r in zip(read_profile(SAMPLES / file).dispatches, truth, strict=True):
        assert d.counters == r["counters"]
        assert (d.vgpr, d.accum_vgpr, d.sgpr, d.lds) == (r["vgpr"], r["acc"], r["sgpr"], r["lds"])
        assert (d.workgroup, d.grid) == (r["group"], r["grid"])


# ---- files that are changed in their meaning, against a plain reading of the changed file


NEEDED = {"Kernel_Name", "KernelName", "Start_Timestamp", "End_Timestamp", "BeginNs", "EndNs"}


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("name", ["rocprofv3_kernel_trace.csv", "rocprof_results.csv"])
def test_a_changed_csv_is_named_or_read_as_it_stands(name, seed, tmp_path):
    """A column dropped, a row doubled or dropped, a second GPU, rows and columns in another order."""
    rng = random.Random(seed)
    head, *rows = csv.reader((SAMPLES / name).read_text().splitlines())
    kind = rng.choice(("column", "double", "drop", "gpu", "rows", "columns"))
    order = [*range(len(head))]
    if kind == "column":
        order.remove(rng.randrange(len(head)))
    elif kind == "columns":
        rng.shuffle(order)
    elif kind == "double":
        rows.insert(rng.randrange(len(rows)), rng.choice(rows))
    elif kind == "drop":
        del rows[rng.randrange(len(rows))]
    elif kind == "gpu":
        at = head.index("Agent_Id" if "Agent_Id" in head else "gpu-id")
        rows += [[*row[:at], "Agent 5", *row[at + 1 :]] for row in rows]
    else:
        rng.shuffle(rows)
    file = tmp_path / "x.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([row[i] for i in order] for row in (head, *rows))
    kept = {head[i] for i in order}
    if kind == "double" or NEEDED & set(head) - kept:
        with pytest.raises(GuideError):
            read_profile(file)
        return
    columns = {head[i]: i for i in range(len(head))}
    first = [columns[n] for n in head if n in NEEDED]
    totals = defaultdict(int)
    for row in rows:
        title, start, end = sorted((row[i] for i in first), key=lambda x: (x.isdigit(), x))
        totals[title.removesuffix(" [clone .kd]")] += int(end) - int(start)
    found = read_profile(file)
    assert {t.name: t.total_ns for t in found.totals} == totals and len(found.dispatches) == len(rows)


def test_samples_are_what_the_script_writes(tmp_path, truth):
    """The committed files and the script must not drift apart."""
    spec = importlib.util.spec_from_file_location("make_samples", SAMPLES / "make_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = tmp_path
    module.main()
    for file in tmp_path.rglob("*.*"):
        if file.is_file() and file.suffix != ".db":  # SQLite writes its own version into the file
            assert file.read_text() == (SAMPLES / file.relative_to(tmp_path)).read_text(), file.name


@pytest.mark.parametrize(
    "file", ["rocprofv3_kernel_stats.csv", "rocprof_results.stats.csv", "rocprof_compute/pmc_kernel_top.csv"]
)
def test_statistics_files_agree_with_the_trace(file):
    stats = {t.name: (t.calls, t.total_ns) for t in read_profile(SAMPLES / file).totals}
    trace = {t.name: (t.calls, t.total_ns) for t in read_profile(SAMPLES / "rocprofv3_kernel_trace.csv").totals}
    assert stats == trace


def test_second_reading_of_the_trace_with_the_csv_module():
    with (SAMPLES / "rocprofv3_kernel_trace.csv").open() as f:
        rows = list(csv.DictReader(f))
    total = sum(int(r["End_Timestamp"]) - int(r["Start_Timestamp"]) for r in rows)
    assert total == sum(t.total_ns for t in read_profile(SAMPLES / "rocprofv3_kernel_trace.csv").totals)


def test_api_copies_and_metrics():
    api = read_profile(SAMPLES / "rocprofv3_hip_api_trace.csv")
    assert (api.kind, api.totals[0].name, api.totals[0].calls) == ("api trace", "hipLaunchKernel", 24)
    copies = read_profile(SAMPLES / "rocprofv3_memory_copy_trace.csv")
    assert (copies.kind, copies.totals[0].total_ns) == ("memory copies", 300_000)
    panel = read_profile(SAMPLES / "rocprof_compute" / "2.1_System_Speed-of-Light.csv")
    assert panel.metrics["Active CUs"] == (288.0, "Cus", 304.0)
    assert panel.metrics["LDS Bank Conflicts/Access"][0] is None


# ---- counters and the roofline


def test_roofline_points_recomputed_by_hand(truth):
    points = {p.name: p for p in roofline_rows(read_profile(SAMPLES / "rocprof_compute"))}
    name = truth[0]["name"]
    rows = [r for r in truth if r["name"] == name]
    ns = sum(r["end"] - r["start"] for r in rows)
    work = sum(512 * r["counters"]["SQ_INSTS_VALU_MFMA_MOPS_BF16"] for r in rows)
    moved = sum(1024 * (r["counters"]["FETCH_SIZE"] + r["counters"]["WRITE_SIZE"]) for r in rows)
    p = points[name]
    assert math.isclose(p.tflops, work / ns / 1e3) and math.isclose(p.intensity, work / moved)
    assert p.bound == "compute" and math.isclose(p.share, p.tflops / 1307.4432, rel_tol=1e-4)
    norm = next(p for n, p in points.items() if "rms_norm" in n)
    assert norm.bound == "memory" and math.isclose(norm.share, norm.tb_s / 5.3)


def test_bytes_from_requests_agree_with_the_derived_counter():
    # 100 reads of 128 B, 40 of 64 B, 10 of 32 B; 30 writes of 64 B and 5 of 32 B.
    requests = {
        "TCC_EA0_RDREQ_sum": 150,
        "TCC_BUBBLE_sum": 100,
        "TCC_EA0_RDREQ_32B_sum": 10,
        "TCC_EA0_WRREQ_sum": 35,
        "TCC_EA0_WRREQ_64B_sum": 30,
    }
    assert memory_bytes(requests) == 100 * 128 + 40 * 64 + 10 * 32 + 30 * 64 + 5 * 32


def test_missing_counters_are_named():
    with pytest.raises(GuideError, match="SQ_INSTS_VALU"):
        flops({"SQ_WAVES": 1})
    with pytest.raises(GuideError, match="FETCH_SIZE"):
        memory_bytes({"SQ_WAVES": 1})
    with pytest.raises(GuideError, match="gpu=MI999"):
        place("k", 1, {}, gpu="MI999")
    with pytest.raises(GuideError, match="duration_ns=0"):
        place("k", 0, {})


def test_every_counter_is_explained_with_its_unit():
    for name in COUNTERS:
        assert describe_counter(name).endswith("]")
    assert describe_counter("TCC_HIT") == describe_counter("TCC_HIT_sum")
    assert "64 lanes" in describe_counter("SQ_INSTS_VALU_ADD_F16")
    assert "rocprofv3-avail" in describe_counter("NO_SUCH")


# ---- errors


def test_errors_name_the_line(tmp_path):
    good = (SAMPLES / "rocprofv3_kernel_trace.csv").read_text().splitlines()
    file = tmp_path / "k.csv"

    def expect(text, match):
        file.write_text(text)
        with pytest.raises(TraceError, match=match):
            read_profile(file)

    cut = "\n".join(good[:3]) + "\n" + good[3][:40]
    expect(cut, "line 4: .* cells, the header has 22")
    expect("\n".join([good[0], good[1].replace("2414192765353337", "soon")]), "line 2: Start_Timestamp is 'soon'")
    start_after_end = good[1].replace("2414192765353337", "9999999999999999")
    expect("\n".join([good[0], start_after_end]), "ends .* ns before it starts")
    expect(good[0], "a header but no rows")
    expect("a,b\n1,2\n", "belong to no profiler")
    expect("", "not a header")


NARROW = '"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value"\n'


def test_counters_without_times_are_read_and_nothing_is_said_of_time(tmp_path):
    file = tmp_path / "run_counter_collection.csv"
    rows = [(1, "norm", "SQ_WAVES", 16384), (1, "norm", "FETCH_SIZE", 5), (2, "norm", "SQ_WAVES", 16)]
    file.write_text(NARROW + "".join(f'{n},1,"{k}","{c}",{v}\n' for n, k, c, v in rows))
    found = read_profile(file)
    assert counter_sums(found) == {"norm": {"SQ_WAVES": 16400, "FETCH_SIZE": 5}}
    assert [d.duration_ns for d in found.dispatches] == [None, None] and not found.totals
    assert roofline_rows(found) == []
    file.write_text('"Agent_Id","Kernel_Name"\n1,"norm"\n')
    with pytest.raises(TraceError, match="belong to no profiler"):
        read_profile(file)


def test_the_known_slip_of_rocprofv2_is_named(tmp_path):
    """ROCm/rocprofiler issue 144: 21 names in the header and 19 cells in every row."""
    header, *rows = (SAMPLES / "rocprofv2_results.csv").read_text().splitlines()
    file = tmp_path / "results_0.csv"
    file.write_text("\n".join([header, *(row.rsplit(",", 2)[0] for row in rows)]))
    with pytest.raises(TraceError, match=r"line 2: two cells short of the header, a known slip of rocprofv2"):
        read_profile(file)
    file.write_text("\n".join([header, *(row.rsplit(",", 1)[0] for row in rows)]))
    with pytest.raises(TraceError, match="cut short or edited"):
        read_profile(file)


def test_other_kinds_of_file_are_named(tmp_path):
    db = tmp_path / "x_results.db"
    db.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(TraceError, match="not a readable database"):
        read_profile(db)
    other_db = tmp_path / "y.db"
    with sqlite3.connect(other_db) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(TraceError, match="no rocpd_kernel_dispatch table"):
        read_profile(other_db)
    trace = tmp_path / "t.json"
    trace.write_text('{"traceEvents": []}')
    with pytest.raises(TraceError, match="rocm-guide trace summary"):
        read_profile(trace)
    other = tmp_path / "o.json"
    other.write_text('{"rocprofiler-sdk-tool": []}')
    packets = tmp_path / "o.pftrace"
    packets.write_bytes(b"\x0a\x05")
    for file in (other, packets):
        with pytest.raises(TraceError, match="--output-format csv"):
            read_profile(file)
    with pytest.raises(TraceError, match=r"no pmc_perf\.csv"):
        read_profile(tmp_path)


@pytest.mark.parametrize("file", [*DISPATCH_FILES[:-1], "rocprof_compute/pmc_perf.csv", "rocprofv3_kernel_stats.csv"])
def test_truncation_is_a_named_error_or_fewer_rows(file, tmp_path):
    data = (SAMPLES / file).read_bytes()
    target = tmp_path / Path(file).name
    step = max(1, len(data) // 400)
    for end in range(0, len(data), step):
        target.write_bytes(data[:end])
        try:
            found = read_profile(target)
        except GuideError:
            continue
        assert len(found.dispatches) <= 24


# ---- is the fast kernel used


def test_missing_flash_attention_is_seen_in_real_traces(tmp_path):
    torch = pytest.importorskip("torch")
    from rocm_guide.observe.profiling.torch_trace.recording import record
    from rocm_guide.observe.profiling.torch_trace.summary import summarize

    q = torch.randn(1, 2, 64, 16)
    attention = torch.nn.functional.scaled_dot_product_attention

    def fast():
        attention(q, q, q, is_causal=True)

    def slow():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            attention(q, q, q, is_causal=True)

    a, b = (summarize(record(f, tmp_path / f"{f.__name__}.json", steps=2)) for f in (fast, slow))
    assert a.steps == b.steps == 2
    assert check_kernels(a)[0].used
    missing = check_kernels(b, within="GEMMs, place unknown")[0]
    assert not missing.used and any("bmm" in n or "matmul" in n for n in missing.instead)
    only_a, only_b = replaced_kernels(a, b)["attention"]
    assert any("flash" in n for n in only_a) and any("math" in n for n in only_b)
    with pytest.raises(GuideError, match="no regular expression"):
        check_kernels(a, {"x": "("})


def test_the_gpu_of_a_roofline_in_any_case_of_letters():
    counters = {"SQ_INSTS_VALU_FMA_F32": 156250, "FETCH_SIZE": 16384, "WRITE_SIZE": 16384}
    usual, other = (place("rms_norm", 10_000, counters, gpu=name) for name in ("MI300X", "mi300x"))
    assert usual == other and other.gpu == "MI300X"
    with pytest.raises(GuideError, match="gpu=nosuch: not in the table"):
        place("rms_norm", 10_000, counters, gpu="nosuch")
