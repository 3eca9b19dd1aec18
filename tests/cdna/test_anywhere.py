# SPDX-License-Identifier: MIT
"""Functions of a notebook's cell that launch kernels, called where there is no GPU."""

import pytest
import torch

from cdna.interpret import explain_error
from cdna.testing import HEAD, run_cell
from rocm_guide.common.base import GuideError
from rocm_guide.kernels.anywhere import call

SCALE = (
    HEAD
    + """
FACTOR = tl.constexpr(3)
x = "a notebook has globals that are called like parameters"

@triton.jit
def times(v, by: tl.constexpr):
    return v * by

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr = 4):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(y + o, times(v, FACTOR), mask=o < n)

def scaled(t, grid=None):
    out = torch.full_like(t, float("nan"))
    scale[(-(-t.numel() // 4),)](t, out, t.numel())
    return out
"""
)


def test_a_function_of_a_cell_is_called():
    data = torch.arange(10.0)
    assert call(run_cell(SCALE)["scaled"], data).tolist() == (data * 3).tolist()


def test_what_cannot_be_sent_is_refused_by_name():
    cell = run_cell(HEAD + "table = torch.zeros(3)\ndef f(t): return t + table")
    with pytest.raises(GuideError, match=r"f reads table \(Tensor\).*pass it as an argument"):
        call(cell["f"], torch.zeros(3))


def test_an_error_of_a_function_in_a_cell_names_its_line():
    cell = run_cell("def f(t):\n    return 1 // 0\n")
    with pytest.raises(GuideError, match=r"f in the interpreter: f, line 2 of the cell \(return 1 // 0\): ZeroDiv"):
        call(cell["f"], torch.zeros(1))
    assert explain_error(GuideError("n=3: use 4")) == "n=3: use 4"
