# SPDX-License-Identifier: MIT
"""Notebook 17: its checks accept the solution and answer wrong ones with a hint."""

from __future__ import annotations

import pytest

from rocm_guide.exercises.tunableop import LEFT, RIGHT, check_line, check_merged, check_settings
from rocm_guide.tune.tunableop.files import TuningFile, merge, parse_text

LINE = "GemmTunableOp_Half_TN,tn_11008_32_4096_ld_4096_4096_11008"


def merged() -> TuningFile:
    return merge([parse_text(LEFT), parse_text(RIGHT)])


def slower() -> TuningFile:
    """The first solution of each product, as a plain concatenation would keep it."""
    return parse_text(LEFT + RIGHT)


def test_right_answers(capsys):
    assert check_line(LINE)
    assert check_settings(pad=16, cache="static")
    assert check_merged(merged())
    assert capsys.readouterr().out.count("[OK]") == 3


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: check_line("a line"), "columns"),
        (lambda: check_line(LINE.replace("Half", "float")), "float16 is called Half"),
        (lambda: check_line(LINE.replace("GemmTunable", "GemmAndBiasTunable")), "no bias"),
        (lambda: check_line("GemmTunableOp_Half_TN,tn_32_11008_4096_ld_4096_4096_32"), "the wrong way round"),
        (lambda: check_line("GemmTunableOp_Half_TN,tn_4096_32_11008_ld_11008_11008_4096"), "output features, tokens"),
        (lambda: check_line("GemmTunableOp_Half_NN,nn_11008_32_4096_ld_11008_4096_11008"), "the first letter is t"),
        (lambda: check_line("GemmTunableOp_Half_TN,tn_11008_32_4096_ld_4096_32_11008"), "row lengths in memory"),
        (lambda: check_line("GemmTunableOp_Half_TN,tn_11008_32_4096"), "row lengths in memory"),
        # A plan with a dynamic cache takes many seconds (64 growing caches for each prompt): one stands for all.
        (lambda: check_settings(pad=1, cache="static"), "allowed are 30"),
        (lambda: check_settings(pad=8, cache="static"), "allowed are 30"),
        (lambda: check_settings(pad=16, cache="dynamic"), "allowed are 30"),
        (lambda: check_settings(pad=32, cache="static"), "allowed are 12 %"),
        (lambda: check_merged(None), "give the TuningFile"),
        (lambda: check_merged(parse_text(LEFT)), "2 tuned products"),
        (lambda: check_merged(slower()), "the faster one should stay"),
        (lambda: check_merged(TuningFile(gemms=merged().gemms)), "the validators are missing"),
    ],
)
def test_wrong_answers(call, hint, capsys):
    assert call() is False
    out = capsys.readouterr().out
    assert out.startswith("[HINT]") and hint in out
