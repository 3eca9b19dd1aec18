# SPDX-License-Identifier: MIT
"""Predictions of a notebook's reader: judged by kind, kept once for each question, silent without a reader."""

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.exercises.predictions import Predictions


@pytest.mark.parametrize(
    ("guess", "found", "within", "right"),
    [
        (2, 2.4, 0.25, True),
        (2, 2.4, 0.1, False),
        (-3.0, 3.0, 0.5, False),
        (0, 0.0, 0.1, True),
        (0.001, 0, 0.5, False),
        (7, 7, 0, True),
        ("  ΔW", "δw", 0.1, True),
        ("some", "most", 9.0, False),
        (True, False, 9.0, False),
        (False, False, 0.0, True),
    ],
)
def test_a_guess_is_judged_by_its_kind(guess, found, within, right, capsys):
    predict = Predictions()
    predict("question", guess=guess, found=found, within=within)
    assert predict.kept["question"].right is right
    assert capsys.readouterr().out.endswith(" is right\n") is right


def test_a_run_without_a_reader_has_no_score(capsys):
    predict = Predictions()
    for question in ("a", "b"):
        predict(question, guess=None, found=1.0)
    predict.score()
    out = capsys.readouterr().out
    assert "right" not in out and out.endswith(
        "2 without a guess: write one in place of None, and run its cell again\n"
    )


def test_a_cell_that_is_run_again_replaces_its_guess(capsys):
    predict = Predictions()
    predict("a", guess=1, found=2)
    predict("a", guess=2, found=2)
    capsys.readouterr()
    predict.score()
    assert capsys.readouterr().out == "1 of 1 guesses right\n  [OK] a: 2; your guess 2\n"


@pytest.mark.parametrize(
    ("guess", "found", "message"),
    [("two", 2.0, "a number"), (1, True, "True or False"), (3, "most", "a word in quotes"), (True, 1, "a number")],
)
def test_another_kind_of_guess_is_refused_and_not_kept(guess, found, message):
    predict = Predictions()
    with pytest.raises(GuideError, match=f"{guess!r} for 'a': give {message}, or None"):
        predict("a", guess=guess, found=found)
    assert predict.kept == {}


def test_a_negative_share_is_refused():
    with pytest.raises(GuideError, match=r"within=-1: give a share"):
        Predictions()("a", guess=1, found=1, within=-1)
