# SPDX-License-Identifier: MIT
"""The loss against float64: every type, odd and long rows, ignored labels, values at the edges, the gradient."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.rows.cross_entropy import (
    cross_entropy,
    cross_entropy_backward,
    cross_entropy_forward,
    reference_cross_entropy,
)


def data(rows, cols, dtype, device, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(cols, (rows,), generator=g)
    labels[1::3] = -100
    return torch.randn(rows, cols, generator=g).mul(4).to(device, dtype), labels.to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 7), (4, 1024), (4, 1025), (2, 5000)])
def test_loss_and_gradient(device, close, guarded, dtype, rows, cols):
    x, labels = data(rows, cols, dtype, device, rows)
    loss, lse = cross_entropy_forward(x, labels)
    each = torch.nn.functional.cross_entropy(x.double(), labels, reduction="none")
    close(loss, each, length=cols, magnitude=30)
    close(lse, x.double().logsumexp(-1), length=cols, magnitude=30)
    dl = torch.rand(rows, device=device)
    exact = x.double().requires_grad_()
    losses = torch.nn.functional.cross_entropy(exact, labels, reduction="none")
    (expected,) = torch.autograd.grad(losses, exact, dl.double())
    close(cross_entropy_backward(x, labels, lse, dl), expected, length=cols, magnitude=30)


def test_the_mean_of_rows_apart(device):
    wide, labels = data(6, 40, torch.float32, device)
    x = wide[:, :33].clone().requires_grad_()
    labels = labels.clamp(max=32)
    torch.testing.assert_close(cross_entropy(wide[:, :33], labels), reference_cross_entropy(x, labels).detach())
    (got,) = torch.autograd.grad(cross_entropy(x, labels, ignore_index=5), x)
    (expected,) = torch.autograd.grad(reference_cross_entropy(x, labels.where(labels >= 0, 0), 5), x)
    kept = labels >= 0
    assert not torch.equal(got, expected) or bool(kept.all())
    (got,) = torch.autograd.grad(cross_entropy(x, labels), x)
    (expected,) = torch.autograd.grad(reference_cross_entropy(x, labels), x)
    torch.testing.assert_close(got, expected)
    assert bool(cross_entropy(wide, torch.full_like(labels, -100)).isnan()), "as in torch"


def test_values_at_the_edges(device):
    inf = float("inf")
    x = torch.tensor([[0.0, -inf, 1.0], [3e38, 0.0, -3e38], [float("nan"), 0.0, 0.0], [0.0, 0.0, 0.0]], device=device)
    labels = torch.tensor([0, 0, 1, 7], device=device)
    loss = cross_entropy_forward(x, labels)[0].cpu()
    expected = torch.nn.functional.cross_entropy(x[:3].cpu(), labels[:3].cpu(), reduction="none")
    torch.testing.assert_close(loss[:3], expected, equal_nan=True)
    assert bool(loss[3].isnan()), "a label that is no column"
    assert cross_entropy_forward(x[:0], labels[:0])[0].shape == (0,)


def test_bad_arguments_are_named(device):
    x, labels = data(4, 8, torch.float32, device)
    cross_entropy(x, labels), cross_entropy_backward(x, labels, x[:, 0], x[:, 0])  # these let no bad call pass
    for call, words in (
        (lambda: cross_entropy(x.int(), labels), "logits is int32"),
        (lambda: cross_entropy(x[0], labels), "logits has shape"),
        (lambda: cross_entropy(x.t(), torch.cat([labels, labels])), "stride"),
        (lambda: cross_entropy(x[:, :0], labels), "at least one column"),
        (lambda: cross_entropy(x, labels.int()), "labels is int32"),
        (lambda: cross_entropy(x, labels[:2]), "labels has shape"),
        (lambda: cross_entropy(x, labels.to("meta")), "labels is on meta"),
        (lambda: cross_entropy_forward(x, labels, True), "ignore_index=True"),
        (lambda: cross_entropy_backward(x, labels, x[:, 0].half(), x[:, 0]), "lse is float16"),
        (lambda: cross_entropy_backward(x, labels, x[:, 0], x[0]), "dl has shape"),
    ):
        with pytest.raises(KernelError, match=words):
            call()
