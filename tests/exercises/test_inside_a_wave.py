# SPDX-License-Identifier: MIT
"""The checks of notebook 25 accept the right answer and answer the usual wrong ones with a hint."""

import pytest

from rocm_guide.exercises.inside_a_wave import check_place, check_tail_mask, check_waits


def right_mask(cols, first):
    return (1 << max(0, min(64, cols - first))) - 1


def right_place(i, j):
    return 4 * (i // 8) + i % 4, j + 32 * (i // 4 % 2)


def test_right_answers(capsys):
    assert check_tail_mask(right_mask)
    assert check_waits(1, 0)
    assert check_place(right_place)
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_tail_mask(lambda c, f: 2**64 - 1), "cols - first"),
        (lambda: check_tail_mask(lambda c, f: (1 << max(0, c - f)) - 1), "64 bits"),
        (lambda: check_tail_mask(lambda c, f: (1 << min(64, c - f + 1)) - 1), "one lane too many"),
        (lambda: check_tail_mask(lambda c, f: int(f"{right_mask(c, f):064b}"[::-1], 2)), "lane 0 is the lowest"),
        (lambda: check_tail_mask(lambda c, f: (1 << c - f) - 1), "64 bits"),
        (lambda: check_tail_mask(lambda c, f: None), "whole number"),
        (lambda: check_tail_mask(lambda c, f: 1 / 0), "ZeroDivisionError"),
        (lambda: check_waits(0, 0), "needs only one"),
        (lambda: check_waits(2, 0), "v_mul_f32_e32"),
        (lambda: check_waits(1, 1), "v_add_f32_e32"),
        (lambda: check_waits(-1, 0), "from 0 to 63"),
        (lambda: check_waits("0", 0), "from 0 to 63"),
        (lambda: check_place(lambda i, j: (i // 2, j)), "take turns"),
        (lambda: check_place(lambda i, j: right_place(i, j)[::-1]), "first the register"),
        (lambda: check_place(lambda i, j: (i % 16, j + 32 * (i // 4 % 2))), "groups of four"),
        (lambda: check_place(lambda i, j: (0, 63 - j)), "column"),
        (lambda: check_place(lambda i, j: None), "TypeError"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]") and hint in out and out.count("\n") == 1
