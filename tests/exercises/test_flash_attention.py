# SPDX-License-Identifier: MIT
"""The checks of notebook 15 accept the solutions and answer the obvious wrong ones with a hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.flash_attention import check_join, check_scores_memory, check_tiles


def good(o1, lse1, o2, lse2):
    lse = torch.logaddexp(lse1, lse2)
    return o1 * (lse1 - lse).exp()[:, None] + o2 * (lse2 - lse).exp()[:, None], lse


def overflowing(o1, lse1, o2, lse2):
    a, b = lse1.exp(), lse2.exp()
    return (o1 * a[:, None] + o2 * b[:, None]) / (a + b)[:, None], (a + b).log()


def test_join_accepts(capsys):
    assert check_join(good)
    assert "[OK]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda a, b, c, d: ((a + c) / 2, torch.logaddexp(b, d)), "do not weigh the same"),
        (overflowing, "overflows"),
        (lambda a, b, c, d: (good(a, b, c, d)[0], b + d), "log(exp(lse1) + exp(lse2))"),
        (lambda a, b, c, d: (a + c, torch.logaddexp(b, d)), "each output is weighed"),
        (lambda a, b, c, d: (a[:2], b), "(rows, d)"),
        (lambda a, b, c, d: (good(a, b, c, d)[0], torch.logaddexp(b, d)[:, None]), "wanted are (rows, d) and (rows,)"),
        (lambda a, b, c, d: a, "return the output"),
    ],
)
def test_join_hints(wrong, hint, capsys):
    assert not check_join(wrong)
    assert hint in capsys.readouterr().out


def test_scores_memory(capsys):
    assert check_scores_memory(64)
    assert "[OK]" in capsys.readouterr().out
    for wrong, hint in ((2, "every head"), (32, "2 bytes"), (68.7, "10**9"), (1, "heads x tokens")):
        assert not check_scores_memory(wrong)
        assert hint in capsys.readouterr().out


def test_tiles(capsys):
    assert check_tiles(lambda n, m, k: sum(-(-min(first + m, n) // k) for first in range(0, n, m)))
    assert "[OK]" in capsys.readouterr().out
    for wrong, hint in (
        (lambda n, m, k: -(-n // m) * -(-n // k), "all tiles"),
        (lambda n, m, k: -(-n // m) * -(-n // k) // 2, "not exactly half"),
        (lambda n, m, k: sum(-(-(first + m) // k) for first in range(0, n, m)), "may be shorter"),
        (lambda n, m, k: 0, "rounded up"),
        (lambda n, m, k: n // 0, "fails"),
    ):
        assert not check_tiles(wrong)
        assert hint in capsys.readouterr().out
