# SPDX-License-Identifier: MIT
"""What every wrapper does when a call of the same kind came before: right results, and the same refusals.

The second call of a kind goes past the checks, past Triton's look at the arguments and, on a GPU, past its launcher in
Python. So each wrapper is called three times with new numbers, then badly, then well again.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from rocm_guide.kernels import direct, launch
from rocm_guide.kernels.api import rms_norm
from rocm_guide.kernels.arguments import KernelError, architecture
from rocm_guide.kernels.fp8.formats import fp8_dtype, fp8_format
from rocm_guide.kernels.fp8.rmsnorm import reference_rmsnorm_fp8, rmsnorm_fp8
from rocm_guide.kernels.fp8.swiglu import reference_swiglu_fp8, swiglu_fp8
from rocm_guide.kernels.gemm.linear import linear
from rocm_guide.kernels.gemm.multiply_reduce import gemm_multiply_reduce
from rocm_guide.kernels.gemm.skinny import gemm_skinny
from rocm_guide.kernels.gemm.split_k import gemm_split_k
from rocm_guide.kernels.gemm.stream_k import gemm_stream_k
from rocm_guide.kernels.gemm.tiled import gemm
from rocm_guide.kernels.rows.cross_entropy import cross_entropy
from rocm_guide.kernels.rows.silu_mul import swiglu

NAN, INF = float("nan"), float("inf")


def scaled(function):
    """FP8 and its scales, multiplied."""

    def call(*args, **options):
        q, *_, scales = function(*args, **options)
        return q.double() * (scales.double() if scales is not None else 0.5)

    return call


def norm(x, w):
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


SQUARE = ((16, 32), (32, 48))
#: name -> (function, shapes, reference, relative error, bad options as (options, text))
WRAPPERS = {
    "swiglu": (swiglu, ((4, 64), (4, 64)), lambda g, u: F.silu(g) * u, 3e-3, ()),
    "rmsnorm_fp8": (
        scaled(rmsnorm_fp8),
        ((4, 64), (4, 64), (64,)),
        lambda *t: reference_rmsnorm_fp8(*t)[0],
        0.07,
        (({"scale": 0.0}, "scale=0"), ({"scale": NAN}, "scale=nan"), ({"eps": -1.0}, "eps=-1")),
    ),
    "swiglu_fp8": (
        scaled(swiglu_fp8),
        ((4, 128),),
        reference_swiglu_fp8,
        0.07,
        (({"scale": -1.0}, "scale=-1"), ({"tile": 64}, "tile=64"), ({"scale": 1.0, "warps": 4}, "warps=4")),
    ),
    "gemm": (
        gemm,
        SQUARE,
        torch.matmul,
        3e-3,
        (
            ({"alpha": NAN}, "alpha=nan"),
            ({"activation": "tanh"}, "activation='tanh'"),
            ({"out_dtype": torch.int8}, "out is int8"),
        ),
    ),
    "linear": (linear, ((2, 3, 32), (48, 32), (48,)), F.linear, 3e-3, ()),
    "gemm_split_k": (
        gemm_split_k,
        SQUARE,
        torch.matmul,
        3e-3,
        (
            ({"split": 0}, "split=0"),
            ({"split": True}, "split=True"),
            ({"alpha": INF}, "alpha=inf"),
            ({"atomic": True, "activation": "relu"}, "atomic=True"),
        ),
    ),
    "gemm_stream_k": (gemm_stream_k, SQUARE, torch.matmul, 3e-3, (({"out_dtype": torch.int32}, "out is int32"),)),
    "gemm_multiply_reduce": (
        gemm_multiply_reduce,
        ((2, 32), (32, 48)),
        torch.matmul,
        3e-3,
        (({"alpha": NAN}, "alpha=nan"), ({"out_dtype": torch.int32}, "out is int32")),
    ),
    "gemm_skinny": (
        gemm_skinny,
        ((4, 64), (96, 64)),
        F.linear,
        9e-3,
        (({"scale_x": NAN}, "scale_x=nan"), ({"scale_w": "2"}, "scale_w='2'"), ({"out_dtype": torch.int8}, "out is")),
    ),
}


@pytest.fixture(autouse=True)
def nothing_remembered():
    launch.forget_plans()
    yield
    launch.forget_plans()


def numbers(shapes, device, seed):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=gen).to(device, torch.float16) for s in shapes]


def assert_right(name, tensors):
    function, _, reference, error, _ = WRAPPERS[name]
    expected = reference(*(t.detach().double() for t in tensors))
    got = function(*tensors).detach().double()
    assert got.shape == expected.shape
    assert float((got - expected).abs().max()) <= error * float(expected.abs().max()), name


def spoiled(tensors, at, how):
    """The tensors with one of them made into what no wrapper takes."""
    t = tensors[at]
    ways = {
        "double": t.double(),
        "meta": t.to("meta"),
        "a list": [1.0],
        "one dimension more": t[None],
    }
    return [*tensors[:at], ways[how], *tensors[at + 1 :]]


@pytest.mark.parametrize("name", WRAPPERS)
def test_warm_calls_are_right_and_refuse(device, name):
    function, shapes, _, _, options = WRAPPERS[name]
    for seed in range(3):
        assert_right(name, numbers(shapes, device, seed))
    warm = len(launch._plans)
    assert warm >= 1
    good = numbers(shapes, device, 3)
    for bad, text in options:
        for _ in range(2):
            with pytest.raises(KernelError, match=text):
                function(*good, **bad)
    for at in range(len(good)):
        for how in ("double", "meta", "a list"):
            for _ in range(2):
                with pytest.raises(KernelError):
                    function(*spoiled(good, at, how))
        if at:  # a first tensor of more dimensions may be good by itself
            with pytest.raises(KernelError):
                function(*spoiled(good, at, "one dimension more"))
    assert len(launch._plans) == warm, "a refused call is not remembered"
    assert_right(name, numbers(shapes, device, 4))


TRAINED = ("swiglu", "linear")


@pytest.mark.parametrize("name", TRAINED)
def test_a_gradient_is_there_after_calls_without_one(device, name):
    function, shapes, reference, error, options = WRAPPERS[name]
    for seed in range(3):
        assert_right(name, numbers(shapes, device, seed))
        leaves = [t.requires_grad_() for t in numbers(shapes, device, seed)]
        wide = [t.detach().double().requires_grad_() for t in leaves]
        assert_right(name, leaves)
        out, expected = function(*leaves), reference(*wide)
        dy = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(device, torch.float16)
        got = torch.autograd.grad(out, leaves, dy)
        for g, e in zip(got, torch.autograd.grad(expected, wide, dy.double()), strict=True):
            assert float((g.double() - e).abs().max()) <= 4 * error * float(e.abs().max()), name
    for bad, text in options:
        with pytest.raises(KernelError, match=text):
            function(*leaves, **bad)
    for at in range(len(leaves)):
        with pytest.raises(KernelError):
            function(*spoiled(leaves, at, "double"))


def test_the_loss_and_its_labels(device):
    logits, labels = numbers(((4, 64),), device, 0)[0], torch.tensor([1, 5, -100, 63], device=device)
    for _ in range(3):
        torch.testing.assert_close(cross_entropy(logits, labels).double(), F.cross_entropy(logits.double(), labels))
    for bad in (
        (logits, labels.int()),
        (logits, labels[:3]),
        (logits.double(), labels),
        (logits.T, labels),
        (logits, labels.to("meta")),
    ):
        with pytest.raises(KernelError):
            cross_entropy(*bad)
    with pytest.raises(KernelError, match="ignore_index"):
        cross_entropy(logits, labels, ignore_index=0.5)


def test_fp8_types_of_the_other_vendor_after_a_good_call(device):
    x = numbers(((4, 64),), device, 0)[0]
    arch = architecture(x)
    if arch == "interpreter":
        pytest.skip("the interpreter takes both")
    mine = fp8_dtype(fp8_format("e4m3", arch))
    other = torch.float8_e4m3fn if mine == torch.float8_e4m3fnuz else torch.float8_e4m3fnuz
    w = numbers(((96, 64),), device, 1)[0]
    gemm_skinny(x.to(mine), w.to(mine))
    for dtype in (other, mine):
        with pytest.raises(KernelError):
            gemm_skinny(x.to(other), w.to(dtype))


@pytest.mark.parametrize("name", [n for n in WRAPPERS if n != "gemm_stream_k"])
def test_other_streams_and_graphs(device, name):
    if device == "cpu":
        pytest.skip("needs a GPU")
    function, shapes, reference, error, _ = WRAPPERS[name]
    tensors = numbers(shapes, device, 0)
    assert_right(name, tensors)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for seed in range(2):
            assert_right(name, numbers(shapes, device, seed))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(*tensors)
    for seed in (5, 6):
        for t, new in zip(tensors, numbers(shapes, device, seed), strict=True):
            t.copy_(new)
        launch.forget_plans()  # a graph keeps what it needs itself
        junk = [torch.full((1 << 16,), NAN, device=device) for _ in range(8)]
        graph.replay()
        expected = reference(*(t.double() for t in tensors))
        assert float((out.double() - expected).abs().max()) <= error * float(expected.abs().max())
        assert all(bool(j.isnan().all()) for j in junk), "a replay writes into memory that is not its own"


def test_a_plan_made_while_a_graph_is_captured(device, monkeypatch):
    if device == "cpu":
        pytest.skip("needs a GPU")
    tensors = numbers(((4, 64), (64,), (8, 96), (64, 96)), device, 0)

    def both(x, w, rows, weight):
        return rms_norm(x, w), gemm_skinny(rows, weight)

    both(*tensors)  # compiles
    launch.forget_plans()
    monkeypatch.setattr(launch, "_unread", {})
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = both(*tensors)
    assert not launch._unread and not direct.scratch, "memory of a graph is kept for calls outside of it"
    for t, new in zip(tensors, numbers(((4, 64), (64,), (8, 96), (64, 96)), device, 1), strict=True):
        t.copy_(new)
    graph.replay()
    for got, want in zip(out, (norm(*tensors[:2]), F.linear(*tensors[2:])), strict=True):
        torch.testing.assert_close(got, want.to(got.dtype), rtol=0.02, atol=0.1)


def test_memory_kept_in_the_first_run_of_reduce_overhead_is_not_the_graphs(device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    shapes = ((4, 64), (64,), (8, 1024), (64, 1024))
    torch._dynamo.reset()
    launch.forget_plans()

    @partial(torch.compile, mode="reduce-overhead", fullgraph=True)
    def both(x, w, rows, weight):
        return rms_norm(x, w), gemm_skinny(rows, weight)

    with torch.no_grad():
        for seed in range(5):
            tensors = numbers(shapes, device, seed)
            torch.compiler.cudagraph_mark_step_begin()
            # PyTorch looks through the graph's pool after the first runs: what is held there and is no result, is an
            # error.
            out = [t.clone() for t in both(*tensors)]
            for got, want in zip(out, (norm(*tensors[:2]), F.linear(*tensors[2:])), strict=True):
                torch.testing.assert_close(got, want.to(got.dtype), rtol=0.02, atol=0.3)
            assert_right("gemm_skinny", numbers(WRAPPERS["gemm_skinny"][1], device, seed))
    assert direct.scratch
