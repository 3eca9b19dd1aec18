# SPDX-License-Identifier: MIT
# ruff: noqa: E501
"""Damaged input to every reader of profiles, faults and saved settings: a result, or an error with a name, never else.

`ROCM_GUIDE_FUZZ=100000 pytest tests/test_profiling_fuzz.py` runs the long campaign.
"""

from __future__ import annotations

import gzip
import io
import os
import random
from pathlib import Path

import pytest

from rocm_guide.base import GuideError
from rocm_guide.faults import parse_report
from rocm_guide.faults_code import extract_code, parse_uri
from rocm_guide.faults_explain import explain_report
from rocm_guide.faults_log import scan_log
from rocm_guide.profiling_read import read_profile, roofline_rows
from rocm_guide.system_state import load_state
from rocm_guide.trace_attribute import device_work, idle_gaps
from rocm_guide.trace_events import iter_text_events
from rocm_guide.trace_store import timeline_of

SAMPLES = Path(__file__).parent / "samples"
PROFILING = Path(__file__).parents[1] / "notebooks" / "recorded"
DATA = Path(__file__).parents[1] / "rocm_guide" / "data"
COUNT = int(os.environ.get("ROCM_GUIDE_FUZZ", "150"))
TOKENS = (b'"', b",", b"{", b"}", b"[", b"]", b":", b"\n", b"\0", b"-1", b"1e999", b"NaN", b"null", b"\xff\xfe", b"0x",
          b"99999999999999999999", b"true", b'"ts": "x"', b"wave_1: pc=0xffffffffffffffffff", b"=> ", b"[0] ", b"()")  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four edits: flip, cut, double, insert a token, delete a stretch, swap two lines."""
    work = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        if not work:
            break
        at, kind = rng.randrange(len(work)), rng.randrange(7)
        if kind == 0:
            work[at] = rng.randrange(256)
        elif kind == 1:
            work[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del work[at:]
        elif kind == 3:
            work[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            del work[at : at + rng.randrange(1, 60)]
        elif kind == 5:
            work[at:at] = work[at : at + rng.randrange(1, 200)]
        else:
            lines = work.split(b"\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            work = bytearray(b"\n".join(lines))
    return bytes(work)


def small_trace(name: str) -> bytes:
    """The first events of a real trace, so that each mutation is read quickly."""
    import json

    document = json.loads(gzip.decompress((PROFILING / name).read_bytes()))
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    kinds: dict = {}
    chosen = []
    for e in events:
        kinds[e["cat"]] = kinds.get(e["cat"], 0) + 1
        if kinds[e["cat"]] <= 12:
            chosen.append(e)
    return json.dumps(
        {"schemaVersion": 1, "deviceProperties": [{"name": "x"}], "traceEvents": chosen}, indent=1
    ).encode()


def read_trace(data: bytes, _: Path) -> None:
    line = timeline_of(iter_text_events(io.StringIO(data.decode("utf-8", "replace")), "t", {}))
    if len(line.device) or len(line.ops):
        device_work(line)
        idle_gaps(line)


def read_file(suffix: str):
    def read(data: bytes, folder: Path) -> None:
        file = folder / f"x{suffix}"
        file.write_bytes(data)
        roofline_rows(read_profile(file))

    return read


def read_report(data: bytes, folder: Path) -> None:
    explain_report(parse_report(data.decode("utf-8", "replace").splitlines()), folder=folder)


def read_state(data: bytes, folder: Path) -> None:
    (folder / "state.json").write_bytes(data)
    load_state(folder / "state.json")


def read_uri(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    parse_uri(text)
    extract_code(text, folder=folder, proc=str(folder))


READERS = {
    "torch cpu trace": (lambda: small_trace("torch_cpu_train.json.gz"), read_trace),
    "torch gpu trace": (lambda: small_trace("decode_b1.json.gz"), read_trace),
    "rocprofv3 kernel trace": (lambda: (PROFILING / "rocprofv3_kernel_trace.csv").read_bytes(), read_file(".csv")),
    "rocprofv3 counters": (lambda: (PROFILING / "rocprofv3_counter_collection.csv").read_bytes()[:3000].rsplit(b"\n", 1)[0], read_file(".csv")),
    "rocprofv3 statistics": (lambda: (PROFILING / "rocprofv3_kernel_stats.csv").read_bytes(), read_file(".csv")),
    "rocprofv3 json": (lambda: (PROFILING / "rocprofv3_results.json").read_bytes(), read_file(".json")),
    "rocprofv3 perfetto": (lambda: (PROFILING / "rocprofv3.pftrace").read_bytes(), read_file(".pftrace")),
    "rocprofv3 database": (lambda: (PROFILING / "rocprofv3_results.db").read_bytes(), read_file(".db")),
    "rocprof v1": (lambda: (PROFILING / "rocprof_results.csv").read_bytes()[:3000].rsplit(b"\n", 1)[0], read_file(".csv")),
    "rocprofv2": (lambda: (PROFILING / "rocprofv2_results.csv").read_bytes()[:3000].rsplit(b"\n", 1)[0], read_file(".csv")),
    "rocprof-compute": (lambda: (PROFILING / "rocprof_compute" / "pmc_perf.csv").read_bytes()[:3000].rsplit(b"\n", 1)[0], read_file(".csv")),
    "rocprof-compute panel": (
        lambda: (PROFILING / "rocprof_compute" / "2.1_System_Speed-of-Light.csv").read_bytes(), read_file(".csv")),
    "agent report": (lambda: (DATA / "fault_report.txt").read_bytes()[-9000:], read_report),
    "agent report, assert": (lambda: (SAMPLES / "faults" / "assert_trap.txt").read_bytes(), read_report),
    "dmesg": (lambda: (SAMPLES / "faults" / "dmesg.txt").read_bytes(),
              lambda data, _: scan_log(data.decode("utf-8", "replace").splitlines())),
    "code object uri": (lambda: b"memory://4242#offset=0x7f1e10c3e0a0&size=4648", read_uri),
    "saved settings": (lambda: b'{"version": 1, "saved": {"numa_balancing": {"before": "1", "set": "0"}}}', read_state),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_damaged_input_gives_a_result_or_a_named_error(name, tmp_path):
    make, read = READERS[name]
    data = make()
    read_or_named(read, data, tmp_path)
    rng = random.Random(name)
    named = 0
    for _ in range(COUNT):
        broken = mutate(data, rng)
        try:
            read(broken, tmp_path)
        except GuideError as e:
            named += 1
            assert "\n" not in str(e) and str(e), broken[:200]
    if name not in ("dmesg", "agent report", "agent report, assert"):
        assert named > COUNT // 20, "the mutator hardly ever breaks anything"


def read_or_named(read, data, folder) -> None:
    """The undamaged sample must be read without an error; a URI has nothing to point at."""
    try:
        read(data, folder)
    except GuideError as e:
        assert "--save-code-objects" in str(e)
