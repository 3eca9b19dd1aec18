# SPDX-License-Identifier: MIT
"""Exercises of notebook 22: the solutions pass, the obvious wrong answers are met with the right hint."""

from functools import cache

import pytest

pytest.importorskip("triton")

from cdna.examples import tuning
from rocm_guide.exercises.triton_tuning import check_filter, check_refused, check_split_k


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Compile each candidate once for all answers: what an answer is judged by is the same report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "gemm_report", cache(tuning.gemm_report))
        yield


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


def flops(tile):
    return tile[0] * tile[1] / (tile[0] + tile[1])


def right(report, tile):
    return flops(tile) >= 85 and not report.resources.vgpr_spills and report.occupancy.waves_per_simd >= 2


@pytest.mark.parametrize(
    ("keep", "hint"),
    [
        (lambda report, tile: report.launches, "(128, 128, 64), num_warps=8 is kept: 64 FLOPs per byte"),
        (lambda report, tile: flops(tile) >= 85, "(256, 128, 64), num_warps=4 is kept"),
        (lambda r, tile: flops(tile) >= 85 and not r.resources.vgpr_spills, "1 wave per SIMD"),
        (lambda r, tile: flops(tile) >= 85 and r.occupancy.waves_per_simd >= 2, "num_warps=8, waves_per_eu=4 is kept"),
        (lambda r, tile: flops(tile) >= 85 and r.occupancy.waves_per_simd != 1 and not r.resources.vgpr_spills, "LDS"),
        (lambda r, tile: flops(tile) > 128 and right(r, tile), "is dropped: 85 FLOPs"),
        (lambda r, tile: right(r, tile) and r.occupancy.waves_per_simd >= 4, "is dropped: 85 FLOPs"),
        (lambda report, tile: None, "keep returns None for (256, 128, 64), num_warps=8"),
        (lambda report, tile: report.waves, "keep fails for (256, 128, 64), num_warps=8: AttributeError"),
        (True, "give the function"),
    ],
)
def test_filter(keep, hint, capsys):
    assert not check_filter(keep)
    assert hint in capsys.readouterr().out


def test_filter_solution(capsys):
    assert check_filter(right)
    assert "2 of 6 are worth a measurement" in capsys.readouterr().out
