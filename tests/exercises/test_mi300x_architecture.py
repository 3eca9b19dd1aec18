# SPDX-License-Identifier: MIT
"""The checks of notebook 20 accept the right answer and answer the usual wrong ones with a hint."""

from __future__ import annotations

import pytest

from rocm_guide.exercises.mi300x_architecture import check_remap, check_resident_threads, check_token_time


def chunk_of_any_number(pid, programs, dies):
    each, extra = divmod(programs, dies)
    return pid % dies * each + min(pid % dies, extra) + pid // dies


def chunked(pid, programs, dies):
    return pid % dies * (programs // dies) + pid // dies


def test_right_answers(capsys):
    assert check_resident_threads(466_944)
    assert check_token_time(26.4)
    assert check_remap(chunk_of_any_number)
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
        (lambda: check_remap(chunked), "programs=7"),
        (lambda: check_remap(lambda pid, n, dies: 0 if n % dies else chunked(pid, n, dies)), "programs=7"),
        (lambda: check_remap(lambda pid, n, dies: pid if n % dies else chunked(pid, n, dies)), "programs=9"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
