# SPDX-License-Identifier: MIT
"""Every notebook on a pretended MI300X, cell by cell: what it does where a GPU is, without one (tests/pretended).

What costs minutes is dealt out over runs: each takes the notebooks of its turn, ``ROCM_GUIDE_ALL=1`` all of them.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from rocm_guide.cli.lessons import catalogue
from tests.in_turn import in_turn
from tests.notebooks.my_model import trained_runs
from tests.pretended.left_out import LEFT_OUT, SECONDS, SHRUNK, UNPROVEN
from tests.pretended.notebook import ROOT, notebook, run_pretended, stale_rows

LESSONS = catalogue(ROOT / "notebooks")
#: Seconds of processor time that the notebooks of one run take; three of them need more alone.
BUDGET = 70


def shares() -> list[list[str]]:
    """The notebooks, dealt out so that each run takes about as long: the longest first, to whoever has least."""
    found: list[list[str]] = [[] for _ in range(-(-sum(SECONDS.values()) // BUDGET))]
    for number in sorted(SECONDS, key=SECONDS.__getitem__, reverse=True):
        min(found, key=lambda chosen: sum(SECONDS[n] for n in chosen)).append(number)
    return found


SHARES = shares()
TURNS = {number: turn for turn, chosen in enumerate(SHARES) for number in chosen}


def told(cell: dict) -> str:
    """One failed cell, for reading."""
    last = "\n".join(cell.get("traceback", "").splitlines()[-12:])
    return f"notebook {cell['notebook']}, cell {cell['cell']}: {cell['error']}: {cell['message']}\n{last}"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Where the model lies that travels from notebook to notebook."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def merged(runs, tmp_path_factory):
    """It, trained and merged as on the CPU that is here: with a GPU pretended one cell would take minutes."""
    if not (runs / "my-model").exists():  # notebook 02 may have been here
        shutil.copytree(trained_runs(tmp_path_factory), runs, dirs_exist_ok=True)
    code = "from rocm_guide.finetune import merged_model, open_run\nmerged_model(open_run('my-model'))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "ROCM_GUIDE_RUNS": str(runs)}, check=True)


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize(
    "lesson", [pytest.param(x, marks=in_turn(TURNS[x.number], len(SHARES)), id=x.path.stem) for x in LESSONS]
)
def test_a_notebook_on_a_gpu(lesson, tmp_path, runs, request):
    if "merged_model(" in lesson.path.read_text(encoding="utf-8"):
        request.getfixturevalue("merged")
    cells = run_pretended(lesson.path, tmp_path, runs)
    assert cells
    failed = [told(cell) for cell in cells if cell["status"] == "failed"]
    assert not failed, "\n\n".join(failed)


def test_every_notebook_has_its_turn():
    assert sorted(TURNS) == [x.number for x in LESSONS]


def test_the_tables_name_cells_that_are_there():
    assert stale_rows() == []


def test_what_is_never_run_here():
    rows = [f"{row.notebook}: {row.phrase!r}: {row.why}" for row in LEFT_OUT]
    rows += [f"{row.notebook}: {row.phrase!r}: its assertions are not held against it: {row.why}" for row in UNPROVEN]
    rows += [f"{row.notebook}: {row.large!r} is {row.small!r} here" for row in SHRUNK]
    pytest.skip("not as on a GPU: " + "; ".join(rows))


def test_what_a_real_gpu_refuses_is_told(tmp_path):
    """One cell for each kind of fault that notebooks had on a GPU; what follows a failed cell is run too."""
    cells = [
        "import torch\nfrom rocm_guide.common.device import accelerator, pick_dtype\n"
        "assert accelerator().arch == 'gfx942'",
        "on_gpu, on_cpu = torch.ones(4, 4, device='cuda', dtype=pick_dtype()), torch.ones(4, 4)",
        "on_gpu + on_cpu",
        "import matplotlib.pyplot as plt\nplt.plot(on_gpu[0])",
        "from cdna.examples.int4_scores import stream_copy\nstream_copy[(2,)](on_cpu[0], on_gpu[0], 4, BLOCK=2)",
        "torch.allclose(on_gpu, on_gpu.float())",
        "third = on_gpu / 3\nassert (third.float() - 1 / 3).abs().max() <= 1e-5",
        "assert not third.isnan().any()",
        "raise SystemExit",
    ]
    nb = {"cells": [{"cell_type": "code", "metadata": {}, "source": source} for source in cells]}
    path = tmp_path / "99_faults.ipynb"
    path.write_text(json.dumps(nb))
    (tmp_path / "room").mkdir()
    found = run_pretended(path, tmp_path / "room")
    assert [(c["cell"], c["error"], c["message"].split("\n")[0][:74]) for c in found if c["status"] != "ok"] == [
        (2, "RuntimeError", "Expected all tensors to be on the same device, but found at least two devi"),
        (3, "TypeError", "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy"),
        (4, "ValueError", "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)"),
        (5, "RuntimeError", "BFloat16 did not match Float"),
        (6, "AssertionError", ""),
        (8, "SystemExit", ""),
    ]


def test_the_file_of_a_notebook():
    assert notebook("00").stem == "00_start_here"
