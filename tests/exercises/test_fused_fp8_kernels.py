# SPDX-License-Identifier: MIT
"""The checks of notebook 33 accept the right answer and answer the usual wrong ones with a hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.fused_fp8_kernels import check_bytes, check_positions, check_to_fnuz


def right(codes, scale):
    return torch.where(codes == 0x80, torch.zeros_like(codes), codes), 2 * scale


def test_right_answers(capsys):
    assert check_bytes(35844)
    assert check_to_fnuz(right)
    assert check_positions(0x8888, 0xDDDD)
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_bytes(0), "list what is read"),
        (lambda: check_bytes("35 KB"), "a number of bytes"),
        (lambda: check_bytes(35840), "scale has to be stored"),
        (lambda: check_bytes(25604), "written back"),
        (lambda: check_bytes(46084), "registers"),
        (lambda: check_to_fnuz(lambda c, s: (c, 2 * s)), "became NaN"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0], s)), "half of what it was"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0].clamp(max=0xF0), 2 * s)), "some values changed"),
        (lambda: check_to_fnuz(lambda c, s: (right(c, s)[0][:5], s)), "came back"),
        (lambda: check_to_fnuz(lambda c, s: c), "Return a uint8 tensor"),
        (lambda: check_positions(0x4444, 0xEEEE), "cut in the text"),
        (lambda: check_positions(0xDDDD, 0x8888), "wrong way round"),
        (lambda: check_positions(0x2222, 0x7777), "repeat it four times"),
        (lambda: check_positions(1 << 16, 0), "16 bits"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
