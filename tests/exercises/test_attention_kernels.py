# SPDX-License-Identifier: MIT
"""The checks of notebook 34 accept its solutions and name what is wrong with the usual first attempts."""

from __future__ import annotations

import re

import pytest

from rocm_guide.exercises import attention_kernels
from tests.exercises.written import Exercises
from tests.in_turn import in_shares

TASKS = Exercises("34", attention_kernels, {"window": "window", "dq": "query_gradient"})
WHOLE, STARTED, judged = TASKS.whole, TASKS.started, TASKS.judged


@pytest.mark.parametrize("check", WHOLE)
def test_the_solution_passes_and_the_starter_is_not_yet_right(check, capsys):
    assert judged(check, WHOLE[check])
    assert not judged(check, STARTED[check])
    assert "no kernel was launched" in capsys.readouterr().out


ATTEMPTS = [
    ("window", "begin = tl.maximum(tile * BM - W + 1, 0) // BN * BN", "begin = 0", "k and v are read .* begin the"),
    ("window", "j[None, :] > i[:, None] - W", "j[None, :] >= i[:, None] - W", "W = 40: element"),
    ("window", "top = tl.full((BM,), -1e30", 'top = tl.full((BM,), float("-inf")', "element .* is nan"),
    ("window", "acc * shrink[:, None]", "acc", "W = 40: element"),
    ("window", "- W + 1, 0) // BN * BN", "- W + 1, 0)", ""),
    ("dq", "- less[:, None]", "", "delta is missing"),
    ("dq", "(acc * scale).to", "acc.to", "the scale once more"),
    ("dq", "j[None, :] <= i[:, None], p, 0.0", "j[None, :] < N, p, 0.0", "130 tokens: element"),
    ("dq", "tl.exp(", "tl.exp2(", "130 tokens: element"),
]


@pytest.mark.parametrize(("check", "old", "new", "said"), in_shares(ATTEMPTS, 3))
def test_a_usual_first_attempt_is_named(check, old, new, said, capsys):
    right = judged(check, WHOLE[check], (old, new))
    if not said:  # another way to write it, as good
        assert right
        return
    assert not right
    assert re.search(said, capsys.readouterr().out)
