# SPDX-License-Identifier: MIT
"""Notebook 19: its checks accept the solution and answer wrong ones with a hint."""

import pytest

from rocm_guide.exercises.serving_engine import check_best_guesses, check_blocks, check_judge


def judge(guess, said):
    right = 0
    while right < len(guess) and guess[right] == said[right]:
        right += 1
    return said[: right + 1]


def best(a, cost):
    return max(range(17), key=lambda k: sum(a**i for i in range(k + 1)) / (1 + k * cost))


def test_right_answers(capsys):
    assert check_blocks(9, 0) and check_judge(judge) and check_best_guesses(best)
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_blocks(10, 15), "never fed back"),
        (lambda: check_blocks(7, 0), "144 tokens are stored"),
        (lambda: check_blocks(9, 15), "144 are taken"),
        (lambda: check_judge(lambda g, s: g + s[-1:]), "the model says 9 where 6 was guessed"),
        (lambda: check_judge(lambda g, s: judge(g, s)[:-1]), "all three are right"),
        (
            lambda: check_judge(lambda g, s: s[: 1 + sum(a == b for a, b in zip(g, s, strict=False))]),
            "the model says 9",
        ),
        (lambda: check_judge(lambda g, s: judge(g, s) if g else []), "nothing was guessed"),
        (lambda: check_judge(lambda g, s: g[99]), "it fails for guess"),
        (lambda: check_judge(lambda g, s: None), "not None"),
        (lambda: check_best_guesses(lambda a, c: 4), "never right"),
        (lambda: check_best_guesses(lambda a, c: 16 if c == 0 else 0), "a = 0.9"),
        (lambda: check_best_guesses(lambda a, c: best(a, c) if c < 0.5 else 1), "cost 0.7"),
        (lambda: check_best_guesses(lambda a, c: 2.0), "whole number"),
        (lambda: check_best_guesses(lambda a, c: 1 / 0), "it fails for a = 0.0"),
    ],
)
def test_wrong_answers(call, hint, capsys):
    assert call() is False
    out = capsys.readouterr().out
    assert out.startswith("[HINT]") and hint in out
