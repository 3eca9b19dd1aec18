# SPDX-License-Identifier: MIT
"""Exercises of notebook 14: the solutions pass, the obvious wrong answers are met with the right hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.smoothquant_int8 import check_factors, check_fold_up, check_longest


def scaled(rows, columns):
    def fold_up(up, down, scales):
        with torch.no_grad():
            up.weight.copy_(rows(up.weight, scales))
            down.weight.copy_(columns(down.weight, scales))

    return fold_up


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (scaled(lambda w, s: w / s[:, None], lambda w, s: w), "multiply the columns of down_proj"),
        (scaled(lambda w, s: w, lambda w, s: w * s), "as large as before"),
        (scaled(lambda w, s: w * s[:, None], lambda w, s: w / s), "should be divided"),
        (scaled(lambda w, s: w / s.mean(), lambda w, s: w * s.mean()), "one row of up_proj"),
        (scaled(lambda w, s: w / s, lambda w, s: w * s), "fails"),
        (lambda up, down: None, "fails"),
    ],
)
def test_fold_up(answer, hint, capsys):
    assert not check_fold_up(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda a, b, d, e: (a * b, d), "divide by the scale of E"),
        (lambda a, b, d, e: (a * b / e, d), "beta is"),
        (lambda a, b, d, e: (a * b * e, d / e), "alpha is"),
        (lambda a, b, d, e: a * b / e, "two numbers"),
        (lambda a, b, d, e: None, "two numbers"),
    ],
)
def test_factors(answer, hint, capsys):
    assert not check_factors(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(131_072, "down to -128"), (133_145, "ends at"), (133_143, "still fits"), (2.0, "whole number"), (0, "positive")],
)
def test_longest(answer, hint, capsys):
    assert not check_longest(answer)
    assert hint in capsys.readouterr().out


def test_solutions():
    assert check_fold_up(scaled(lambda w, s: w / s[:, None], lambda w, s: w * s))
    assert check_factors(lambda a, b, d, e: (a * b / e, d / e))
    assert check_longest((2**31 - 1) // 127**2)
