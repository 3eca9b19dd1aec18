# SPDX-License-Identifier: MIT
"""executed_on_gfx942: results where a wrapper leaves them, errors that name the launch, nothing left behind."""

from __future__ import annotations

import pytest
import torch

from cdna.run import RunError
from cdna.run.launches import executed_on_gfx942
from rocm_guide.kernels.softmax import softmax, softmax_forward


def test_forward_and_backward_through_autograd():
    x = torch.randn(2, 100, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dy = torch.linspace(-1, 1, 200).view(2, 100)
    with executed_on_gfx942(count=False) as done:
        assert x.is_cuda and torch.empty(3, device="cuda").isnan().all()
        y = softmax(x)
        y.backward(dy)
    assert done.kernels == ["softmax_rows", "softmax_backward_rows"] and done.instructions > 100
    assert not x.is_cuda
    x64 = x.detach().double().requires_grad_()
    want = x64.softmax(-1)
    want.backward(dy.double())
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("order", ["round_robin", 3])
def test_every_order_gives_the_same_bits(order):
    x = torch.randn(3, 2000, generator=torch.Generator().manual_seed(1))
    results = []
    for one in ("alone", order):
        with executed_on_gfx942(order=one, count=False):
            results.append(softmax_forward(x))
    assert torch.equal(*results)


def test_errors_name_the_launch():
    x = torch.randn(1, 500)
    message = r"softmax_rows, launch 1: line \d+: .* the limit of 20"
    with pytest.raises(RunError, match=message), executed_on_gfx942(limit=20):
        softmax_forward(x)
    assert not x.is_cuda
    with pytest.raises(RunError, match="units=0"), executed_on_gfx942(units=0):
        pass
