# SPDX-License-Identifier: MIT
"""The checks of notebook 31 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.exercises import gemm_kernels

(NOTEBOOK,) = (Path(__file__).parents[2] / "notebooks").glob("31_*.ipynb")
CELLS = ["".join(c["source"]) for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
NAMES = {"naive": "naive_matmul", "matmul": "matmul", "split_k": "split_k"}
WHOLE = {check: next(c for c in CELLS if f"assert check_{check}({name})" in c) for check, name in NAMES.items()}
STARTED = {check: next(c for c in CELLS if f"\ncheck_{check}({name});" in c) for check, name in NAMES.items()}


def judged(check, cell, *pairs):
    """What the check says of a cell of the notebook in which texts are replaced: (passed, said)."""
    for old, new in pairs:
        assert old in cell, old
        cell = cell.replace(old, new)
    lines = [x for x in cell.splitlines() if "check_" not in x]
    return getattr(gemm_kernels, f"check_{check}")(run_cell(HEAD + "\n".join(lines) + "\n")[NAMES[check]])


@pytest.mark.parametrize("check", NAMES)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    said = capsys.readouterr().out
    assert "no kernel has stored anything yet" in said or "stored nothing: is there a tl.store" in said


@pytest.mark.parametrize(
    ("check", "old", "new", "said"),
    [
        ("naive", "mask=i < M", "mask=i < M + 1", "tl.load outside its tensor"),
        ("naive", "c + i[:, None].to(tl.int64) * N", "c + i[:, None] * N", "an output beyond 2^31 elements"),
        ("naive", "columns + sak", "columns + 1", "use both of its strides"),
        ("matmul", "& (k[None, :] < K)", "", "tl.load outside its tensor"),
        ("matmul", "tl.dot(x, y, total)", "tl.dot(x, y)", "row of a times column of b"),
        ("matmul", "k[None, :] * sak", "k[None, :]", "use both of its strides"),
        ("matmul", "128", "256", "2 are possible: a smaller block, or more warps"),
        ("split_k", "torch.zeros(M", "torch.empty(M", "the result starts at 0, torch.zeros"),
        ("split_k", "tl.atomic_add(", "tl.store(", "a race: programs 0 and 1 write different values"),
        ("split_k", "last = tl.minimum(first + part, K)", "last = K", "adds its own part of K, none twice"),
    ],
)
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    assert not judged(check, WHOLE[check], (old, new))
    assert said in capsys.readouterr().out
