# SPDX-License-Identifier: MIT
"""The wrappers inside torch.compile and torch.export: one graph, the same numbers, the same gradients."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels import ops, ops_products  # noqa: F401 - registers the operators
from rocm_guide.kernels.api import attention, attention_decode, attention_paged, layer_norm, rms_norm, softmax
from rocm_guide.kernels.fp8.rmsnorm import rmsnorm_fp8
from rocm_guide.kernels.fp8.swiglu import swiglu_fp8
from rocm_guide.kernels.gemm.linear import linear
from rocm_guide.kernels.gemm.multiply_reduce import gemm_multiply_reduce
from rocm_guide.kernels.gemm.skinny import gemm_skinny
from rocm_guide.kernels.gemm.split_k import gemm_split_k
from rocm_guide.kernels.gemm.stream_k import gemm_stream_k
from rocm_guide.kernels.gemm.tiled import gemm
from rocm_guide.kernels.int8.operators import bmm_abe_i8, linear_ab_i8_de_f32, linear_relu_abde_i8, linear_scaled


def leaf(*shape, seed=0, dtype=torch.float32, device="cpu"):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g).to(device, dtype).requires_grad_()


def whole(*shape, seed=0, dtype=torch.float32, device="cpu"):
    return leaf(*shape, seed=seed, dtype=dtype, device=device).detach()


#: A model's functions of tensors with a gradient: all in one graph, so that tracing is paid for once.
def trained(x, w, b, weight, q, k, bias):
    h = layer_norm(rms_norm(x, w, 1e-6) + rms_norm(x), w, b)
    h = softmax(linear(h, weight, b[:8]))
    mixed = attention(q, k, k, bias=bias, causal=True) + attention(q, k, k, layout="bhsd", scale=0.5)
    return h.sin().sum() + mixed.cos().sum()


def served(x, w, q, k, half):
    codes, updated, scales = rmsnorm_fp8(x, x, w)
    fixed, _, none = rmsnorm_fp8(x, x.clone(), w, 0.5, in_place=True)
    act, act_scales = swiglu_fp8(updated)
    product = gemm(half, half.T, activation="relu", alpha=0.5, out_dtype=torch.float32)
    assert none is None
    return [t.float() for t in (codes, fixed, act, scales, act_scales, product, gemm_skinny(half, half, 2.0))] + [
        attention_decode(q, k, k)
    ]


def products(half, codes, scale, bias, d):
    kept = gemm_split_k(half, half.T, split=2, activation="relu", alpha=0.5, out_dtype=torch.float32)
    sums = gemm_split_k(codes, codes.T, split=2, atomic=True)
    small = gemm_multiply_reduce(half, half.T, alpha=2.0), gemm_multiply_reduce(codes, codes.T)
    eights = linear_relu_abde_i8(codes, codes.T, d, 0.01), bmm_abe_i8(codes[None], codes.T[None], 0.01)
    floats = linear_ab_i8_de_f32(codes, codes.T, bias, 0.5, 2.0)
    scaled = linear_scaled(codes, codes.T, scale, scale[:1], bias, out_dtype=torch.bfloat16)
    return (
        kept,
        sums,
        gemm_stream_k(half, half.T),
        *small,
        *eights,
        floats,
        scaled,
    )


def test_products_in_one_graph(device):
    generator = torch.Generator().manual_seed(3)
    half = whole(4, 64, dtype=torch.float16, device=device)
    codes = torch.randint(-9, 10, (4, 64), generator=generator, dtype=torch.int8).to(device)
    scale, bias = whole(4, seed=5, device=device), whole(4, seed=6, device=device)
    given = half, codes, scale, bias, codes[0, :4].contiguous()
    expected = products(*given)
    torch._dynamo.reset()
    got = torch.compile(products, fullgraph=True, backend="aot_eager")(*given)
    assert [t.dtype for t in got] == [t.dtype for t in expected]
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)
    program = torch.export.export(Whole(products), given)
    names = [str(node.target) for node in program.graph.nodes if "rocm_guide" in str(node.target)]
    assert len(names) == len(expected), names


class Whole(torch.nn.Module):
    """A function as a module, which is what torch.export takes."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def test_one_graph_forward_and_backward(device):
    shapes = ((2, 3, 16), (16,), (16,), (8, 16), (1, 2, 5, 16), (1, 1, 5, 16), (1, 1, 5, 5))
    tensors = [leaf(*shape, seed=i, device=device) for i, shape in enumerate(shapes)]
    expected = trained(*tensors)
    torch._dynamo.reset()
    got = torch.compile(trained, fullgraph=True, backend="aot_eager")(*tensors)
    torch.testing.assert_close(got, expected)
    for a, b in zip(torch.autograd.grad(got, tensors), torch.autograd.grad(expected, tensors), strict=True):
        torch.testing.assert_close(a, b)


def test_what_serves_in_one_graph_and_exported(device):
    half = torch.float16
    tensors = [whole(4, 16, device=device), whole(16, device=device), whole(1, 4, 16, dtype=half, device=device)]
    tensors += [whole(1, 3, 2, 16, dtype=half, device=device), whole(4, 16, dtype=half, device=device)]
    expected = served(*tensors)
    torch._dynamo.reset()
    for got in torch.compile(served, fullgraph=True, backend="aot_eager")(*tensors), exported(*tensors):
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a, b)


def exported(*tensors):
    program = torch.export.export(Whole(served), tensors)
    names = {str(node.target) for node in program.graph.nodes if "rocm_guide" in str(node.target)}
    kinds = ("rmsnorm_fp8", "swiglu_fp8", "gemm", "gemm_skinny", "attention_decode")
    assert names == {f"rocm_guide.{kind}.default" for kind in kinds}
    return program.module()(*tensors)


#: (operator, arguments): tensors by (shape, wants a gradient), everything else as it is.
CALLS = {
    "softmax_forward": [((4, 8), True)],
    "rms_norm_forward": [((4, 8), True), ((8,), True), 1e-6],
    "layer_norm_forward": [((4, 8), True), None, ((8,), True), 1e-6],
    "linear": [((4, 16), True), ((8, 16), True), None],
    "rmsnorm_fp8": [((4, 8), False), ((4, 8), False), ((8,), False), None, 1e-6],
    "swiglu_fp8": [((4, 16), False), 0.5],
    "gemm": [((4, 16), False), ((16, 8), False), None, "silu", 2.0, torch.float16, False],
    "gemm_split_k": [((4, 64), False), ((64, 8), False), None, 2, False, "silu", 2.0, torch.float16, False],
    "gemm_stream_k": [((4, 64), False), ((64, 8), False), None, False],
    "gemm_multiply_reduce": [((4, 64), False), ((64, 8), False), 2.0, torch.float16],
    "attention_forward": [
        *[((1, 2, 4, 16), True)] * 3,
        ((2, 2), True),
        None,
        None,
        None,
        "bshd",
        None,
        False,
        0.0,
        0,
        None,
        None,
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_pytorch_finds_nothing_wrong_with_the_operator(device, name):
    def make(a):
        return (leaf if a[1] else whole)(*a[0], device=device)

    arguments = [make(a) if isinstance(a, tuple) else a for a in CALLS[name]]
    torch.library.opcheck(getattr(torch.ops.rocm_guide, name).default, tuple(arguments))


def test_without_an_operator_the_graph_breaks_and_the_result_is_right(device):
    q, pages = (whole(*shape, dtype=torch.float16, device=device) for shape in ((2, 2, 16), (3, 4, 2, 16)))
    table = torch.tensor([[0, 2], [1, 0]], dtype=torch.int32, device=device)
    lengths = torch.tensor([7, 3], dtype=torch.int32, device=device)

    def model(q):
        return attention_paged(q + 1, pages, pages, table, lengths) * 2

    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="aot_eager")(q), model(q))


def test_a_traced_call_is_checked_when_it_runs(device):
    x = torch.ones(2, 8, device=device)
    torch._dynamo.reset()
    with pytest.raises(ValueError, match=r"weight has shape \(4,\): give \(8,\)"):
        torch.compile(lambda x, w: rms_norm(x, w) * 2, fullgraph=True, backend="eager")(x, x[0, :4])
