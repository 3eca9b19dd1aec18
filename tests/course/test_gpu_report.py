# SPDX-License-Identifier: MIT
"""The table of runs on a GPU: what identifies a row, how runs are merged, what the driver says of memory."""

import copy
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course import gpu_report
from course.gpu_report import changed_since, code_hash, merge_gpu_report, read_gpu_report
from course.memory_meter import MemoryMeter, gpu_memory
from course.worker import failure_of
from rocm_guide.cli.lessons import catalogue, read_notebook
from rocm_guide.common.base import GuideError

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks/results/course_on_gpu.json"


def code(source, *tags):
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}, "outputs": []}


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": "# 01 · Title", "metadata": {}},
        code("RANK = 16  # of the adapter", "parameters"),
        code("print(RANK)"),
    ]
}


@pytest.mark.parametrize(
    ("cell", "change", "same"),
    [
        (0, {"source": "# 01 · Another title"}, True),
        (1, {"source": "RANK = 16  # said in other words"}, True),
        (2, {"outputs": [{"output_type": "stream", "name": "stdout", "text": "16"}], "execution_count": 3}, True),
        (2, {"source": ["print(", "RANK)"]}, True),
        (2, {"source": "print(RANK)\n"}, True),
        (1, {"source": "RANK = 8  # of the adapter"}, False),
        (1, {"source": "RANKS = 16  # of the adapter"}, False),
        (2, {"source": "print(RANK + 1)"}, False),
        (2, {"cell_type": "markdown"}, False),
    ],
)
def test_only_what_runs_counts_in_the_hash(cell, change, same):
    other = copy.deepcopy(NOTEBOOK)
    other["cells"][cell].update(change)
    assert (code_hash(other) == code_hash(NOTEBOOK)) is same


def test_the_order_of_cells_counts():
    cells = [code("a = 1"), code("a = 2")]
    assert code_hash({"cells": cells}) != code_hash({"cells": cells[::-1]})


@pytest.fixture
def course(make_notebook, monkeypatch):
    make_notebook("01_good", "x = 1")
    folder = make_notebook("02_bad", "1 / 0").parent
    monkeypatch.setattr(gpu_report, "_driver", lambda: "NVIDIA 1.2")
    return catalogue(folder)


def run_of(lessons, hardware="1 x Some GPU", parameters=None, **states):
    """What run_course returns of a run that ended like this."""
    entries = {}
    for x in lessons:
        entry = {"code": code_hash(read_notebook(x.path)), "parameters": parameters or {}, "gpu_peak_mib": 700}
        entry |= {"seconds": 3.5, "status": states.get(f"n{x.number}", "ok"), "failure": None}
        if entry["status"] == "failed":
            entry["failure"] = {
                "cell": 4,
                "error": "ZeroDivisionError",
                "message": "division\nby zero",
                "traceback": "",
            }
        entries[x.number] = entry
    return {"hardware": hardware, "jobs": 2, "notebooks": entries}


def test_runs_are_merged_row_by_row(course, tmp_path):
    file = tmp_path / "gpu.json"
    merge_gpu_report(file, run_of(course, n02="failed"), course, day="2026-11-26")
    rows = json.loads(file.read_text())["rows"]
    assert [r["status"] for r in rows] == ["ok", "failed"] and rows[0]["gpu_peak_mib"] == 700
    assert (rows[1]["cell"], rows[1]["error"], rows[1]["message"]) == (4, "ZeroDivisionError", "division by zero")

    # The same again takes the old row's place; other parameters and another GPU are rows of their own.
    merge_gpu_report(file, run_of(course), course[1:], day="2026-11-27")
    merge_gpu_report(file, run_of(course, parameters={"MODEL": "random:x"}), course[:1], day="2026-11-27")
    merge_gpu_report(file, run_of(course, "8 x Another", n01="stopped"), course, day="2026-11-28")
    table = read_gpu_report(file)
    told = [(r["hardware"], r["parameters"], r["notebook"], r["status"]) for r in table["rows"]]
    assert told == [
        ("1 x Some GPU", {"MODEL": "random:x"}, "01", "ok"),
        ("1 x Some GPU", {}, "01", "ok"),
        ("1 x Some GPU", {}, "02", "ok"),
        ("8 x Another", {}, "02", "ok"),
    ], "a notebook that did not end has no row"
    first = table["machines"]["1 x Some GPU"]
    assert first["day"] == "2026-11-27" and first["driver"] == "NVIDIA 1.2" and "torch" in first["versions"]
    assert first["versions"]["torch"] == importlib.metadata.version("torch")


def test_what_changed_since_is_named(course, tmp_path, make_notebook):
    file = tmp_path / "gpu.json"
    merge_gpu_report(file, run_of(course, n02="failed"), course, day="2026-11-26")
    table = read_gpu_report(file)
    assert changed_since(table, course) == ["02"], "one that failed has not run"
    make_notebook("01_good", "x = 2")
    make_notebook("02_bad", "1 / 0", parameters="SCALE = 'auto'\nMORE = 1")
    assert changed_since(table, course) == ["01", "02"]
    merge_gpu_report(file, run_of(course, parameters={"SCALE": "tiny"}), course, day="2026-11-26")
    assert changed_since(read_gpu_report(file), course) == ["01", "02"], "other parameters say nothing of the defaults"


@pytest.mark.parametrize("text", ["{}", "[1]", "no", '{"machines": {}, "rows": [{"notebook": "01"}]}'])
def test_another_file_is_refused_and_stays(course, tmp_path, text):
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(GuideError, match=r"mine.json: not a table of --gpu-report.*choose another"):
        merge_gpu_report(file, run_of(course), course, day="2026-11-26")
    assert file.read_text() == text


def test_without_a_gpu_there_is_no_such_report(make_notebook, tmp_path):
    if any(map(os.path.exists, ("/dev/kfd", "/dev/nvidiactl", "/dev/dxg"))):
        pytest.skip("this machine has a GPU")
    folder = make_notebook("01_good", "x = 1").parent
    words = ["run", "--notebooks", folder, "--out", tmp_path / "out", "--gpu-report", tmp_path / "gpu.json"]
    done = subprocess.run(
        [sys.executable, "-m", "rocm_guide.cli.main", *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert (
        done.stderr.strip() == "--gpu-report: this machine has no GPU; leave it out" and not (tmp_path / "out").exists()
    )


def test_amds_driver_tells_by_files(tmp_path):
    for pid, files in {"10": {"vram_1": "1000", "vram_2": "24", "sdma_1": "5"}, "11": {"vram_1": "7"}}.items():
        (tmp_path / pid).mkdir()
        for name, text in files.items():
            (tmp_path / pid / name).write_text(text + "\n")
    assert gpu_memory({10, 12}, kfd=tmp_path) == 1024
    assert gpu_memory({10, 11}, kfd=tmp_path) == 1031


def fake_smi(folder, text, status=0):
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\nexit {status}\n")
    file.chmod(0o755)
    return str(file)


def test_nvidias_command_is_read(tmp_path):
    nowhere = tmp_path / "no"
    smi = fake_smi(tmp_path, "10, 512\n11, 3\n10, 88\n12, [N/A]")
    assert gpu_memory({10, 12}, kfd=nowhere, smi=smi) == 600 << 20  # on two GPUs
    assert gpu_memory({10}, kfd=nowhere, smi=fake_smi(tmp_path, "no driver", status=9)) is None
    assert gpu_memory({10}, kfd=nowhere, smi=str(nowhere)) is None


def test_the_meter_keeps_the_largest_and_asks_for_its_own_children():
    asked, answers = [], iter([5, 9, 2])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with MemoryMeter(0.01, gpu=lambda pids: (asked.append(set(pids)), next(answers, None))[1]) as meter:
            deadline = time.monotonic() + 60
            while len(asked) < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
        child.communicate(b"\n")
    assert meter.gpu_peak == 9 and child.pid in asked[0]
    with MemoryMeter(0.01, gpu=lambda pids: None) as meter:
        meter.look_at_gpus()
    assert meter.gpu_peak is None, "a driver that does not tell is no zero"


def test_a_failing_cell_has_the_number_of_the_authors_notebook():
    failing = code("1 / 0")
    said = ["\x1b[31mCell In[2]\x1b[0m, line 1\n----> 1 RANK", "\x1b[31mCell In[3]\x1b[0m, line 1\n----> 1 1 / 0"]
    failing["outputs"] = [{"output_type": "error", "ename": "E", "evalue": "", "traceback": said}]
    cells = [*NOTEBOOK["cells"][:2], code("RANK = 8", "injected-parameters"), failing]
    for count, cell in enumerate((c for c in cells if c["cell_type"] == "code"), 1):
        cell["execution_count"] = count
    found = failure_of({"cells": cells})
    assert found["cell"] == 3
    assert "\ncell 3, line 1\n----> 1 1 / 0" in found["traceback"] and "Cell In" not in found["traceback"]
    assert found["traceback"].startswith("the cell of the given parameters, line 1")


def test_the_stored_run_on_a_gpu_is_of_todays_notebooks():
    """At most three are new or have changed since they ran well on a GPU at their defaults; they are named."""
    assert STORED.is_file(), f"{STORED}: none stored; on a GPU machine: rocm-guide run --gpu-report {STORED}"
    waiting = changed_since(read_gpu_report(STORED), catalogue(ROOT / "notebooks"))
    assert len(waiting) <= 3, f"not run on a GPU as they are now: {', '.join(waiting)}"
