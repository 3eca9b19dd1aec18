# SPDX-License-Identifier: MIT
"""Repeated calls: the same results and refusals as the plain wrapper, which they do not run.

Without a GPU, Triton's interpreter stands for one: what is launched again runs on whatever lies at the addresses.
"""

from __future__ import annotations

import ctypes
import gc
import math
import threading
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from rocm_guide.kernels import (
    api,
    attention,
    attention_fp8,
    decode,
    decode_int4,
    fast,
    gemm,
    gemm_skinny,
    gemm_split_k,
    gemm_stream_k,
    int8_gemm,
    layer_norm,
    mla_decode,
    mla_prefill,
    paged,
    rms_norm,
    rmsnorm_fp8,
    softmax,
)
from rocm_guide.kernels.floats import Number, of_floats

NAN = float("nan")
#: name -> (as a model calls it, the plain file's, shapes, torch's, bad options)
KERNELS = {
    "softmax": (api.softmax, softmax.softmax, ((6, 72),), partial(torch.softmax, dim=-1), ()),
    "rms_norm": (
        api.rms_norm,
        rms_norm.rms_norm,
        ((6, 72), (72,)),
        lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        ({"eps": NAN}, {"eps": -1.0}, {"eps": True}),
    ),
    "layer_norm": (
        api.layer_norm,
        layer_norm.layer_norm,
        ((6, 72), (72,), (72,)),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        ({"eps": NAN}, {"eps": "1"}),
    ),
    "attention": (
        api._attention_repeated,
        attention.attention,
        ((1, 4, 20, 32), (1, 2, 24, 32), (1, 2, 24, 32)),
        lambda q, k, v: attention.reference_attention(q, k, v)[0],
        ({"scale": NAN}, {"scale": 0.0}, {"dropout": 1.0}, {"seed": -1}, {"layout": "sbhd"}),
    ),
}
#: Launches of both directions, where they are not three.
LAUNCHES = {"softmax": 2, "attention": 4}


HALF, EIGHT = torch.float16, torch.int8
#: name -> (as a model calls it, the plain file's, shapes, their type, options, launches, bad options)
PRODUCTS = {
    "gemm": (api.gemm, gemm.gemm, ((16, 32), (32, 48)), HALF, {"alpha": 0.5}, 1,
             ({"alpha": NAN}, {"alpha": 1e39}, {"alpha": True}, {"activation": "tanh"}, {"out_dtype": EIGHT})),
    "gemm_split_k": (api.gemm_split_k, gemm_split_k.gemm_split_k, ((16, 96), (96, 48)), HALF, {"split": 2}, 2,
                     ({"split": 0}, {"split": True})),
    "atomic": (api.gemm_split_k, gemm_split_k.gemm_split_k, ((16, 96), (96, 48)), HALF, {"atomic": True}, 1,
               ({"atomic": True, "split": 0},)),
    "gemm_stream_k": (api.gemm_stream_k, gemm_stream_k.gemm_stream_k, ((70, 64), (64, 70)), HALF, {}, 1, ()),
    "gemm_skinny": (api.gemm_skinny, gemm_skinny.gemm_skinny, ((4, 64), (96, 64)), HALF, {"scale_x": 0.5}, 1,
                    ({"scale_x": NAN}, {"scale_w": "2"}, {"scale_x": 1e30, "scale_w": 1e30}, {"out_dtype": EIGHT})),
    "linear_abde_i8": (api.linear_abde_i8, int8_gemm.linear_abde_i8, ((5, 32), (32, 48), (48,)), EIGHT,
                       {"alpha": 0.01}, 1, ({"alpha": NAN}, {"alpha": 0.01, "beta": 1e39})),
    "bmm_ab_i8_e_f32": (api.bmm_ab_i8_e_f32, int8_gemm.bmm_ab_i8_e_f32, ((2, 5, 32), (2, 32, 48)), EIGHT,
                        {"alpha": 0.01}, 1, ({"alpha": NAN},)),
}  # fmt: skip


def count(call):
    """Kinds of calls that are known, and the sorts of floats of each."""
    recipes, kinds = call.known
    return sum(map(len, recipes.values())) + len(kinds)


def forget(call):
    for known in call.known:
        known.clear()


def memory(address, like):
    """The tensor that lies at an address, in the form of another."""
    size = 1 + sum((n - 1) * s for n, s in zip(like["shape"], like["stride"], strict=True))
    raw = (ctypes.c_char * (size * like["dtype"].itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=like["dtype"]).as_strided(like["shape"], like["stride"])


@pytest.fixture(autouse=True)
def gpu(device, monkeypatch):
    """Launches past Triton's Python, counted; nothing is known before or after a test."""
    again = []
    real = fast.call_of
    if device == "cpu":
        from triton.runtime.interpreter import InterpretedFunction

        run = InterpretedFunction.run

        def compiling(kernel, *args, grid, warmup, **options):
            with _disable_current_modes():  # what the interpreter does in PyTorch is a launch to a GPU
                run(kernel, *args, grid=grid, warmup=warmup, **options)
            named = {**dict(zip(kernel.arg_names, args, strict=False)), **options}
            values = [named[name] for name in kernel.arg_names]
            forms = {
                i: {"shape": v.shape, "stride": v.stride(), "dtype": v.dtype}
                for i, v in enumerate(values)
                if isinstance(v, torch.Tensor)
            }
            target = SimpleNamespace(target=SimpleNamespace(backend="cuda"))
            return SimpleNamespace(packed_metadata=(), metadata=target, run=None, kernel=kernel, forms=forms)

        def call_of(compiled, grid):
            def call(stream, *values):
                given = [memory(v, compiled.forms[i]) if i in compiled.forms else v for i, v in enumerate(values)]
                run(compiled.kernel, *given, grid=grid, warmup=False)

            return call

        monkeypatch.setattr(InterpretedFunction, "run", compiling)
        monkeypatch.setattr(fast, "JITFunction", InterpretedFunction)
        monkeypatch.setattr(fast, "on_gpu", lambda tensor: tensor.device.type == "cpu")
        monkeypatch.setattr(fast, "from_triton", lambda launcher: True)
        monkeypatch.setattr(fast, "allocate", torch._C._dynamo.guards._empty_strided_cpu)
        monkeypatch.setattr(fast, "stream_of", lambda device: 0)
        monkeypatch.setattr(fast, "current_device", lambda: 0)
        real = call_of

    def counted(compiled, grid):
        call = real(compiled, grid)

        def counting(*given):
            again.append(compiled)
            call(*given)

        return counting

    monkeypatch.setattr(fast, "call_of", counted)
    calls = [call for call, *_ in (*KERNELS.values(), *PRODUCTS.values())]
    for call in calls:
        forget(call)
    yield again
    for call in calls:
        forget(call)


def numbers(shapes, device, seed, dtype=torch.float32):
    gen = torch.Generator().manual_seed(seed)
    if dtype == EIGHT:
        return [torch.randint(-128, 128, s, generator=gen, dtype=EIGHT).to(device) for s in shapes]
    return [torch.randn(s, generator=gen).to(device, dtype) for s in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", KERNELS)
def test_the_same_bits_as_the_plain_file(device, gpu, name, dtype):
    call, plain, shapes, reference, _ = KERNELS[name]
    for seed in range(4):
        tensors = numbers(shapes, device, seed, dtype)
        before = len(gpu)
        got = call(*tensors)
        assert torch.equal(got, plain(*tensors)) and got.grad_fn is None
        assert len(gpu) == before + (seed > 0), "the first call of a kind runs the wrapper, the others one launch"
        torch.testing.assert_close(got, reference(*tensors), rtol=2e-3, atol=2e-3)
    assert count(call) == 1


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_the_same_bits(device, gpu, name):
    call, plain, shapes, dtype, options, launches, _ = PRODUCTS[name]
    # Stream-K takes descriptors of its operands on Hopper: such a call is run plainly each time.
    launches *= not (name == "gemm_stream_k" and device == "cuda" and torch.cuda.get_device_capability() == (9, 0))
    for seed in range(4):
        tensors = numbers(shapes, device, seed, dtype)
        before = len(gpu)
        assert torch.equal(call(*tensors, **options), plain(*tensors, **options))
        assert len(gpu) == before + (launches if seed else 0)
    assert count(call) == 1


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_refuse_after_good_calls(device, gpu, name):
    call, plain, shapes, dtype, options, _, wrong = PRODUCTS[name]
    for seed in range(2):
        good = numbers(shapes, device, seed, dtype)
        call(*good, **options)
    known = count(call)
    for bad in wrong:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"give|leave"):
                call(*good, **bad)
    for at, t in enumerate(good):
        for spoiled in (t.double(), t.to("meta"), [1.0], t[None][None]):
            for _ in range(2):
                with pytest.raises(ValueError, match=r"give|put|move"):
                    call(*good[:at], spoiled, *good[at + 1 :], **options)
    with pytest.raises(TypeError):
        call(*good, *[None] * 9, **options)
    assert count(call) == known, "a refused call is not remembered"
    assert torch.equal(call(*good, **options), plain(*good, **options))


@pytest.mark.parametrize(
    ("name", "factor"),
    [("gemm", "alpha"), ("gemm_skinny", "scale_w"), ("linear_abde_i8", "beta")],
)
def test_a_float_that_is_new_in_every_call_makes_no_new_kind(device, gpu, name, factor):
    call, plain, shapes, dtype, options, launches, _ = PRODUCTS[name]
    tensors = numbers(shapes, device, 0, dtype)
    values = (0.25, 0.5, -0.0, -3.0, 1e-30, 0.25)
    for value in values:
        given = options | {factor: value}
        assert torch.equal(call(*tensors, **given), plain(*tensors, **given)), value
    assert count(call) == 1 and len(gpu) == launches * (len(values) - 1)
    for value in (1.0, 1.0, 2.0):  # a factor of 1 is another kernel in some
        given = options | {factor: value}
        assert torch.equal(call(*tensors, **given), plain(*tensors, **given)), value
    assert count(call) == (2 if factor == "alpha" else 1)
    for value in (NAN, math.inf, -1e39):
        with pytest.raises(ValueError, match=f"{factor}="):
            call(*tensors, **(options | {factor: value}))


def test_an_fp8_scale_that_is_new_in_every_call(device, gpu, monkeypatch):
    """In the interpreter the result is converted afterwards, which is more than a launch; so it is left as it is."""
    stored = (torch.float32, torch.float32, 448.0)
    monkeypatch.setattr(rmsnorm_fp8, "stored_types", lambda arch: stored)
    call, plain = fast.fast(rmsnorm_fp8.rmsnorm_fp8), rmsnorm_fp8.rmsnorm_fp8
    x, residual, w = numbers(((4, 64), (4, 64), (64,)), device, 0)
    for scale in (0.5, 0.1, 1e-37, 7.0):
        for found, wanted in zip(call(x, residual, w, scale), plain(x, residual, w, scale), strict=True):
            assert found is wanted is None or torch.equal(found, wanted)
    assert count(call) == 1 and len(gpu) == 3
    for scale in (0.0, -1.0, NAN, 1e38):
        with pytest.raises(ValueError, match="scale="):
            call(x, residual, w, scale)
    for _ in range(2):
        q, _, scales = call(x, residual, w)
        assert torch.equal(q, plain(x, residual, w)[0]) and scales.shape == (4, 1)


def test_what_a_wrapper_does_with_a_float():
    """Asked for itself it has to be the same again; what it cannot be asked is left to the plain call."""
    for use, same, other in (
        (lambda x: 2 / (x - 1) + abs(-1 * x), (3.0, 5.0), ()),
        (lambda x: x if x >= 0.5 else 1 - x, (0.5, 9.0), (0.25, NAN)),
        (lambda x: math.sqrt(x), (4.0,), (9.0,)),
        (lambda x: 1.0 if x else 0.0, (4.0,), (0.0, 5.0)),
    ):
        asked = []
        result = use(Number("f0", same[0], asked))
        again = of_floats(1, [result.text if type(result) is Number else repr(result)], asked)
        assert [again(x) for x in same] == [(use(x),) for x in same]
        assert [again(x) for x in other] == [None] * len(other)
    for use in (lambda x: x**2, lambda x: x // 1, lambda x: torch.ones(1) * x, lambda x: range(x)):
        with pytest.raises(TypeError):
            use(Number("f0", 2.0, []))


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_the_same_bits(device, gpu, name):
    call, plain, shapes, reference, _ = KERNELS[name]
    for seed in range(4):
        leaves = [t.requires_grad_() for t in numbers(shapes, device, seed)]
        dy = numbers(shapes[:1], device, 9 + seed)[0]
        before = len(gpu)
        out = call(*leaves)
        got = torch.autograd.grad(out, leaves, dy)
        launches = len(gpu) - before
        expected = plain(*leaves)
        wanted = torch.autograd.grad(expected, leaves, dy)
        assert torch.equal(out, expected) and all(map(torch.equal, got, wanted))
        assert launches == (0 if seed == 0 else LAUNCHES.get(name, 3))
        for g, w in zip(got, torch.autograd.grad(reference(*leaves), leaves, dy), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
    # Another caller wants another gradient, or none.
    x, *others = numbers(shapes, device, 7)
    x.requires_grad_()
    for _ in range(2):
        (only,) = torch.autograd.grad(call(x, *others), x, dy)
        assert torch.equal(only, torch.autograd.grad(plain(x, *others), x, dy)[0])
        with torch.no_grad():
            assert call(x, *others).grad_fn is None
    assert call(*(t.detach() for t in leaves)).grad_fn is None


@pytest.mark.parametrize("name", KERNELS)
def test_refusals_after_good_calls(device, gpu, name):
    call, _, shapes, _, options = KERNELS[name]
    for seed in range(3):
        good = numbers(shapes, device, seed)
        call(*good)
        leaves = [t.requires_grad_() for t in numbers(shapes, device, seed)]
        call(*leaves)
    known = count(call)
    for tensors in (good, leaves):
        for bad in options:
            for _ in range(2):
                with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
                    call(*tensors, **bad)
        for at, t in enumerate(tensors):
            for wrong in (t.double(), t.detach().to("meta"), [1.0], *((t[None],) if at else ())):
                for _ in range(2):
                    with pytest.raises(ValueError, match=r"give|put|move"):
                        call(*tensors[:at], wrong, *tensors[at + 1 :])
    with pytest.raises(TypeError):
        call(*good, nothing=1)
    assert count(call) == known, "a refused call is not remembered"
    assert torch.equal(call(*good), KERNELS[name][1](*good))


def served(name, device, seed):
    """Arguments of a wrapper that serves and does not train."""
    half = torch.float16
    if name == "attention_quantized":
        heads = numbers(((1, 2, 20, 32),) * 3, device, seed)
        (q, a), (k, b), (v, c) = (attention_fp8.quantize_heads(x, torch.int8) for x in heads)
        return (q, k, v), {"q_scale": a, "k_scale": b, "v_scale": c}
    if name.startswith("mla"):
        axes = (2, 4) if name == "mla_attention" else (2,)
        shapes = ((*axes, 2, 16), (*axes, 2, 8), (2, 20, 32), (2, 20, 8), (2, 24, 32))
        return tuple(numbers(shapes, device, seed, half)), {"parts": 2} if name == "mla_decode" else {}
    q, k, v = numbers(((2, 4, 32), (2, 40, 2, 32), (2, 40, 2, 32)), device, seed, half)
    lengths = torch.tensor([40, 7], dtype=torch.int32, device=device)
    if name == "attention_decode_int":
        (k, a), (v, b) = decode_int4.quantize_kv(k, 4), decode_int4.quantize_kv(v, 4)
        return (q, k, v, a, b), {"lengths": lengths, "parts": 2}
    if name == "attention_paged":
        table = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32, device=device)
        return (q, k.view(4, 20, 2, 32), v.view(4, 20, 2, 32), table, lengths), {"parts": 2}
    return (q, k, v), {"lengths": lengths, "parts": 2}


#: name -> (the plain file's, launches)
SERVED = {
    "attention_quantized": (attention_fp8.attention_quantized, 1),
    "attention_decode": (decode.attention_decode, 2),
    "attention_decode_int": (decode_int4.attention_decode_int, 2),
    "attention_paged": (paged.attention_paged, 2),
    "mla_decode": (mla_decode.mla_decode, 4),
    "mla_attention": (mla_prefill.mla_attention, 1),
}


@pytest.mark.parametrize("name", SERVED)
def test_what_serves_is_repeated_and_refuses(device, gpu, name):
    (plain, launches), call = SERVED[name], getattr(api, name)
    forget(call)
    for seed in range(3):
        args, options = served(name, device, seed)
        before = len(gpu)
        got, wanted = call(*args, **options), plain(*args, **options)
        pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
        assert all(torch.equal(a, b) for a, b in pairs)
        assert len(gpu) == before + launches * (seed > 0)
    known = count(call)
    for bad in ({"scale": NAN}, {"scale": "1"}, *(({"parts": 0},) if "parts" in options else ())):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
            call(*args, **options | bad)
    for at, t in enumerate(args):
        for wrong in (t.double(), t.to("meta"), [1.0], t[None]):
            with pytest.raises(ValueError, match=r"give|put|move"):
                call(*args[:at], wrong, *args[at + 1 :], **options)
    assert count(call) == known == 1
    forget(call)


def test_every_seed_of_dropout_is_drawn_anew(device, gpu):
    q, k, v = (t.requires_grad_() for t in numbers(KERNELS["attention"][2], device, 0))
    outs = []
    for seed in (1, 1, 2, None, None):
        out = api.attention(q, k, v, dropout=0.4, seed=seed)
        outs.append((out.detach(), *torch.autograd.grad(out.sum(), (q, k, v))))
    assert all(map(torch.equal, outs[0], outs[1])) and not torch.equal(outs[1][0], outs[2][0])
    assert not torch.equal(outs[3][0], outs[4][0]) and not count(api._attention_repeated) and not gpu


def test_arguments_by_name_are_the_same_kind(device, gpu):
    x, w = numbers(((4, 40), (40,)), device, 0)
    for args, options in (((x, w), {}), ((x,), {"weight": w}), ((), {"weight": w, "x": x}), ((x, w, 1e-6), {})):
        assert torch.equal(api.rms_norm(*args, **options), rms_norm.rms_norm(x, w))
    assert count(api.rms_norm) == 1 and len(gpu) == 3
    for eps in (1e-6, 1.0, 1, 1.0):
        assert torch.equal(api.rms_norm(x, w, eps), rms_norm.rms_norm(x, w, eps))
    assert count(api.rms_norm) == 3, "1 is another argument than 1.0"


def test_shape_strides_and_alignment_are_the_kind(device, gpu):
    store = numbers(((16 * 144 + 8,),), device, 0)[0]
    for _ in range(2):
        for offset, stride in ((0, 72), (1, 72), (4, 72), (0, 144), (0, 72)):
            x = store[offset : offset + 16 * stride].view(16, stride)[:, :72]
            assert torch.equal(api.softmax(x), softmax.softmax(x))
    assert count(api.softmax) == 3, "aligned, not aligned, rows further apart"


def test_tensors_that_begin_at_the_same_address(device, gpu):
    x = numbers(((1, 40),), device, 0)[0]
    other = numbers(((40,),), device, 1)[0]
    for w in (x[0], x[0], other, other, x[0]):
        assert torch.equal(api.rms_norm(x, w), rms_norm.rms_norm(x, w))
    assert count(api.rms_norm) == 1 and len(gpu) == 2


@pytest.mark.parametrize("shape", [(0, 40), (3, 0, 40)])
def test_no_rows(device, gpu, shape):
    x, w = torch.ones(shape, device=device), torch.ones(40, device=device)
    for _ in range(2):
        assert api.rms_norm(x, w).shape == shape
    assert count(api.rms_norm) == 0


def test_what_does_more_than_launch_is_run_plainly(device, gpu):
    calls = []

    def doubled(x):
        calls.append(x)
        return softmax.softmax_forward(x * 2)

    def looks(x):
        return x.view(-1)[:5]

    for wrapper in (doubled, looks):
        quick = fast.fast(wrapper)
        for seed in range(3):
            (x,) = numbers(((4, 40),), device, seed)
            assert torch.equal(quick(x), wrapper(x))
    assert len(calls) == 6 and not gpu


def test_a_gradient_that_is_no_list_of_rows_is_copied_first(device, gpu):
    x = numbers(((4, 40),), device, 0)[0].requires_grad_()
    for _ in range(3):
        x.grad = None
        (api.softmax(x) * 3).sum().backward()
        api.softmax(x).sum().backward()  # one number seen many times
        assert float(x.grad.abs().max()) < 1e-5


def test_no_tensor_is_kept_alive(device, gpu):
    for _ in range(2):
        x, w = (t.requires_grad_() for t in numbers(((4, 40), (40,)), device, 0))
        y = api.rms_norm(x, w)
        got = torch.autograd.grad(y, (x, w), torch.ones_like(y))
        with torch.no_grad():
            z = api.rms_norm(x, w)
        alive = [weakref.ref(t) for t in (x, w, y, z, *got)]
        del x, w, y, z, got
        gc.collect()
        assert {ref() for ref in alive} == {None}
    assert count(api.rms_norm) == 2


def test_there_is_no_second_derivative(device, gpu):
    x = numbers(((4, 40),), device, 0)[0].requires_grad_()
    for _ in range(3):
        (dx,) = torch.autograd.grad(api.softmax(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            dx.sum().backward()


def test_a_saved_tensor_that_was_changed_is_noticed(device, gpu):
    for _ in range(2):
        x, w = (t.requires_grad_() for t in numbers(((4, 40), (40,)), device, 0))
        y = api.rms_norm(x, w)
        with torch.no_grad():
            w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_saved_tensors_that_were_taken_elsewhere(device, gpu):
    """Hooks give back what they please, here a copy that does not begin at 16 bytes."""

    def moved(t):
        room = torch.empty(t.numel() + 1, dtype=t.dtype, device=t.device)[1:].view(t.shape)
        return room.copy_(t)

    x, w = (t.requires_grad_() for t in numbers(((4, 40), (40,)), device, 0))
    dy = numbers(((4, 40),), device, 2)[0]
    wanted = torch.autograd.grad(rms_norm.rms_norm(x, w), (x, w), dy)
    for hooked in (False, True, False, True):
        if hooked:
            with torch.autograd.graph.saved_tensors_hooks(moved, lambda t: t):
                y = api.rms_norm(x, w)
        else:
            y = api.rms_norm(x, w)
        assert all(map(torch.equal, torch.autograd.grad(y, (x, w), dy), wanted))


def test_torch_func_and_forward_derivatives_get_torchs_answer(device, gpu):
    x = numbers(((4, 40),), device, 0)[0]
    api.softmax(x), api.softmax(x)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: api.softmax(x).sum())(x)
    escaped = []
    torch.func.grad(lambda x: escaped.append(x) or (x * x).sum())(x)
    assert torch.equal(api.softmax(escaped[0]), softmax.softmax(x)), "its transform is over: it is x again"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match="jvp"):
            api.softmax(dual)


def test_who_listens_to_launches_hears_them(device, gpu):
    from triton import knobs

    x = numbers(((4, 40),), device, 0)[0]
    for _ in range(2):
        api.softmax(x)
    done = len(gpu)
    knobs.runtime.launch_enter_hook.add(print)
    try:
        api.softmax(x)
    finally:
        knobs.runtime.launch_enter_hook.remove(print)
    softmax.softmax_rows.pre_run_hooks.append(lambda *args, **options: None)
    try:
        api.softmax(x)
    finally:
        softmax.softmax_rows.pre_run_hooks.clear()
    assert len(gpu) == done
    api.softmax(x)
    assert len(gpu) == done + 1


def test_in_a_mode_of_pytorch_the_wrapper_runs(device, gpu):
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = numbers(((4, 40),), device, 0)[0]
    for _ in range(2):
        api.softmax(x)
    with Mode():
        api.softmax(x)
    assert seen and len(gpu) == 1


@triton.jit
def fill(x_ptr, value, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.full((BLOCK,), 0.0, tl.float32) + value)


def test_what_another_thread_launches_meanwhile_is_not_recorded(device, gpu):
    other = torch.zeros(8, device=device)

    def both(x):
        thread = threading.Thread(target=lambda: fill[(1,)](other, 1.0, BLOCK=8))
        thread.start()
        thread.join()
        return softmax.softmax_forward(x)

    quick = fast.fast(both)
    for seed in range(2):
        (x,) = numbers(((4, 40),), device, seed)
        assert torch.equal(quick(x), softmax.softmax_forward(x))
        assert bool((other == (1 - seed)).all()), "the second call launches the softmax alone"
        other.zero_()


def test_what_is_remembered_is_bounded(device, gpu, monkeypatch):
    monkeypatch.setattr(fast, "MOST_KINDS", 3)
    for n in (1, 2, 3, 4, 5, 5):
        (x,) = numbers(((n, 40),), device, 0)
        assert torch.equal(api.softmax(x), softmax.softmax(x))
        assert count(api.softmax) <= 3


def test_the_interpreter_is_called_through(device, monkeypatch):
    if device != "cpu":
        pytest.skip("on a GPU nothing is interpreted")
    monkeypatch.setattr(fast, "on_gpu", lambda tensor: tensor.is_cuda)
    (x,) = numbers(((4, 40),), device, 0)
    for _ in range(2):
        assert torch.equal(api.softmax(x), softmax.softmax(x))
    assert count(api.softmax) == 0


def test_torch_compile_leaves_the_kernels_alone(device, gpu):
    x, w = numbers(((4, 40), (40,)), device, 0)
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: api.rms_norm(x * 2, w) + api.gemm(x, x.T).sum(), backend="eager")
    for _ in range(2):
        wanted = rms_norm.rms_norm(x * 2, w) + gemm.gemm(x, x.T).sum()
        assert torch.equal(compiled(x, w), wanted)
    plain = rms_norm.rms_norm(leaves[0] * 2, leaves[1])
    norm = torch.compile(lambda x, w: api.rms_norm(x * 2, w), backend="eager")
    dy = torch.ones_like(x)
    for got, want in zip(*(torch.autograd.grad(y, leaves, dy) for y in (norm(*leaves), plain)), strict=True):
        assert torch.equal(got, want)


def test_the_name_and_the_help_are_the_wrappers():
    assert api.rms_norm.__name__ == "rms_norm" and "RMSNorm over the last dimension" in api.rms_norm.__doc__


@pytest.mark.parametrize("name", KERNELS)
def test_other_streams_and_graphs(device, name):
    if device == "cpu":
        pytest.skip("needs a GPU")
    call, plain, shapes, _, _ = KERNELS[name]
    tensors = numbers(shapes, device, 0)
    stream = torch.cuda.Stream()
    call(*tensors), call(*tensors)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for seed in range(2):
            later = numbers(shapes, device, seed)
            assert torch.equal(call(*later), plain(*later))
    torch.cuda.current_stream().wait_stream(stream)
    for warm in (True, False):
        if not warm:
            forget(call)  # recorded while a graph is captured
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = call(*tensors)
        for seed in (5, 6):
            for t, new in zip(tensors, numbers(shapes, device, seed), strict=True):
                t.copy_(new)
            forget(call)  # a graph keeps what it needs itself
            junk = [torch.full((1 << 16,), NAN, device=device) for _ in range(8)]
            graph.replay()
            assert torch.equal(out, plain(*tensors))
            assert all(bool(j.isnan().all()) for j in junk), "a replay writes into memory that is not its own"


def test_another_current_gpu_after_a_good_call(device, monkeypatch):
    """What the plain file refuses does not depend on what was called before."""
    (x,) = numbers(((4, 40),), device, 0)
    api.softmax(x), api.softmax(x)
    here = fast.current_device()
    monkeypatch.setattr(fast, "current_device", lambda: here + 1)
    called = []
    monkeypatch.setattr(softmax, "pick_tile", lambda *given: called.append(given) or softmax.FORWARD["gfx942"][0])
    api.softmax(x)
    assert called, "the wrapper decides"
