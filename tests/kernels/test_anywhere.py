# SPDX-License-Identifier: MIT
"""Wrappers called from a process that compiles: interpreted elsewhere on a CPU, faults named."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.kernels.anywhere import call, call_all
from rocm_guide.kernels.attention import attention_forward, reference_attention
from rocm_guide.kernels.rms_norm import rms_norm_forward
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward

HERE = "cuda" if torch.cuda.is_available() else "cpu"


def test_several_calls_in_one_process():
    x, w = torch.randn(3, 50, device=HERE), torch.randn(50, device=HERE)
    y, (z, rstd), dx = call_all(
        [(softmax_forward, (x,), {}), (rms_norm_forward, (x, w), {"eps": 0.5}), (softmax_backward, (x, x), {})]
    )
    assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6)
    assert torch.allclose(rstd, (x.square().mean(-1) + 0.5).rsqrt()) and z.shape == dx.shape == x.shape


def test_a_fault_over_there_is_named():
    with pytest.raises(GuideError, match="x is int64"):
        call(softmax_forward, torch.ones(2, 3, dtype=torch.int64, device=HERE))


def test_attention_with_options():
    q, k, v = (torch.randn(1, 2, n, 16, device=HERE) for n in (10, 17, 17))
    out, lse = call(attention_forward, q, k, v, causal=True)
    expected, total = reference_attention(q.double(), k.double(), v.double(), causal=True)
    assert (out - expected).abs().max() < 1e-5 and (lse - total).abs().max() < 1e-5
    with pytest.raises(GuideError, match="dropout=2"):
        call(attention_forward, q, k, v, dropout=2.0)
