# SPDX-License-Identifier: MIT
"""What every wrapper does when a call of the same kind came before: right results, and the same refusals.

The second call of a kind goes past the checks, past Triton's look at the arguments and, on a GPU, past its launcher in
Python. So each wrapper is called three times with new numbers, then badly, then well again.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from rocm_guide.kernels import launch
from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.attention.autograd import attention
from rocm_guide.kernels.attention.forward import attention_forward
from rocm_guide.kernels.attention.reference import reference_attention
from rocm_guide.kernels.decode.decode import attention_decode, reference_attention_decode
from rocm_guide.kernels.decode.paged import attention_paged, reference_attention_paged

NAN, INF = float("nan"), float("inf")


def first(function):
    """The function, of whose results only the first one counts."""

    def call(*args, **options):
        out = function(*args, **options)
        return out[0] if isinstance(out, tuple) else out

    return call


def causal(q, k, v):
    return reference_attention(q, k, v, causal=True)[0]


HEADS = ((1, 4, 16, 32), (1, 2, 24, 32), (1, 2, 24, 32))
CACHE = ((2, 4, 32), (2, 20, 2, 32), (2, 20, 2, 32))
#: name -> (function, shapes, reference, relative error, bad options as (options, text))
WRAPPERS = {
    "attention": (
        partial(attention, causal=True),
        HEADS,
        causal,
        5e-3,
        (
            ({"scale": 0.0}, "scale=0"),
            ({"dropout": 1.0}, "dropout=1"),
            ({"dropout": NAN}, "dropout=nan"),
            ({"seed": -1}, "seed=-1"),
            ({"layout": "sbhd"}, "layout='sbhd'"),
            ({"schedule": "static"}, "schedule='static'"),
            ({"layout": "thd"}, "q has shape"),
        ),
    ),
    "attention_forward": (
        first(partial(attention_forward, causal=True)),
        HEADS,
        causal,
        5e-3,
        (({"scale": NAN}, "scale=nan"), ({"dropout": -0.5}, "dropout=-0.5")),
    ),
    "attention_decode": (
        attention_decode,
        CACHE,
        reference_attention_decode,
        5e-3,
        (({"scale": NAN}, "scale=nan"), ({"parts": 0}, "parts=0")),
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


TRAINED = ("attention",)


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


def test_dropout_is_new_in_every_call(device):
    leaves = [t.requires_grad_() for t in numbers(HEADS, device, 0)]

    def results(p, seed):
        out = attention(*leaves, causal=True, dropout=p, seed=seed)
        return out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))

    ways = ((0.1, 1), (0.1, 2), (0.6, 2), (0.0, 2), (0.1, 1))
    warm = [results(*way) for way in ways]
    for way, found in zip(ways, warm, strict=True):
        launch.forget_plans()
        assert all(torch.equal(a, b) for a, b in zip(found, results(*way), strict=True)), way
    assert not any(torch.equal(warm[0][0], other[0]) for other in warm[1:4])
    for bad, text in (({"dropout": 1.0}, "dropout=1.0"), ({"dropout": 0.1, "seed": -1}, "seed=-1")):
        with pytest.raises(KernelError, match=text):
            attention(*leaves, causal=True, **{"seed": 1} | bad)


def test_pages_and_lengths(device):
    gen = torch.Generator().manual_seed(0)
    table = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32, device=device)
    lengths = torch.tensor([20, 7], dtype=torch.int32, device=device)
    for _ in range(3):
        q, k, v = (
            torch.randn(s, generator=gen).to(device, torch.float16)
            for s in ((2, 4, 32), (4, 16, 2, 32), (4, 16, 2, 32))
        )
        expected = reference_attention_paged(q.double(), k, v, table, lengths)
        assert float((attention_paged(q, k, v, table, lengths).double() - expected).abs().max()) < 5e-3
    for bad in (
        (q, k, v, table.float(), lengths),
        (q, k, v, table, None),
        (q, k, v, table, lengths[:1]),
        (q, k.double(), v, table, lengths),
        (q, k, v.to("meta"), table, lengths),
        (q, k, v, table[:1], lengths),
    ):
        with pytest.raises(KernelError):
            attention_paged(*bad)
    with pytest.raises(KernelError, match="parts=0"):
        attention_paged(q, k, v, table, lengths, parts=0)


@pytest.mark.parametrize("name", WRAPPERS)
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
