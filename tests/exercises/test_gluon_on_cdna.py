# SPDX-License-Identifier: MIT
"""The checks of notebook 37 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import pytest

from cdna.testing import run_cell
from rocm_guide.exercises import gluon_on_cdna
from tests.exercises.written import Exercises

TASKS = Exercises("37", gluon_on_cdna, {"turned": "turned", "product": "product", "rows": "rms"})
WHOLE, STARTED, judged = TASKS.whole, TASKS.started, TASKS.judged
PLACES = TASKS.cell("\ndef places(")
PLACES = PLACES[PLACES.index("@gluon.jit\ndef places(") : PLACES.index("@gluon.jit\ndef copy(")]
HEAD = """import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3
"""
TASKS.head = HEAD + PLACES


@pytest.mark.parametrize("check", WHOLE)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    assert "no kernel was launched" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "old", "new", "said"),
    [
        ("turned", "per_phase=4, max_phase=16", "per_phase=1, max_phase=1", "lanes meet in one bank; swizzle"),
        ("turned", "tile.permute([1, 0]).load(ROW)", "tile.load(ROW)", "element [0, 1] is"),
        ("turned", "    tile.store(gl.load(x_ptr + i * 64 + j))\n", "", "of LDS, which nobody has written"),
        (
            "turned",
            "gl.store(y_ptr + i * 64 + j, tile.permute([1, 0]).load(ROW))",
            "gl.store(y_ptr + j * 64 + i, tile.load(ROW))",
            "global stores: ",
        ),
        ("turned", "[1, 4], [4, 16]", "[1, 1], [1, 64]", "global loads: "),
        ("turned", "[1, 4], [4, 16]", "[1, 4], [2, 16]", "Layout has 32 threads per warp"),
        ("product", "[32, 32, 8]", "[16, 16, 16]", "instr_shape is [32, 32, 8] here"),
        ("product", "range(0, K, 32)", "range(0, 32, 32)", "K = 96: element"),
        ("product", "w_ptr + k, w_at", "w_ptr, w_at", "K = 96: element"),
        ("product", "gl.DotOperandLayout(1, M32, 4)", "gl.DotOperandLayout(1, M32, 8)", "mismatching kWidth"),
        ("product", "return y", "return x @ w.T", "K = 32: element"),
        ("rows", "[1, 8], [1, 64], [4, 1]", "[1, 8], [1, 64], [1, 4]", "bytes of LDS"),
        ("rows", "[1, 8], [1, 64]", "[1, 1], [1, 64]", "128 bits a lane are possible"),
        ("rows", "/ 1024)", "/ 1023)", "8 rows: element"),
        ("rows", ".to(gl.float32)", "", "8 rows: element"),
        ("rows", ", mask=i < n, other=0.0", "", "which has 10240"),
        ("rows", "return y", "return y[:1]", "a tensor of [8, 1024] is wanted"),
    ],
)
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    assert not judged(check, WHOLE[check], (old, new))
    assert said in capsys.readouterr().out


def test_a_kernel_in_tritons_language_is_not_the_exercise(capsys):
    cell = """import torch, triton, triton.language as tl
@triton.jit
def turn(x, y):
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    tl.store(y + j * 64 + i, tl.load(x + i * 64 + j))

def turned(x):
    y = torch.empty_like(x)
    turn[(1,)](x, y)
    return y
"""
    assert not gluon_on_cdna.check_turned(run_cell(cell)["turned"])
    assert "decorate it with @gluon.jit" in capsys.readouterr().out
