# SPDX-License-Identifier: MIT
"""Texts that cannot be executed get one line; damaged ones never anything else."""

import pytest

from cdna.run import RunError, run
from tests.run.mutants import X, Y, fuzz
from tests.run.test_memory import COPY, kernel


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("gfx942", "gfx1100"), "gfx1100"),
        (lambda t: t.partition("global_store")[0], "cut short"),
        (lambda t: t.replace("s_endpgm", "s_cbranch_scc0 .LBB9\n  s_endpgm"), "goes nowhere"),
        (lambda t: t.replace("v_add_u32_e32", "v_add_u33_e32"), "v_add_u33_e32"),
        (lambda t: t.replace("v_add_u32_e32", "w_add_u32_e32"), "w_add_u32_e32"),
        (lambda t: "", "no AMDGCN kernel"),
    ],
)
def test_one_line_for_what_cannot_run(change, words):
    with pytest.raises(RunError, match=words) as e:
        run(change(kernel(COPY)), 1, [X.copy(), Y.copy(), 5])
    assert "\n" not in str(e.value)


def test_running_off_the_end_is_named():
    with pytest.raises(RunError, match=r"runs past|cut short"):
        run(kernel(COPY).replace("s_endpgm", "s_branch .L9\n  s_nop 0\n.L9:\n  s_nop 0"), 1, [X.copy(), Y.copy(), 5])


def test_mutated_listings_give_only_named_errors():
    ended = fuzz(1_500, 1)
    assert ended["ran"] and ended["text"] and ended["bounds"] and ended["undefined"]
