# SPDX-License-Identifier: MIT
"""Programs in two processes under torchrun."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ABORTED = "terminate called without an active exception"


def run_in_two(program: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the exit code of ``python PROGRAM`` in two processes, and what all of them said.

    One that ends by the fault below is started once more; a training goes on from its checkpoint.
    """
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *program]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    for _ in range(2):
        done = subprocess.run(words, cwd=folder, env=environment, timeout=300, **said)
        # A thread of gloo takes the GIL while Python ends: https://github.com/pytorch/pytorch/issues/190489
        if not (done.returncode and ABORTED in done.stdout):
            break
    return done.returncode, done.stdout
