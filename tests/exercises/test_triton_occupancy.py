# SPDX-License-Identifier: MIT
"""The six steps of notebook 23: the solution passes, the obvious wrong ones are met with the right hint."""

import pytest

pytest.importorskip("triton")

from rocm_guide.exercises.triton_occupancy import check_formula


def formula(vgprs, lds, waves, granule=8, block=512, most=8, whole=True, zero=True):
    per_simd = min(most, 512 // (-(-vgprs // granule) * granule))
    groups = per_simd * 4 // waves if whole else per_simd * 4 / waves
    if lds or not zero:
        groups = min(groups, 65536 // (-(-lds // block) * block))
    return groups * waves / 4


def test_formula_solution():
    assert check_formula(formula)


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        ({"granule": 16}, "granule is 8, not 16"),
        ({"granule": 1}, "eights"),
        ({"most": 10}, "more than 8 waves"),
        ({"block": 1}, "steps of 512"),
        ({"whole": False}, "starts only as a whole"),
        ({"zero": False}, "division by zero"),
    ],
)
def test_formula_mistakes(mistake, hint, capsys):
    assert not check_formula(lambda v, m, w: formula(v, m, w, **mistake))
    assert hint in capsys.readouterr().out


def test_formula_that_forgets_lds_or_returns_nothing(capsys):
    assert not check_formula(lambda v, m, w: formula(v, 0, w))
    assert "65,536 B per CU" in capsys.readouterr().out
    assert not check_formula(lambda v, m, w: None)
