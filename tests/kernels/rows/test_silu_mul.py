# SPDX-License-Identifier: MIT
"""SwiGLU against float64: every type, odd sizes, values at the edges, both gradients."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.rows.silu_mul import reference_swiglu, swiglu, swiglu_backward, swiglu_forward


def data(*shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(3).to(device, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (2, 2048), (2049,), (0, 8)])
def test_forward_and_gradients(device, close, guarded, dtype, shape):
    gate, up, dy = (data(*shape, dtype=dtype, device=device, seed=i) for i in range(3))
    close(swiglu_forward(gate, up), reference_swiglu(gate.double(), up.double()), length=4)
    exact = [t.double().requires_grad_() for t in (gate, up)]
    expected = torch.autograd.grad(reference_swiglu(*exact), exact, dy.double())
    for got, want in zip(swiglu_backward(gate, up, dy), expected, strict=True):
        close(got, want, length=8)


def test_values_at_the_edges(device):
    gate = torch.tensor([0.0, -0.0, 90.0, -90.0, 60000.0, -60000.0, float("nan"), float("inf")], device=device)
    y = swiglu(gate, torch.ones_like(gate))
    expected = reference_swiglu(gate.cpu(), torch.ones(8))
    torch.testing.assert_close(y.cpu(), expected, equal_nan=True, atol=1e-30, rtol=1e-5)


def test_autograd_of_an_expanded_gradient(device):
    gate, up = (data(4, 6, dtype=torch.float32, device=device, seed=i).requires_grad_() for i in range(2))
    y = swiglu(gate, up)
    got = torch.autograd.grad(y.sum(), (gate, up))
    expected = torch.autograd.grad(reference_swiglu(gate, up).sum(), (gate, up))
    torch.testing.assert_close(got, expected)


def test_bad_arguments_are_named(device):
    x = torch.ones(4, 8, device=device)
    swiglu(x, x), swiglu_backward(x, x, x)  # what is remembered of good calls lets no bad one pass
    for call, words in (
        (lambda: swiglu(x.int(), x), "gate is int32"),
        (lambda: swiglu(x, x.half()), "up is float16"),
        (lambda: swiglu(x, x[:2]), "up has shape"),
        (lambda: swiglu(x.t(), x.t()), "gate of shape"),
        (lambda: swiglu(x, x.to("meta")), "up is on meta"),
        (lambda: swiglu(x, None), "up is None"),
        (lambda: swiglu_backward(x, x, x[0]), "dy has shape"),
    ):
        with pytest.raises(KernelError, match=words):
            call()
