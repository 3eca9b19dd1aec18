# SPDX-License-Identifier: MIT
"""The linear layer and its gradients against float64."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.gemm.linear import linear, reference_linear
from tests.kernels.gemm.cases import BRAIN, case, values

TYPES = [torch.float32, torch.float16, *BRAIN]


@pytest.mark.parametrize("seed", range(24))
def test_forward_and_gradients(device, close, seed):
    c = case(seed, device, types=TYPES, plain=True)
    x, w = c.a.clone().requires_grad_(), c.b.T.contiguous().requires_grad_()
    bias = values((w.shape[0],), x.dtype, c.rng, device).requires_grad_() if seed % 2 else None
    y = linear(x, w, bias)
    dy = values(tuple(y.shape), x.dtype, c.rng, device)
    y.backward(dy)
    inputs = [t.detach().double().requires_grad_() for t in (x, w, bias) if t is not None]
    expected = reference_linear(*inputs)
    expected.backward(dy.double())
    big = 0.0 if bias is None else bias.abs().max().double().cpu().detach()
    close(y, expected.detach(), length=x.shape[1], magnitude=c.magnitude.cpu() + big)

    def walk(p, q):
        return (p.detach().double() ** 2 @ q.detach().double() ** 2).sqrt()

    close(x.grad, inputs[0].grad, length=w.shape[0], magnitude=walk(dy, w))
    close(w.grad, inputs[1].grad, length=x.shape[0], magnitude=walk(dy.T, x))
    if bias is not None:
        close(bias.grad, inputs[2].grad, length=x.shape[0], magnitude=(dy.double() ** 2).sum(0).sqrt())


def test_leading_dimensions_and_errors(device):
    x, w = torch.ones(2, 3, 8, device=device), torch.ones(5, 8, device=device)
    assert torch.equal(linear(x, w), torch.full((2, 3, 5), 8.0, device=device))
    with pytest.raises(KernelError, match="weight has shape"):
        linear(x, w.T)
    with pytest.raises(KernelError, match="x is int8"):
        linear(x.to(torch.int8), w)
    with pytest.raises(KernelError, match="bias is float16"):
        linear(x, w, torch.ones(5, device=device, dtype=torch.float16))
