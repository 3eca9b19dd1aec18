# SPDX-License-Identifier: MIT
"""The adapter that notebook 02 leaves for later ones, trained once in a run of the tests."""

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

#: What the code of a notebook has that trains the adapter where none is there.
TRAINS = re.compile(r"adapter_folder\(run|merged_model\(run\)")
CODE = "from rocm_guide.finetune import adapter_folder, open_run\nadapter_folder(open_run('my-model'))"


def trained_runs(factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs with the adapter in ``my-model``; a test copies it, for it is every worker's.

    Seven notebooks would train it, a quarter of a minute each; a reader who takes them in their order has it already.
    """
    base = factory.getbasetemp()
    # Workers of pytest-xdist have sibling folders: what they share lies one higher.
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    runs, done = folder / "trained-runs", folder / "trained-runs.done"
    with (folder / "trained-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-c", CODE], env={**os.environ, "ROCM_GUIDE_RUNS": str(runs)}, check=True)
            done.touch()
    return runs
