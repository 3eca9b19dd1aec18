# SPDX-License-Identifier: MIT
"""Puzzles inside notebooks 23, 24, 30, 33, 34 and 39: solutions pass, starters do not yet, first attempts are named."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import SOLVED, show_solution

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
#: Notebook, module of its checks, check, puzzle; where a starter is to be mended, what its verdict names first.
TASKS = [
    ("23", "triton_occupancy", "check_softmax_waves", "softmax", "waves        3 for each SIMD"),
    ("23", "triton_occupancy", "check_lean_matmul", "lean_matmul", "4 spilled"),
    ("24", "ir_and_isa", "check_pair_sums", "pair_sums", "16 of 16 bits"),
    ("24", "ir_and_isa", "check_transpose", "transpose", ""),
    ("30", "row_kernels", "check_online", "softmax_online", ""),
    ("30", "row_kernels", "check_norm", "rms_norm", ""),
    ("30", "row_kernels", "check_norm_backward", "rms_norm_backward", ""),
    ("33", "fused_fp8_kernels", "check_quantise", "quantise", ""),
    ("33", "fused_fp8_kernels", "check_gemv", "skinny_gemv", ""),
    ("34", "attention_kernels", "check_skipping", "causal_attention", ""),
    ("39", "decoding_kernels", "check_decode", "decode", ""),
    ("39", "decoding_kernels", "check_paged", "paged_decode", ""),
]
CHECKS = {check: (module, puzzle) for _, module, check, puzzle, _ in TASKS}


def cells(number):
    (file,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return ["".join(c["source"]) for c in json.loads(file.read_text(encoding="utf-8"))["cells"]]


def of_cell(source, check):
    """The function that a cell of a notebook gives to its check."""
    (name,) = re.findall(rf"^(?:assert )?{check}\((\w+)\)", source, re.M)
    kept = re.sub(r"from rocm_guide\.[^(\n]*(\([^)]*\)|[^\n]*)", "", source)
    return run_cell(HEAD + "\n".join(x for x in kept.splitlines() if "check_" not in x) + "\n")[name]


def starter(number, check):
    (source,) = (c for c in cells(number) if f"\n{check}(" in c and f"assert {check}(" not in c)
    return source


def solution(number, check):
    """The code of the solution: of its cell, with what it takes over from the starter; or the library's."""
    (source,) = (c for c in cells(number) if f"assert {check}(" in c)
    puzzle = CHECKS[check][1]
    if "SOLVED[" in source:
        assert f'{check}(SOLVED["{puzzle}"])' in source and f'show_solution("{puzzle}")' in source
        return show_solution(puzzle).text
    before = "" if "@triton.jit" in source else starter(number, check).replace(f"\n{check}(", "\n# check_ (")
    return before + "\n" + source


def judged(check, call):
    return getattr(importlib.import_module(f"rocm_guide.exercises.{CHECKS[check][0]}"), check)(call)


@pytest.mark.parametrize(("number", "check", "verdict"), [(n, c, v) for n, _, c, _, v in TASKS], ids=list(CHECKS))
def test_the_starter_runs_and_is_not_yet_right(number, check, verdict, capsys):
    assert not judged(check, of_cell(starter(number, check), check))
    said = capsys.readouterr().out
    assert (verdict or "no kernel has stored anything yet") in said
    if verdict:  # to be mended: right, and its code is not
        assert "[OK]   result" in said and "[FAIL]" in said


@pytest.mark.parametrize(("number", "check"), [(n, c) for n, _, c, _, _ in TASKS], ids=list(CHECKS))
def test_the_solution_passes(number, check):
    code, puzzle = solution(number, check), CHECKS[check][1]
    assert judged(check, SOLVED[puzzle] if puzzle in SOLVED else of_cell(code, check))


@pytest.mark.parametrize(
    ("number", "check", "old", "new", "said"),
    [
        ("23", "check_softmax_waves", "num_warps=8", "num_warps=1", "4 are possible: a smaller block, or more warps"),
        ("23", "check_lean_matmul", "BM=128, BN=128, BK=32", "BM=128, BN=128, BK=32, num_warps=1", "spilled"),
        ("24", "check_transpose", "tl.trans(tl.load(from_, mask=inside))", "tl.load(from_, mask=inside)", "exchanged"),
        ("24", "check_transpose", "j[None, :] * col_stride", "j[None, :]", "column stride is taken for 1"),
        ("30", "check_online", "total * tl.exp(top - base) +", "total +", "the running sum is rescaled"),
        ("30", "check_online", "* cols + j, y", "* BLOCK + j, y", "one writer"),
        ("30", "check_norm", "/ cols + eps", "/ BLOCK + eps", "divides by the columns of x, not by the block"),
        ("30", "check_norm_backward", "* tl.sum(g * v, 0) / cols", "* 0", "the root depends on x too"),
        ("33", "check_quantise", ", propagate_nan=tl.PropagateNan.ALL", "", "infinities and a NaN"),
        ("33", "check_quantise", "/ tl.load(scale_ptr)", "* tl.load(scale_ptr)", "divide by the scale"),
        ("34", "check_skipping", "BN=32", "BN=64", "1 for each SIMD.*2 are possible"),
        ("39", "check_decode", "tl.sum(tile * weight[:, None], 0)", "tl.sum(tile, 0)", "merge|part"),
    ],
)
def test_a_usual_first_attempt_is_named(number, check, old, new, said, capsys):
    code = solution(number, check)
    assert old in code, old
    name = CHECKS[check][1]
    changed = code.replace(old, new)
    call = run_cell(HEAD + changed)[name] if name in SOLVED else of_cell(changed, check)
    assert not judged(check, call)
    assert re.search(said, capsys.readouterr().out)
