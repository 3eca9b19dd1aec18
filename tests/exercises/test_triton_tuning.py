# SPDX-License-Identifier: MIT
"""Exercises of notebook 14: the solutions pass, the obvious wrong answers are met with the right hint."""

import pytest

pytest.importorskip("triton")

from rocm_guide.exercises.triton_tuning import check_large_tile, check_refused, check_split_k


@pytest.mark.parametrize(
    ("split", "hint"),
    [
        (0, "whole number"),
        (2.0, "whole number"),
        (1, "64 workgroups"),
        (8, "512 workgroups"),
        (17, "evenly"),
        (32, "more than enough"),
    ],
)
def test_split_k(split, hint, capsys):
    assert not check_split_k(split)
    assert hint in capsys.readouterr().out
    assert check_split_k(16)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        ([], "B"),
        (["B", "F"], "D: 2,048 threads"),
        (["B", "D"], "F: 512 threads and 131,072 B"),
        ("ABDF", "A:"),
        (["Z"], "no candidate"),
    ],
)
def test_refused(answer, hint, capsys):
    assert not check_refused(answer)
    assert hint in capsys.readouterr().out


def test_refused_solution():
    assert check_refused(["B", "D", "F"]) and check_refused("FDB")


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({}, "tile"),
        ({"tile": (128, 128, 32)}, "64 FLOP"),
        ({"tile": (256, 128, 64), "num_warps": 4}, "1 wave per SIMD"),
        ({"tile": (256, 256, 128)}, "LDS"),
        ({"tile": (256, 256, 32), "num_warps": 4}, "spill"),
        ({"tile": (256, 128, 64), "num_warps": 32}, "threads"),
        ({"tile": (256, 128, 64), "num_warps": 3}, "num_warps=3: use 1, 2, 4"),
    ],
)
def test_large_tile(config, hint, capsys):
    assert not check_large_tile(config)
    assert hint in capsys.readouterr().out


def test_large_tile_solutions():
    assert check_large_tile({"tile": (256, 128, 64), "num_warps": 8})
    assert check_large_tile({"tile": (256, 256, 32), "num_warps": 8})
