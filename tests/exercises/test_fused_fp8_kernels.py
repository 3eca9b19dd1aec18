# SPDX-License-Identifier: MIT
"""The exercise about weights of notebook 33: its check accepts the right answer and answers the usual wrong ones."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.fused_fp8_kernels import check_to_fnuz


def right(codes, scale):
    return torch.where(codes == 0x80, torch.zeros_like(codes), codes), 2 * scale


def test_right_answers(capsys):
    assert check_to_fnuz(right)
    assert capsys.readouterr().out.count("[OK]") == 1


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_to_fnuz(lambda c, s: (c, 2 * s)), "became NaN"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0], s)), "half of what it was"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0].clamp(max=0xF0), 2 * s)), "some values changed"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0][:5], s)), "came back"),
        (lambda: check_to_fnuz(lambda c, s: c), "Return a uint8 tensor"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
