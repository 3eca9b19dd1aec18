# SPDX-License-Identifier: MIT
"""Exercises of notebook 31: the solutions pass, the obvious wrong answers are met with the right hint."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton")

from rocm_guide.exercises.gemm_kernels import check_busy, check_skinny, check_touch


def busy(m, n, bm, bn, units):
    tiles = math.ceil(m / bm) * math.ceil(n / bn)
    return tiles / (math.ceil(tiles / units) * units)


def touch(tiles, steps, workers):
    total, found = tiles * steps, {tile: [] for tile in range(tiles)}
    for w in range(workers):
        first, last = total * w // workers, total * (w + 1) // workers
        for tile in range(tiles):
            if first < last and first < (tile + 1) * steps and last > tile * steps:
                found[tile].append(w)
    return found


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda m, n, bm, bn, units: (m // bm) * (n // bn) / units, "no more than 1"),
        (lambda m, n, bm, bn, units: min(1.0, (m // bm) * (n // bn) / units), "rounds times units"),
        (lambda m, n, bm, bn, units: busy(m - m % bm, n - n % bn, bm, bn, units), "round up"),
        (lambda m, n, bm, bn, units: "all", "a number from 0 to 1"),
        (lambda m: 1.0, "fails"),
    ],
)
def test_busy(answer, hint, capsys):
    assert not check_busy(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda tiles, steps, workers: {t: [t % workers] for t in range(tiles)}, "tile 1"),
        (lambda tiles, steps, workers: {t: list(range(workers)) for t in range(tiles)}, "touched by"),
        (lambda tiles, steps, workers: {}, "you say None"),
        (lambda tiles, steps, workers: None, "fails"),
        (
            lambda tiles, steps, workers: {t: list(reversed(w)) for t, w in touch(tiles, steps, workers).items()},
            "touched",
        ),
    ],
)
def test_touch(answer, hint, capsys):
    assert not check_touch(answer)
    assert hint in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({}, "bn, bk, warps, groups"),
        ({"bn": 48, "bk": 256, "warps": 4, "groups": 2}, "power of two"),
        ({"bn": 128, "bk": 128, "warps": 4, "groups": 2}, "narrow"),
        ({"bn": 32, "bk": 256, "warps": 4, "groups": 0.5}, "workgroups for 304"),
        ({"bn": 64, "bk": 256, "warps": 4, "groups": 2}, "waves per SIMD, limited by lds"),
        ({"bn": 256, "bk": 256, "warps": 4, "groups": 2}, "LDS"),
        # Without a check of its own the compiler would work on the first for many minutes, and refuse the others.
        ({"bn": 1024, "bk": 1024, "warps": 16, "groups": 2}, "LDS holds 65,536"),
        ({"bn": 8, "bk": 256, "warps": 4, "groups": 2}, "takes 16 x 32 and more"),
        ({"bn": 64, "bk": 256, "warps": 4, "groups": 0}, "more than 0"),
    ],
)
def test_skinny(config, hint, capsys):
    assert not check_skinny(config)
    assert hint in capsys.readouterr().out


def test_solutions():
    assert check_busy(busy) and check_touch(touch)
    assert check_skinny({"bn": 32, "bk": 256, "warps": 4, "groups": 2})
