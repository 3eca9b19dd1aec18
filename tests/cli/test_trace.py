# SPDX-License-Identifier: MIT
"""The commands trace and faults: their text, JSON alone with --json, one line and exit code 2 on bad input."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from rocm_guide.cli.main import main
from rocm_guide.observe.debugging.faults.agent_log import read_report
from rocm_guide.observe.debugging.faults.code_objects import find_objdump, saved_name
from rocm_guide.observe.profiling.torch_trace.summary import summarize
from tests.forks import start_fork

SAMPLES = Path(__file__).parents[1] / "samples"
PROFILING = Path(__file__).parents[2] / "notebooks" / "recorded"
CODE = Path(__file__).parents[1] / "samples/debugging/fault_code.co"
DATA = Path(__file__).parents[2] / "rocm_guide" / "data"


def run(*arguments: str | Path, code: int = 0) -> str:
    """What a command writes; in this process, which has its libraries imported (test_safety.py starts processes)."""
    out, err, ended = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["rocm-guide", *map(str, arguments)])
        try:
            main()
        except SystemExit as left:
            ended = left.code or 0
    said, refused = out.getvalue(), err.getvalue()
    assert ended == code, refused[-2000:]
    if code == 2:
        assert len(refused.strip().splitlines()) == 1 and not said
        return refused
    return said


def test_trace_summary_and_json_say_the_same():
    file = PROFILING / "decode_b32.json.gz"
    data = json.loads(run("trace", "summary", file, "--json"))
    assert data == json.loads(json.dumps(summarize(file).to_dict()))
    text = run("trace", "summary", file, "--top", "3")
    assert "NVIDIA H100" in text and "MLP GEMMs" in text and "mostly waiting for the CPU" in text
    assert len([line for line in text.splitlines() if line.startswith(" ") and "%" in line]) == 6 + 3


def test_trace_compare():
    a, b = (PROFILING / f"profile_{n}.json.gz" for n in ("a_eager", "b_graph"))
    rows = json.loads(run("trace", "compare", a, b, "--by", "total", "--json"))
    assert {r["name"] for r in rows} == {"span", "busy", "idle", "idle, waiting for a launch"}
    assert "saved ms" in run("trace", "compare", a, b)
    assert "'--by': 'colour' is none of slice, kernel, total" in run("trace", "compare", a, b, "--by", "colour", code=2)


def test_trace_kernels():
    text = run("trace", "kernels", PROFILING / "rocprof_compute", "--top", "2")
    assert "compute-bound" in text and "of what MI300X allows" in text
    data = json.loads(run("trace", "kernels", PROFILING / "rocprofv3_results.db", "--json"))
    assert data["kind"] == "counters" and data["roofline"][0]["gpu"] == "MI300X" and "dispatches" not in data
    assert "Active CUs" in run("trace", "kernels", PROFILING / "rocprof_compute" / "2.1_System_Speed-of-Light.csv")
    assert "--gpu MI1" in run("trace", "kernels", PROFILING / "rocprof_compute", "--gpu", "MI1", code=2)


def test_trace_counters():
    assert "launched" in run("trace", "counters", "SQ_WAVES")
    assert len(run("trace", "counters").splitlines()) > 30


def test_missing_and_damaged_files_are_one_line(tmp_path):
    bad = tmp_path / "t.json"
    bad.write_text('{"traceEvents": [{"ph"')
    assert "no.json" in run("trace", "summary", "no.json", code=2)
    assert "cut short" in run("trace", "summary", bad, code=2)
    assert "neither a wave nor a fault" in run("faults", "read", bad, code=2)


def test_profile_runs_a_script_with_its_arguments(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "work.py"
    script.write_text(
        "import sys, torch\nassert sys.argv[1:] == ['--size', '64']\ntorch.ones(64, 64) @ torch.ones(64, 64)\n"
    )
    out = tmp_path / "trace.json.gz"
    text = run("trace", "record", "--out", out, script, "--size", "64")
    assert "aten::mm" in text and "perfetto" in text
    assert any(k.name == "aten::mm" for k in summarize(out).kernels)
    assert "no such script" in run("trace", "record", tmp_path / "none.py", code=2)


def test_profile_of_a_script_that_exits_or_fails(tmp_path):
    """The work up to there is summarised, the exit code is the script's, and its traceback shows its own lines only."""
    pytest.importorskip("torch")
    script, out = tmp_path / "work.py", tmp_path / "trace.json"
    streams = {"out": tmp_path / "said", "err": tmp_path / "told"}
    settings = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    work = "import sys, torch\ntorch.ones(64, 64) @ torch.ones(64, 64)\n"
    for end, code, shown in (
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data"),
        ("int('x')", 1, "ValueError: invalid literal"),
    ):
        script.write_text(work + end + "\n")
        for stream in streams.values():
            stream.write_text("")
        words = ["trace", "record", "--out", str(out), str(script)]
        done = start_fork(["torch"], "rocm_guide.cli.main", words, settings=settings, folder=tmp_path, **streams)
        ended, (said, told) = done.wait(300), (stream.read_text() for stream in streams.values())
        assert ended == code and "aten::mm" in said and "perfetto" in said, told
        assert shown in told and "typer" not in told and "runpy" not in told
        assert shown or not told


@pytest.mark.skipif(find_objdump() is None, reason="needs llvm-objdump 17 or newer")
def test_faults_read_with_code(tmp_path):
    report = DATA / "fault_report.txt"
    uri = read_report(report).faulting[0].disassembly.uri
    shutil.copy(CODE, tmp_path / saved_name(uri))
    assert "lanes 8-63" in run("faults", "read", report, "--code", tmp_path)
    data = json.loads(run("faults", "read", report, "--code", tmp_path, "--json"))
    assert data["kernel"] == "scale_rows" and data["suspects"][0]["lanes"] == list(range(8, 64))


def test_faults_read_takes_a_listing():
    assert "lanes 8-63" in run("faults", "read", DATA / "fault_report.txt", "--code", DATA / "fault_code.s")
    assert "no such folder" in run("faults", "read", DATA / "fault_report.txt", "--code", "no/such", code=2)


def test_faults_log_and_env():
    text = run("faults", "log", SAMPLES / "debugging" / "dmesg.txt")
    assert (
        "page fault at 0x7f1e40019000 (a read), python3 pid 4242, on 0000:c1:00.0" in text
        and len(text.splitlines()) == 7
    )
    assert len(json.loads(run("faults", "log", SAMPLES / "debugging" / "dmesg.txt", "--json"))) == 7
    assert "export AMD_SERIALIZE_KERNEL=3" in run("faults", "env")
    made = run("faults", "env", "--agent", "lib", "--precise").splitlines()
    undone = run("faults", "env", "--undo").splitlines()
    names = {line.removeprefix("export ").partition("=")[0] for line in made}
    assert names == {line.removeprefix("unset ") for line in undone}, "the undo needs no options to undo all of it"
