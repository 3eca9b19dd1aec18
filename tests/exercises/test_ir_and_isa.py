# SPDX-License-Identifier: MIT
"""The checks of notebook 16 accept the right answer and answer the usual wrong ones with a hint."""

from __future__ import annotations

import pytest

from rocm_guide.exercises.ir_and_isa import check_lane_bits, check_trips, check_wait

RIGHT = {"fp16, 1x4": 64, "fp8, 1x16": 128, "fp32, 8x1, order [1, 0]": 32, "bf16, 1x16": 128}


TRIPS = {"reshaped": 2, "gathered": 1, "planar": 0}


def test_right_answers(capsys):
    assert check_lane_bits(RIGHT)
    assert check_wait(5)
    assert check_trips(TRIPS)
    assert check_trips({**TRIPS, "planar": 1}, head_dim=64), "planes of eight columns have to change waves"
    assert capsys.readouterr().out.count("[OK]") == 4


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_lane_bits({}), "an answer for each"),
        (lambda: check_lane_bits({**RIGHT, "bf16, 1x16": 256}), "128 bits"),
        (lambda: check_lane_bits({**RIGHT, "fp32, 8x1, order [1, 0]": 128}), "contiguous"),
        (lambda: check_wait(0), "only vmcnt"),
        (lambda: check_wait(6), "goes on when five"),
        (lambda: check_wait(99), "at most n"),
        (lambda: check_trips({}), "a count for each"),
        (lambda: check_trips({**TRIPS, "reshaped": 3}), "queries"),
        (lambda: check_trips({**TRIPS, "planar": 8}), "follow program.path"),
    ],
)
def test_wrong_answers_get_a_hint(call, hint, capsys):
    assert not call()
    out = capsys.readouterr().out
    assert out.startswith("[HINT]")
    assert hint in out
