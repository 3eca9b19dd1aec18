# SPDX-License-Identifier: MIT
"""Notebook 35: its checks name what is wrong, its kernels are the library's, and its script runs alone."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.cli.copying import script_of
from rocm_guide.dojo import SOLVED
from rocm_guide.exercises.experts import check_block_scaled, check_grouped, check_route
from rocm_guide.kernels import experts

(NOTEBOOK,) = (Path(__file__).parents[2] / "notebooks").glob("35_*.ipynb")
CELLS = ["".join(c["source"]) for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
WHOLE = next(c for c in CELLS if "assert check_route(route_tokens)" in c)
STARTED = {name: next(c for c in CELLS if f"\ncheck_{name}(" in c) for name in ("route", "grouped", "block_scaled")}


def written(cell, name, *pairs):
    """A function of a cell of the notebook in which texts are replaced."""
    for old, new in pairs:
        assert old in cell, old
        cell = cell.replace(old, new)
    return run_cell(HEAD + "\n".join(x for x in cell.splitlines() if "check_" not in x) + "\n")[name]


def test_the_solutions_pass():
    assert check_route(written(WHOLE, "route_tokens"))
    assert check_grouped(SOLVED["grouped_matmul"]) and check_block_scaled(SOLVED["block_scaled_matmul"])


def test_the_starters_are_not_yet_right(capsys):
    assert not check_route(written(STARTED["route"], "route_tokens"))
    assert "no Triton kernel was launched" in capsys.readouterr().out
    assert not check_grouped(written(STARTED["grouped"], "grouped_matmul"))
    assert not check_block_scaled(written(STARTED["block_scaled"], "block_scaled_matmul"))
    assert capsys.readouterr().out.count("no kernel has stored anything yet") == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    share /= tl.sum(share, 0)\n", "", "renormalise"),
        ("tl.exp(best - top)", "tl.exp(best)", "subtract the largest logit first"),
        ("tl.where(e == at, -", "tl.where(x == best, -", "strike out one place, not every equal value"),
        ('        x = tl.where(e == at, -float("inf"), x)\n', "", "a token has the same expert twice"),
        ('other=-float("inf")', "other=0.0", "are not all experts: lanes without an expert win"),
        ("logits.stride(0), K=k", "E, K=k", "use the stride of the rows"),
        ("mask=e < E", "mask=e <= E", "RunError"),
        ("share, mask=place < K)", "share)", "RunError"),
        ("dtype=torch.int32", "dtype=torch.int16", "experts torch.int16; float32 and int32 or int64"),
        ("len(logits), k, device", "k, len(logits), device", "give weights and experts of shape (5, 2)"),
        ("mask=e < E,", "mask=e < E - 1,", "other experts than those of the largest logits"),
        ("tl.zeros((PLACES,), tl.float32)", "tl.nothing(PLACES)", "no attribute"),
    ],
)
def test_a_usual_first_router_is_named(old, new, said, capsys):
    assert not check_route(written(WHOLE, "route_tokens", (old, new)))
    assert said in capsys.readouterr().out


def test_what_is_no_pair_of_tensors_is_named(capsys):
    assert not check_route(lambda logits: logits)
    assert "TypeError" in capsys.readouterr().out


def bare(source, name):
    """A function's code without its docstring and its comments."""
    (node,) = (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == name)
    if ast.get_docstring(node):
        node.body = node.body[1:]
    node.returns = None
    for argument in node.args.args:
        argument.annotation = argument.annotation if "constexpr" in ast.dump(argument) else None
    return ast.unparse(node)


@pytest.mark.parametrize("name", ["sort_by_expert", "grouped_kernel", "gate_up_kernel"])
def test_the_notebook_teaches_the_librarys_own_text(name):
    library = Path(experts.__file__).read_text(encoding="utf-8")
    cell = next(c for c in CELLS if f"def {name}(" in c)
    assert bare(cell, name) == bare(library, name)


def test_the_script_runs_where_the_course_is_not(tmp_path):
    (tmp_path / "experts.py").write_text(script_of("35"))
    for name in ("rocm_guide", "cdna"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the course is not here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "experts.py", "--tokens=8"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert [x.split(":")[0] for x in lines if "default" in x] == ["Qwen3-MoE", "Mixtral"]
    gaps = [float(x.split("eager")[-1].split()[0]) for x in lines if "largest difference" in x]
    assert len(gaps) == 6 and max(gaps) < 0.02
