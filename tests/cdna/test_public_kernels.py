# SPDX-License-Identifier: MIT
"""Kernels that this project did not write, executed as gfx942 code: Liger's, forward and backward, and inductor's."""

from __future__ import annotations

import importlib
import zlib
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from cdna.run import run
from cdna.run.launches import executed_on_gfx942
from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, inspect_kernels
from tests.in_turn import in_turn


def normal(*shapes):
    return lambda: [torch.randn(shape) for shape in shapes]


def logs():
    return [torch.randn(3, 100).log_softmax(-1) for _ in range(2)]


def shares():
    return [torch.randn(3, 100).softmax(-1) for _ in range(2)]


def rope_inputs():
    cos, sin = (torch.randn(1, 5, 8).repeat(1, 1, 2) for _ in range(2))
    return [torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16), cos.requires_grad_(False), sin]


def rms(x, w):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w


def rotate(x, cos, sin):
    return x * cos[:, None] + torch.cat([-x[..., 8:], x[..., :8]], -1) * sin[:, None]


def jsd(x, y):
    middle = ((x.exp() + y.exp()) / 2).log()
    return sum(F.kl_div(middle, z, log_target=True, reduction="sum") for z in (x, y)) / 2 / len(x)


def sparsemax(x):
    """Martins and Astudillo, 2016: the projection onto the simplex."""
    z = x.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    support = (1 + k * z > z.cumsum(-1)).sum(-1, keepdim=True)
    return (x - (z.cumsum(-1).gather(-1, support - 1) - 1) / support).clamp(min=0)


# Liger's module and class -> inputs, what follows them, the formula, and how many of the inputs have a gradient.
LIGER = {
    "rms_norm.LigerRMSNormFunction": (normal((3, 100), (100,)), (1e-6,), rms, 2),
    "layer_norm.LigerLayerNormFunction": (
        normal((3, 100), (100,), (100,)),
        (1e-5,),
        lambda x, w, b: F.layer_norm(x, (100,), w, b),
        3,
    ),
    "geglu.LigerGELUMulFunction": (normal((3, 100), (3, 100)), (), lambda a, b: F.gelu(a, approximate="tanh") * b, 2),
    "swiglu.LigerSiLUMulFunction": (normal((3, 100), (3, 100)), (), lambda a, b: F.silu(a) * b, 2),
    "softmax.LigerSoftmaxFunction": (normal((3, 100)), (), lambda x: x.softmax(-1), 1),
    "dyt.LigerDyTFunction": (
        normal((3, 100), (1,), (100,), (100,)),
        (),
        lambda x, a, g, b: g * torch.tanh(a * x) + b,
        4,
    ),
    "relu_squared.LigerReLUSquaredFunction": (normal((3, 100)), (), lambda x: x.relu() ** 2, 1),
    "sparsemax.LigerSparsemaxFunction": (normal((3, 100)), (-1,), sparsemax, 1),
    "fused_add_rms_norm.LigerFusedAddRMSNormFunction": (
        normal((3, 100), (3, 100), (100,)),
        (1e-6,),
        lambda x, r, w: (rms(x + r, w), x + r),
        3,
    ),
    "rope.LigerRopeFunction": (rope_inputs, (), lambda q, k, cos, sin: (rotate(q, cos, sin), rotate(k, cos, sin)), 2),
    "group_norm.LigerGroupNormFunction": (
        normal((2, 6, 50), (6,), (6,)),
        (6, 3, 1e-5),
        lambda x, w, b: F.group_norm(x, 3, w, b),
        3,
    ),
    "kl_div.LigerKLDivLossFunction": (
        lambda: [logs()[0], shares()[0]],
        (),
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        1,
    ),
    "jsd.LigerJSDFunction": (logs, (), jsd, 1),
    "tvd.LigerTVDLossFunction": (shares, (), lambda p, q: (p - q).abs().sum() / 2 / len(p), 1),
    "cross_entropy.LigerCrossEntropyFunction": (
        lambda: [torch.randn(3, 100), torch.tensor([5, 99, 0])],
        (None,),
        F.cross_entropy,
        1,
    ),
}


def tensors(out):
    return [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=in_turn(zlib.crc32(n.encode()) % 3, 3), id=n.partition(".")[0]) for n in LIGER]
)
def test_liger(name):
    pytest.importorskip("liger_kernel")
    make, more, formula, graded = LIGER[name]
    torch.manual_seed(0)
    inputs = make()
    ours = [x.clone().requires_grad_(i < graded) for i, x in enumerate(inputs)]
    exact = [(x.double() if x.is_floating_point() else x).requires_grad_(i < graded) for i, x in enumerate(inputs)]
    module, _, function = name.partition(".")
    with executed_on_gfx942(count=False, copies=1e-3) as done:
        apply = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), function).apply
        # Some of them write their results into what they were given, so that gets a copy.
        out = tensors(apply(*[x * 1 if x.requires_grad else x for x in ours], *more))
        weights = [torch.linspace(0.5, 1.5, o.numel()).view_as(o) for o in out]
        torch.autograd.backward(out, [w.clone() for w in weights])
    assert done.kernels and done.instructions > 50
    want = tensors(formula(*exact))
    torch.autograd.backward(want, [w.double() for w in weights])
    for got, right in zip(out, want, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=2e-5, atol=2e-5)
    for x, right in zip(ours[:graded], exact, strict=False):
        torch.testing.assert_close(x.grad.double(), right.grad, rtol=1e-4, atol=1e-4)


# What inductor makes one kernel of: a function, the shapes of its inputs, and how many programs' worth of x it has.
INDUCTOR = {
    "pointwise": (lambda a, b: torch.relu(a) * b + 1, [(7, 300), (7, 300)], (7, 300), 2100),
    "broadcast": (lambda a, b: torch.tanh(a + b).sigmoid(), [(7, 300), (300,)], (7, 300), 2100),
    "softmax": (lambda a: a.softmax(-1), [(5, 200)], (5, 200), 5),
    "sum of long rows": (lambda a: a.exp().sum(-1), [(5, 3000)], (5,), 5),
    "RMSNorm": (rms, [(5, 200), (200,)], (5, 200), 5),
}


@pytest.mark.parametrize("name", INDUCTOR)
def test_inductor(name):
    fn, shapes, result, xnumel = INDUCTOR[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    kernels = extract_kernels(inductor_code(fn, inputs))
    assert len(kernels) == 1
    with mock.patch("cdna.report.kernel_report", lambda compiled: compiled):
        choices = inspect_kernels(kernels)
    assert choices
    want = fn(*[x.double() for x in inputs])
    for compiled in choices:
        out = torch.full(result, float("nan"))
        numbers = {"xnumel": xnumel, "r0_numel": inputs[0].shape[-1]}
        free = [n for n, t in compiled.signature.items() if t != "constexpr"]
        given = iter(inputs)
        arguments = {
            n: numbers[n] if n in numbers else out if n.startswith(("out", "in_out")) else next(given) for n in free
        }
        run(
            compiled,
            -(-xnumel // compiled.constants.get("XBLOCK", 1)),
            arguments,
            count=False,
            copies=1e-3,
            wait_states=True,
        )
        torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
