# SPDX-License-Identifier: MIT
"""Multiply-reduce against float64, every type, any strides."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.gemm_multiply_reduce import gemm_multiply_reduce, reference_multiply_reduce
from tests.kernels.gemm.cases import case
from tests.kernels.this_machine import seeds


@pytest.mark.parametrize("seed", seeds(208))
def test_random_products(device, close, seed, guarded):
    c = case(seed, device, most_rows=12)
    alpha = 1.0 if c.a.dtype == torch.int8 else (1.0, -0.25)[seed % 2]
    out_dtype = torch.float32 if c.a.element_size() == 1 and c.a.dtype != torch.int8 else None
    got = gemm_multiply_reduce(c.a, c.b, alpha=alpha, out_dtype=out_dtype)
    expected = reference_multiply_reduce(c.a, c.b, alpha)
    if got.dtype == torch.int32:
        assert torch.equal(got.cpu().double(), expected.cpu())
    else:
        close(got, expected, length=c.a.shape[1] + 8, magnitude=abs(alpha) * c.magnitude)


def test_infinity_nan_and_empty(device):
    a = torch.ones(3, 40, device=device)
    a[0, 3], a[1, 4] = float("inf"), float("nan")
    got = gemm_multiply_reduce(a, torch.ones(40, 5, device=device))
    assert torch.isinf(got[0]).all() and torch.isnan(got[1]).all() and bool((got[2] == 40).all())
    assert torch.equal(
        gemm_multiply_reduce(a[:, :0], torch.ones(0, 5, device=device)), torch.zeros(3, 5, device=device)
    )
    assert gemm_multiply_reduce(a[:0], torch.ones(40, 5, device=device)).shape == (0, 5)


@pytest.mark.parametrize(
    ("b", "options", "text"),
    [
        ((4, 5), {}, "b has shape"),
        ((3, 5), {"alpha": float("nan")}, "alpha=nan"),
        ((3, 5), {"out_dtype": torch.int32}, "out is int32"),
    ],
)
def test_errors_before_launch(device, b, options, text):
    gemm_multiply_reduce(torch.ones(2, 3, device=device), torch.ones(3, 5, device=device))
    with pytest.raises(ValueError, match=text):
        gemm_multiply_reduce(torch.ones(2, 3, device=device), torch.ones(b, device=device), **options)


def test_int8_takes_no_factor(device):
    a = torch.ones(2, 3, device=device, dtype=torch.int8)
    gemm_multiply_reduce(a, a.T)
    with pytest.raises(ValueError, match="alpha=2"):
        gemm_multiply_reduce(a, a.T, alpha=2.0)
