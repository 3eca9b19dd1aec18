# SPDX-License-Identifier: MIT
"""Probabilities made visible: what is shown is what float64 says, and a wrong case shows as wrong."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.kernels import attention_show
from rocm_guide.kernels.attention_show import show_probabilities

HERE = "cuda" if torch.cuda.is_available() else "cpu"


def test_every_feature():
    gen = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 16, 16, generator=gen).half().to(HERE) for _ in range(2))
    cases = {
        "plain": {},
        "short": {"causal": True, "queries": 5},
        "alibi": {"alibi_slopes": torch.tensor([0.5, 0.1], device=HERE)},
        "dropout": {"dropout": 0.5, "seed": 3},
    }
    shown = show_probabilities(q, k, cases)
    assert all(0 < s.roundings <= 2 for s in shown.values())
    assert shown["short"].matrix.shape == (1, 2, 5, 16)
    assert bool((shown["short"].matrix[0, 0, 0, 12:] == 0).all()) and shown["short"].matrix[0, 0, 0, 11] > 0
    assert 0.3 < (shown["dropout"].matrix == 0).float().mean() < 0.7


def test_a_wrong_kernel_is_seen(monkeypatch):
    """If the kernel forgot causal, the deviation is thousands of roundings."""
    call_all = attention_show.call_all
    monkeypatch.setattr(attention_show, "call_all", lambda jobs: call_all([(f, a, {}) for f, a, _ in jobs]))
    q = torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(1)).half().to(HERE)
    assert show_probabilities(q, q, {"causal": {"causal": True}})["causal"].roundings > 100


def test_sizes_that_do_not_fit():
    with pytest.raises(GuideError, match="17 keys, 16 features"):
        show_probabilities(torch.zeros(1, 1, 4, 16), torch.zeros(1, 1, 17, 16), {})
