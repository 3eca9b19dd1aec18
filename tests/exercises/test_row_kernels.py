# SPDX-License-Identifier: MIT
"""The checks of notebook 30 accept the solution and name what is wrong with other answers."""

from __future__ import annotations

import math

import pytest

from rocm_guide.exercises.row_kernels import check_floor, check_merge, check_tile
from rocm_guide.kernels.softmax import Tile


def test_floor(capsys):
    assert check_floor(lambda rows, columns, item: 3 * rows * columns * item / 5.3e12)
    for wrong, words in (
        (lambda r, c, b: r * c * b / 5.3e12, "not 1"),
        (lambda r, c, b: 2 * r * c * b / 5.3e12, "not 2"),
        (lambda r, c, b: 3 * r * c * b / 5.3e6, "that is microseconds"),
        (lambda r, c, b: 3 * r * c * 2 / 5.3e12, "512 x 4096 in 4 bytes"),
        (lambda r, c, b: 3 * r * c * b / 4.9e12, "divided by 5.3e12"),
        (lambda r, c, b: math.nan, "a number of seconds is wanted"),
        (lambda r, c: 1.0, "takes three numbers"),
    ):
        assert not check_floor(wrong)
        assert words in capsys.readouterr().out


def good(max_a, sum_a, max_b, sum_b):
    top = max(max_a, max_b)
    if top == -math.inf:
        return top, 0.0
    return top, sum_a * math.exp(max_a - top) + sum_b * math.exp(max_b - top)


def test_merge(capsys):
    assert check_merge(good)
    for wrong, words in (
        (lambda a, s, b, t: (max(a, b), s + t), "in units of exp(its own max)"),
        (lambda a, s, b, t: (b, s * math.exp(a - b) + t), "maximum of both"),
        (lambda a, s, b, t: (max(a, b), (s * math.exp(a) + t * math.exp(b)) / math.exp(max(a, b))), "overflow"),
        (lambda a, s, b, t: (max(a, b), sum(x * math.exp(m - max(a, b)) for m, x in ((a, s), (b, t)))), "NaN"),
        (lambda a, s, b, t: max(a, b), "return two numbers"),
    ):
        assert not check_merge(wrong)
        assert words in capsys.readouterr().out


@pytest.mark.parametrize("tile", [{"rows": 8, "warps": 4}, {"rows": 2, "warps": 1}, Tile(256, 16, 4)])
def test_tile_accepts_what_holds(tile):
    assert check_tile(tile)


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        ({"rows": 1, "warps": 4}, "loads 16 bits, not 128"),
        ({"rows": 4, "warps": 4}, "4 elements of 2 bytes loads 64 bits"),
        ({"rows": 16, "warps": 1}, "64 is the most for 8 waves"),
        ({"rows": 8, "warps": 32}, "threads"),
        ({"rows": 4096, "warps": 4}, "4096 elements for each lane"),
        ({"rows": 3}, "powers of two"),
        ({"warp": 3}, "give rows and warps"),
        (7, "powers of two"),
    ],
)
def test_tile_names_what_does_not(tile, words, capsys):
    assert not check_tile(tile)
    assert words in capsys.readouterr().out
