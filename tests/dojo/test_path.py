# SPDX-License-Identifier: MIT
"""The path through the puzzles: it has all of them, each can be begun in one cell, and its solutions pass."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from cdna.grade import GradeError
from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import LISTINGS, PATH, PUZZLES, SOLVED, grade, show_solution, start
from tests.in_turn import dealt

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
IMPORTS = HEAD + "from rocm_guide.dojo import LISTINGS, grade\n"


def headings(number):
    (file,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.findall(r"^#{2,3} (.+)$", text, re.M)


def test_the_path_has_every_puzzle_once_and_goes_uphill_in_each_family():
    assert sorted(s.puzzle for s in PATH) == sorted([*PUZZLES, *LISTINGS])
    for family in ("rows", "attention", "models"):
        levels = [s.level for s in PATH if s.family == family]
        assert len(levels) > 2 and {*levels} <= {1, 2, 3} and levels[-1] == 3, family
    order = [s.puzzle for s in PATH]
    needs = {"rms_norm_backward": "rms_norm", "attention": "softmax_online", "causal_attention": "attention"}
    needs |= {"linear_cross_entropy": "softmax_online", "grouped_matmul": "matmul", "block_scaled_matmul": "matmul"}
    needs |= {"paged_decode": "decode", "matmul": "naive_matmul", "lean_matmul": "matmul", "split_k": "matmul"}
    assert all(order.index(before) < order.index(after) for after, before in needs.items())


@pytest.mark.parametrize("step", PATH, ids=lambda s: s.puzzle)
def test_where_a_puzzle_is_taught_there_is_such_a_section(step):
    number, section = step.taught.split(" · ")
    wanted = section.replace("Rungs 1 and 2", "Rung 1")
    pattern = rf"{wanted} · " if wanted.isdigit() else rf"{wanted}\b"
    assert any(re.match(pattern, h) for h in headings(number)), step.taught


@pytest.mark.parametrize("step", dealt(PATH, 3), ids=lambda s: s.puzzle)
def test_a_starter_runs_as_it_is_and_is_not_yet_right(step, capsys):
    text = start(step.puzzle).text
    lines = text.splitlines()
    assert f"# {step.puzzle} · {step.family}" in lines[0] and any("Hint:" in line for line in lines)
    if step.outputs:
        assert max(map(len, lines)) <= 100, "what we write fits a cell"
    tree = ast.parse(text)
    assert isinstance(tree.body[-1], ast.Expr)
    last = ast.unparse(tree.body.pop())
    space = run_cell(IMPORTS + ast.unparse(tree) if step.puzzle in LISTINGS else IMPORTS + text.rsplit("\n\n\n", 1)[0])
    result = eval(last, space)
    assert not result.passed and len(result.checks) >= 1
    said = str(result)
    if step.outputs:
        assert "no kernel has stored anything yet" in said and "returns" not in said, said


@pytest.mark.parametrize("name", dealt(SOLVED, 3))
def test_a_solution_that_is_shown_passes_as_it_stands_in_the_library(name):
    assert grade(SOLVED[name], name).passed
    shown = show_solution(name)
    assert f"def {name}(" in shown.text and re.search("@(triton|gluon).jit", shown.text) and ": Any" not in shown.text
    page = shown._repr_html_()
    assert page.startswith("<details>") and "</pre></details>" in page and repr(shown) == shown.text
    assert re.search(r"[tg]l\.load\(", page)


def test_how_the_path_shows():
    text, page = repr(PATH), PATH._repr_html_()
    assert all(s.puzzle in text and f'<td style="text-align:left">{s.puzzle}</td>' in page for s in PATH)
    assert page.count("<details>") == len(PATH) and "torch.softmax(x, 1)" in text and "★★★" in page


def test_without_gluon_its_puzzle_is_stepped_over_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon.language.amd.cdna3", None)
    (line,) = [x for x in start("gluon_linear").text.splitlines() if "Stepped over" in x]
    assert "has no Gluon for gfx942" in line and "def gluon_linear" not in start("gluon_linear").text
    result = grade(torch.clone, "gluon_linear")
    assert not result.passed and str(result).startswith("gluon_linear: stepped over: Triton ")
    assert "def copy" in start("copy").text


def test_what_is_not_on_the_path_is_refused():
    with pytest.raises(GradeError, match="puzzle 'copi': there are add, copy"):
        start("copi")
    with pytest.raises(GradeError, match="no solution of 'copy' is kept here"):
        show_solution("copy")
