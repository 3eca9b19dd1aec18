# SPDX-License-Identifier: MIT
"""Gradients of attention against torch's in float64, on the GPU, or in the interpreter at small sizes."""

from __future__ import annotations

import itertools
import os

import pytest
import torch

from rocm_guide.kernels.attention import attention, attention_backward, attention_forward, reference_attention
from rocm_guide.kernels.cases import attention_cases

HALF, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: batch, heads, KV heads, queries, keys, head size
SHAPES = [
    (1, 1, 1, 1, 1, 16),
    (1, 2, 1, 20, 34, 32),  # the diagonal ends one key short of a tile of 16: a mask too few would show
    (1, 4, 2, 17, 33, 16),
    (1, 2, 2, 20, 1, 32),
    (1, 2, 1, 1, 40, 64),
    (1, 2, 2, 35, 20, 72),
    (1, 2, 1, 33, 33, 80),
    (1, 2, 1, 18, 30, 96),
    (1, 1, 1, 20, 20, 112),
    (1, 2, 1, 37, 45, 128),
    (1, 1, 1, 19, 33, 256),
    # and a head size of the values: keys in two blocks, with ends in either or both; in one; wider values
    (1, 2, 1, 20, 34, 192, 128),
    (2, 4, 2, 33, 17, 40, 16),
    (1, 2, 2, 18, 20, 200, 100),
    (1, 2, 1, 21, 20, 17, 1),
    (1, 2, 1, 17, 33, 72, 80),
    (2, 2, 1, 17, 33, 24, 72),
]
LARGE = [
    (2, 8, 8, 1024, 1024, 128),
    (1, 8, 2, 1023, 1023, 64),
    (2, 4, 1, 113, 211, 64),
    (1, 4, 2, 256, 512, 128),
    (1, 2, 1, 256, 382, 128),  # the diagonal ends one key short of a tile of 128, and of 64
    (2, 4, 2, 512, 256, 96),
    (1, 2, 2, 1023, 1024, 72),
    (1, 2, 1, 700, 700, 112),
    (1, 2, 2, 300, 500, 256),
    (1, 8, 1, 1, 1025, 128),
    (1, 2, 2, 3, 799, 32),
    (2, 4, 2, 700, 500, 192, 128),
    (1, 4, 2, 113, 211, 96, 64),
]


def problem(shape, dtype, device, seed=0):
    batch, heads, kv_heads, rows, keys, width, *values = shape
    gen, widths = torch.Generator().manual_seed(seed), (width, *(values or [width]))
    q, do = (torch.randn(batch, heads, rows, n, generator=gen) for n in widths)
    k, v = (torch.randn(batch, kv_heads, keys, n, generator=gen) for n in widths)
    return tuple(x.to(device, dtype) for x in (q, k, v, do))


def wanted(q, k, v, do, bias=None, **options):
    """Gradients in float64 by torch's autograd."""
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    if bias is not None:
        leaves.append(bias.detach().double().requires_grad_())
        options["bias"] = leaves[3]
    out, _ = reference_attention(*leaves[:3], **options)
    return torch.autograd.grad(out, leaves, do.double())


def check(got, expected, dtype, factor=1):
    """Relative to the gradient's own size: fp32 arithmetic, or roundings of p, ds and the output in 16 bits."""
    tolerance = factor * {FP32: 2e-5, HALF: 4e-3, BF16: 3e-2}[dtype]
    for name, a, b in zip(("dq", "dk", "dv", "dbias"), got, expected, strict=False):
        assert a.shape == b.shape and bool(a.isfinite().all()), name
        # With one key the gradient of q and k is 0: then only what cancels is left to compare with.
        size = b.pow(2).mean().sqrt() if b.abs().max() > 1e-9 else 1.0
        error = (a.double() - b).abs()
        assert float(error.pow(2).mean().sqrt() / size) < tolerance / 2, (
            f"{name}: {float(error.pow(2).mean().sqrt() / size)}"
        )
        assert float((error / (size + b.abs())).max()) < 4 * tolerance, (
            f"{name}: {float((error / (size + b.abs())).max())}"
        )


def run(q, k, v, do, bias=None, **options):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    if bias is not None:
        leaves.append(bias.detach().requires_grad_())
        options["bias"] = leaves[3]
    return torch.autograd.grad(attention(*leaves[:3], **options), leaves, do)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_small(device, shape, causal):
    for dtype in (FP32,) if INTERPRETED else (FP32, HALF):
        given = problem(shape, dtype, device)
        check(run(*given, causal=causal), wanted(*given, causal=causal), dtype)


def test_half(device):
    given = problem((1, 4, 2, 40, 50, 32), HALF, device)
    check(run(*given, causal=True), wanted(*given, causal=True), HALF)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large(device, shape, causal):
    if INTERPRETED:
        pytest.skip("too large for the interpreter")
    for dtype in (HALF, BF16)[: 2 if causal else 1]:
        given = problem(shape, dtype, device)
        check(run(*given, causal=causal), wanted(*given, causal=causal), dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (50, 20)])
def test_alibi(device, rows, keys, causal):
    for times in (1,) if INTERPRETED else (1, 13):
        given = problem((2, 4, 2, rows * times, keys * times, 32), FP32, device)
        slopes = torch.rand(2, 4, generator=torch.Generator().manual_seed(1)).to(device)
        got, expected = (f(*given, causal=causal, alibi_slopes=slopes) for f in (run, wanted))
        # A far key's score is in the hundreds; its last bit, exponentiated, is a relative error of that size.
        check(got, expected, FP32, 4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 40, 50), (40, 50), (1, 4, 1, 50), (2, 1, 40, 1)], ids=str)
def test_matrix_bias(device, shape, causal):
    given = problem((2, 4, 2, 40, 50, 32), FP32, device)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)
    check(run(*given, bias=bias, causal=causal), wanted(*given, bias=bias, causal=causal), FP32)


def test_bias_that_masks_a_row(device):
    given = problem((1, 2, 2, 40, 50, 32), FP32, device)
    bias = torch.zeros(1, 1, 40, 50, device=device)
    bias[..., 7, :] = float("-inf")
    got = run(*given, bias=bias)
    assert bool((got[0][:, :, 7] == 0).all())
    check(got, wanted(*given, bias=bias), FP32)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout(device, causal):
    for shape in [(1, 4, 2, 40, 50, 32)] + [(1, 4, 2, 400, 500, 64)] * (not INTERPRETED):
        given = problem(shape, FP32, device)
        options = {"causal": causal, "dropout": 0.3, "seed": (1 << 40) + 9}
        check(run(*given, **options), wanted(*given, **options), FP32)


def test_seed_from_torch(device):
    given = problem((1, 1, 1, 20, 20, 16), FP32, device)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(attention(*given[:3], dropout=0.5))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences(device, causal):
    lengths = [(5, 5), (1, 20), (33, 17), (0, 4), (18, 40), (3, 0)]
    lengths += [] if INTERPRETED else [(500, 700), (257, 129)]
    cu = [
        torch.tensor([0, *itertools.accumulate(n)], dtype=torch.int32, device=device)
        for n in zip(*lengths, strict=True)
    ]
    total_q, total_k = int(cu[0][-1]), int(cu[1][-1])
    shape = (1, 4, 2, max(total_q, total_k), max(total_q, total_k), 32, 32 if causal else 16)
    q, k, v, do = (x.transpose(1, 2)[0] for x in problem(shape, FP32, device))
    q, k, v, do = q[:total_q], k[:total_k], v[:total_k], do[:total_q]
    got = run(q, k, v, do, layout="thd", causal=causal, cu_seqlens_q=cu[0], cu_seqlens_k=cu[1])
    for n in range(len(lengths)):
        a, b, c, d = (int(x) for x in (cu[0][n], cu[0][n + 1], cu[1][n], cu[1][n + 1]))
        if d > c and b > a:
            one = [x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d], do[a:b])]
            mine = [x.transpose(0, 1)[None] for x in (got[0][a:b], got[1][c:d], got[2][c:d])]
            check(mine, wanted(*one, causal=causal), FP32)
        elif d > c:
            assert not got[1][c:d].any() and not got[2][c:d].any()


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("width", [32, 40])
def test_layouts_and_strides(device, layout, width):
    q, k, v, do = problem((2, 4, 2, 33, 40, width, 32), FP32, device)
    move = (lambda x: x) if layout == "bhsd" else (lambda x: x.transpose(1, 2))
    out, lse = attention_forward(*(move(x).contiguous() for x in (q, k, v)), layout=layout, causal=True)
    stored = v.mT.contiguous().mT  # values kept transposed
    odd = move(do).contiguous().transpose(1, 3).contiguous().transpose(1, 3)  # a gradient of unusual strides
    given = [move(x).contiguous() for x in (q, k)] + [stored if layout == "bhsd" else move(v)]
    got = attention_backward(odd, *given, out, lse, layout=layout, causal=True)
    assert all(x.is_contiguous() for x in got[:3])
    check([move(x) for x in got[:3]], wanted(q, k, v, do, causal=True), FP32)


def test_same_every_time(device):
    given = problem((1, 4, 1, 60, 70, 32), FP32, device)
    first, second = run(*given, causal=True), run(*given, causal=True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_many_sequences(device):
    """More heads than a grid has programs along its second axis (65,535); every head is its own problem."""
    batch = 3 if INTERPRETED else 33_000
    given = problem((batch, 2, 2, 2, 3, 16), HALF, device)
    got = run(*given, causal=True)
    check([x[-3:] for x in got], wanted(*(x[-3:] for x in given), causal=True), HALF)


def test_rows_without_keys(device):
    given = problem((1, 2, 2, 40, 10, 32), FP32, device)
    got = run(*given, causal=True)
    assert bool((got[0][:, :, :30] == 0).all())
    check(got, wanted(*given, causal=True), FP32)


def test_refusals():
    x = torch.zeros(1, 2, 4, 16, dtype=HALF)
    lse = torch.zeros(1, 2, 4)
    for call, message in [
        (lambda: attention_backward(x[:, :1], x, x, x, x, lse), "do has shape"),
        (lambda: attention_backward(x, x, x, x[..., :8], x, lse), "out has shape (1, 2, 4, 16): give (1, 2, 4, 8)"),
        (lambda: attention_backward(x, x, x, x, x, lse[:, :1]), "lse has shape"),
        (lambda: attention_backward(x, x, x, x, x, lse, bias_gradient=True), "without a bias"),
        (lambda: attention_backward(x, x, x, x, x, lse.double()), "lse is float64: give float32"),
        (lambda: attention_backward(x, x, x, x, x.float(), lse), "out is float32: give float16"),
        (lambda: attention(x, x, x, alibi_slopes=torch.zeros(2, requires_grad=True)), "alibi_slopes require"),
    ]:
        with pytest.raises(ValueError) as caught:
            call()
        assert message in str(caught.value)


def test_gfx942():
    """No spills, 16x16 MFMA, 2 waves per SIMD, 128-bit loads; the rows are compiled again by test_kernel_table.py."""
    from course.resource_table import read_rows

    rows = [r for r in read_rows()[1] if r.case.startswith("attention: backward,")]
    assert len(rows) == 3 * sum(label.startswith("backward,") for label, _ in attention_cases())
    for r in rows:
        one_wave = "values of 128" in r.case and "_kv_" in r.kernel  # its tile takes least time by the model
        assert r.spills == 0 and r.findings == "-" and r.waves >= (1 if one_wave else 2) and r.lds <= 65_536, r
        if "delta" not in r.kernel:
            assert r.mfma != "-" and all("16x16x" in op for op in r.mfma.split(",")), r
            assert "128x" in r.loop_loads or "heads of 16," in r.case, r
        if "heads of 72" in r.case:  # a multiple of 8, not of 16: nothing is taken apart into 16 bits
            assert " 16x" not in f" {r.loads} {r.loop_loads} {r.stores}".replace(",", " "), r
