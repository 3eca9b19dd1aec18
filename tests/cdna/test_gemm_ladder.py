# SPDX-License-Identifier: MIT
"""Notebook 31 shows the kernels of the ladder as they are measured."""

import ast
import inspect
import json
from pathlib import Path

from cdna.examples.gemm_ladder import RUNGS


def test_the_notebook_shows_these_kernels_whole():
    notebook = Path(__file__).parents[2] / "notebooks/31_gemm_kernels.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    shown = [n for c in cells if c["cell_type"] == "code" for n in ast.parse("".join(c["source"])).body]
    for kernel in {r.kernel for r in RUNGS}:
        # As code, not as text: a line of a notebook is shorter than one of a file.
        (own,) = ast.parse(inspect.getsource(kernel.fn)).body
        same = [n for n in shown if isinstance(n, ast.FunctionDef) and n.name == own.name]
        assert [ast.dump(n) for n in same] == [ast.dump(own)], own.name
