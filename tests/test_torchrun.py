# SPDX-License-Identifier: MIT
"""What ends by PyTorch's own fault is started once more, and nothing else is."""

import subprocess

import pytest

from tests.torchrun import ABORTED, run_in_two

FAULT, ERROR, FINE = (1, f"step 6\n{ABORTED}\nSIGABRT"), (1, "ValueError: no such file"), (0, "done")


@pytest.mark.parametrize(
    ("ends", "last", "calls"),
    [
        ([FINE], FINE, 1),
        ([FAULT, FINE], FINE, 2),
        ([FAULT, FAULT], FAULT, 2),
        ([ERROR], ERROR, 1),
        ([(0, ABORTED)], (0, ABORTED), 1),
    ],
)
def test_only_that_fault_is_tried_again(ends, last, calls, tmp_path, monkeypatch):
    left = list(ends)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, *left.pop(0)))
    assert run_in_two(["train.py"], tmp_path, {}) == last and len(ends) - len(left) == calls
