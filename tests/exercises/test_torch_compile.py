# SPDX-License-Identifier: MIT
"""Notebook 16: its checks accept the solution and answer wrong ones with a hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.torch_compile import check_fusion, check_graphs, check_no_break

RIGHT = {"dynamic=False": 5, "dynamic=True": 1, "dynamic=None": 2}


def by_where(x):
    return torch.where(x.max() > 0, torch.relu(x) / (1 + x.max()), torch.zeros_like(x))


def test_right_answers(capsys):
    assert check_graphs(RIGHT)
    assert check_no_break(by_where)
    # The maximum of relu(x) is 0 when nothing is positive, and 0 / 1 is what is wanted: no choice at all.
    assert check_no_break(lambda x: torch.relu(x) / (1 + torch.relu(x).max()))
    assert check_fusion(1)
    assert capsys.readouterr().out.count("[OK]") == 4


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_graphs({}), "dynamic=False is missing"),
        (lambda: check_graphs({**RIGHT, "dynamic=False": 1}), "every length is compiled for itself"),
        (lambda: check_graphs({**RIGHT, "dynamic=True": 5}), "a symbol from the start"),
        (lambda: check_graphs({**RIGHT, "dynamic=None": 1}), "when a second one arrives"),
        (lambda: check_no_break(lambda x: by_where(x) if x.max() > 0 else x * 0), "torch.where instead of if"),
        (lambda: check_no_break(torch.relu), "the answer is [0.25, 0.0, 0.75]"),
        (lambda: check_no_break(lambda x: torch.relu(x) / (1 + x.max())), "for [-1.0, -3.0] the answer is [0.0, 0.0]"),
        (lambda: check_no_break(lambda x: None), "the answer is"),
        (lambda: check_no_break(lambda x: x.reshape(7)), "it fails on a tensor of three numbers"),
        (lambda: check_fusion(2), "reads each row once"),
    ],
)
def test_wrong_answers(call, hint, capsys):
    assert call() is False
    out = capsys.readouterr().out
    assert out.startswith("[HINT]") and hint in out
