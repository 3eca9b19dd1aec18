# SPDX-License-Identifier: MIT
"""The checks of notebook 34 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.exercises import attention_kernels

(NOTEBOOK,) = (Path(__file__).parents[2] / "notebooks").glob("34_*.ipynb")
CELLS = ["".join(c["source"]) for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
NAMES = {"window": "window", "dq": "query_gradient"}
WHOLE = {check: next(c for c in CELLS if f"assert check_{check}({name})" in c) for check, name in NAMES.items()}
STARTED = {check: next(c for c in CELLS if f"\ncheck_{check}({name});" in c) for check, name in NAMES.items()}


def judged(check, cell, *pairs):
    """What the check says of a cell of the notebook in which texts are replaced."""
    for old, new in pairs:
        assert old in cell, old
        cell = cell.replace(old, new)
    lines = [x for x in cell.splitlines() if "check_" not in x]
    return getattr(attention_kernels, f"check_{check}")(run_cell(HEAD + "\n".join(lines) + "\n")[NAMES[check]])


@pytest.mark.parametrize("check", NAMES)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    assert "no kernel was launched" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "old", "new", "said"),
    [
        ("window", "begin = tl.maximum(tile * BM - W + 1, 0) // BN * BN", "begin = 0", "k and v are read .* begin the"),
        ("window", "j[None, :] > i[:, None] - W", "j[None, :] >= i[:, None] - W", "W = 40: element"),
        ("window", "top = tl.full((BM,), -1e30", 'top = tl.full((BM,), float("-inf")', "element .* is nan"),
        ("window", "acc * shrink[:, None]", "acc", "W = 40: element"),
        ("window", "- W + 1, 0) // BN * BN", "- W + 1, 0)", ""),
        ("dq", "- less[:, None]", "", "delta is missing"),
        ("dq", "(acc * scale).to", "acc.to", "the scale once more"),
        ("dq", "j[None, :] <= i[:, None], p, 0.0", "j[None, :] < N, p, 0.0", "130 tokens: element"),
        ("dq", "tl.exp(", "tl.exp2(", "130 tokens: element"),
    ],
)
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    right = judged(check, WHOLE[check], (old, new))
    if not said:  # another way to write it, as good
        assert right
        return
    assert not right
    assert re.search(said, capsys.readouterr().out)
