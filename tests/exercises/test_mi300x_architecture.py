# SPDX-License-Identifier: MIT
"""The checks of notebook 13 accept the right answer and answer the usual wrong ones with a hint."""

from __future__ import annotations

import pytest

from rocm_guide.exercises.mi300x_architecture import check_remap, check_resident_threads, check_token_time


def test_right_answers(capsys):
    assert check_resident_threads(466_944)
    assert check_token_time(26.4)
    assert check_remap(lambda pid, n, dies: (pid % dies) * (n // dies) + pid // dies)
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_resident_threads(622_592), "MI300X"),
        (lambda: check_resident_threads(233_472), "old figure"),
        (lambda: check_resident_threads(1), "lanes"),
        (lambda: check_token_time(0.107), "arithmetic"),
        (lambda: check_token_time(13.2), "two bytes"),
        (lambda: check_token_time(None), "one number"),
        (lambda: check_token_time(0.0264), "milliseconds"),
        (lambda: check_remap(lambda pid, n, dies: pid), "neighbours"),
        (lambda: check_remap(lambda pid, n, dies: pid // dies), "permutation"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
