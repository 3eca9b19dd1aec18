# SPDX-License-Identifier: MIT
"""The checks of notebook 15 accept the solutions and answer the obvious wrong ones with a hint."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.exercises.flash_attention import check_causal, check_join, check_mask


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


def test_the_causal_kernel_is_judged_by_the_dojo(capsys):
    """Its own tests (tests/dojo) hold the wrong kernels that it refuses."""
    assert not check_causal(lambda q, k, v: torch.empty_like(q))
    assert "causal_attention: not yet" in capsys.readouterr().out


def windowed(text, w):
    return lambda b, h, i, j: (j <= i) & (i - j < w) & (text[i] == text[j])


def test_mask_accepts(capsys):
    assert check_mask(windowed)
    assert "[OK]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda t, w: lambda b, h, i, j: (j <= i) & (t[i] == t[j]), "i - w + 1 to i"),
        (lambda t, w: lambda b, h, i, j: (j <= i) & (i - j <= w) & (t[i] == t[j]), "i - w + 1 to i"),
        (lambda t, w: lambda b, h, i, j: (j <= i) & (i - j < w), "is another text"),
        (lambda t, w: lambda b, h, i, j: (i - j < w) & (t[i] == t[j]), "no later one"),
        (lambda t, w: lambda b, h, i, j: (j < i) & (i - j < w) & (t[i] == t[j]), "the token itself"),
        (lambda t, w: lambda b, h, i, j: (j <= i) & (i - j < w - 1) & (t[i] == t[j]), "does not see token"),
        (lambda t, w: lambda b, h, i, j: j <= i and i - j < w and t[i] == t[j], "combine the conditions with &"),
        (lambda t, w: None, "the mask fails"),
        (lambda t: None, "the mask fails"),
    ],
)
def test_mask_hints(wrong, hint, capsys):
    assert not check_mask(wrong)
    assert hint in capsys.readouterr().out
