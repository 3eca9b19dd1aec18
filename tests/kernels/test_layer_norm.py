# SPDX-License-Identifier: MIT
"""LayerNorm against float64: every type, odd lengths and row counts, both ways of reading a row, all gradients."""

from __future__ import annotations

import pytest
import torch
import triton

from rocm_guide.kernels.layer_norm import (
    Tile,
    layer_norm,
    layer_norm_backward,
    layer_norm_forward,
    reference_layer_norm,
)
from tests.kernels.table import rows_of

TYPES = (torch.float32, torch.float16, torch.bfloat16)
COLUMNS = (1, 2, 3, 31, 64, 127, 128, 129, 500, 512, 513, 1000, 1024, 1025, 2047, 2049, 3000, 4096, 4097, 6000)
LONG = ((3, 8192), (2, 8193), (2, 16384), (1, 16385), (1, 30001), (2, 32768), (1, 40000), (1, 70001))
# The interpreter is slow: there each length has one number of rows.
EVERY = torch.cuda.is_available()
SHAPES = [(rows, cols) for i, cols in enumerate(COLUMNS) for rows in ((1, 5, 33) if EVERY else ((1, 5, 9)[i % 3],))]
SHAPES += LONG
BLOCKED = Tile(256, 1, 4, blocked=True)
# Rows of the comparisons between tiles: enough for a program to take two turns in the interpreter, too.
FEW = 9 if EVERY else 5
AFFINE = [(True, True), (True, False), (False, True), (False, False)]
# Weight and bias, present or not, with the types: in the interpreter all types where both are.
AFFINE_TYPES = [(a, t) for i, a in enumerate(AFFINE) for t in (TYPES if EVERY or i == 0 else TYPES[i - 1 : i])]


def data(*shape, dtype, device, seed=0, scale=3.0, shift=0.0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=g) * scale + shift).to(dtype).to(device)


def check(x, w, b, dy, eps, close, tile=None):
    """Forward and all gradients of one case."""
    rows, cols = x.shape
    # NumPy, behind the interpreter, adds the two joined sums of a row one term after the other, not in a tree.
    terms = cols if x.is_cuda else cols**1.5
    y, mean, rstd = layer_norm_forward(x, w, b, eps, tile=tile)
    x64, w64, b64 = (None if t is None else t.double() for t in (x, w, b))
    dy64 = dy.double()
    y64 = reference_layer_norm(x64, w64, b64, eps)
    mean64 = x64.mean(-1)
    centred = x64 - mean64[:, None]
    rstd64 = (centred.square().mean(-1) + eps).rsqrt()
    # x - mean cancels where x is far from zero: the error of the mean counts in units of rstd.
    level = (x64.abs().amax(-1) * rstd64)[:, None] * (1 if w is None else w64.abs())
    size = y64.abs() + level + (0 if b is None else b64.abs())
    close(y, y64, length=terms, magnitude=size.cpu())
    close(mean, mean64, length=terms, magnitude=x64.abs().amax().cpu())
    close(rstd, rstd64, length=terms, magnitude=(rstd64 * (1 + x64.abs().amax(-1) * rstd64)).cpu())
    dx, dw, db = layer_norm_backward(x, w, dy, mean, rstd, bias=b is not None, tile=tile)
    # The gradients of what the kernel is given: the statistics in fp32.
    centred, rstd64 = x64 - mean.double()[:, None], rstd.double()
    h, g = centred * rstd64[:, None], dy64 if w is None else dy64 * w64
    wide = h.abs() + (x64.abs().amax(-1) * rstd64)[:, None]
    along = (g * h).mean(-1, keepdim=True)
    dx64 = rstd64[:, None] * (g - g.mean(-1, keepdim=True) - h * along)
    size = rstd64[:, None] * (g.abs() + g.abs().mean(-1, keepdim=True) + wide * (g.abs() * wide).mean(-1, keepdim=True))
    close(dx, dx64, length=terms, magnitude=size.cpu())
    if w is not None:
        close(dw, (dy64 * h).sum(0), length=rows, magnitude=(dy64.abs() * wide).sum(0).cpu())
    if b is not None:
        close(db, dy64.sum(0), length=rows, magnitude=dy64.abs().sum(0).cpu())
    assert (dw is None) is (w is None) and (db is None) is (b is None)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_forward_and_backward(rows, cols, dtype, device, close, guarded):
    x, dy = (data(rows, cols, dtype=dtype, device=device, seed=s, shift=1.0) for s in (0, 1))
    w, b = (data(cols, dtype=dtype, device=device, seed=s) for s in (2, 3))
    check(x, w if cols % 3 else None, b if cols % 5 else None, dy, 1e-5, close)


@pytest.mark.parametrize("cols", [1, 255, 256, 257, 1000, *((4096,) if EVERY else ())])
@pytest.mark.parametrize(("affine", "dtype"), AFFINE_TYPES, ids=str)
def test_blocks_give_the_same(affine, cols, dtype, device, close, guarded):
    x, dy = (data(FEW, cols, dtype=dtype, device=device, seed=s) for s in (0, 1))
    w, b = (
        data(cols, dtype=dtype, device=device, seed=s) if has else None for s, has in zip((2, 3), affine, strict=True)
    )
    odd = cols % 2 == 1
    one, two = (Tile(4096, rows, 4, reload=again, defer_weight=again) for rows, again in ((1, not odd), (2, odd)))
    for tile in (BLOCKED, one, two):
        check(x, w, b, dy, 1e-5, close, tile)


@pytest.mark.parametrize("first", [0.0, 30.0, -1e4, 1e6])
def test_a_first_element_far_from_the_mean(first, device, close):
    """The sums are taken from the first element on; where that is far off, the variance is computed again."""
    x = data(5, 3000, dtype=torch.float32, device=device)
    x[::2, 0] = first
    w, b, dy = (data(*s, dtype=torch.float32, device=device, seed=2) for s in ((3000,), (3000,), (5, 3000)))
    check(x, w, b, dy, 1e-5, close)
    rstd = layer_norm_forward(x, eps=0.0)[2]
    assert float((rstd.double() / x.double().var(-1, correction=0).rsqrt() - 1).abs().max()) < 2e-5


@pytest.mark.parametrize("tile", [None, BLOCKED], ids=["one pass", "blocked"])
@pytest.mark.parametrize("eps", [1e-12, 1e-5, 1.0])
def test_eps_and_a_large_mean(eps, tile, device, close):
    for scale, shift in ((1e-3, 0.0), (1.0, 1000.0), (1e4, -1e5)):
        x = data(5, 1111, dtype=torch.float32, device=device, scale=scale, shift=shift)
        dy, w, b = (data(*s, dtype=torch.float32, device=device, seed=2) for s in ((5, 1111), (1111,), (1111,)))
        check(x, w, b, dy, eps, close, tile)


def test_a_large_mean_does_not_cancel(device):
    """mean(x^2) - mean^2 in fp32 would give a variance that is wrong by more than a hundred percent here."""
    g = torch.Generator().manual_seed(0)
    x = (torch.randn(3, 5000, generator=g) + 10_000).to(device)
    for tile in (None, BLOCKED):
        rstd = layer_norm_forward(x, eps=0.0, tile=tile)[2]
        wanted = x.double().var(-1, correction=0).rsqrt()
        assert float((rstd.double() / wanted - 1).abs().max()) < 1e-4
    naive = (x.square().mean(-1) - x.mean(-1).square()).double() * wanted.square()
    assert float((naive - 1).abs().max()) > 0.5


def test_mixed_types_and_constant_rows(device, close):
    x, dy = (data(6, 300, dtype=torch.bfloat16, device=device, seed=s) for s in (0, 1))
    x[2], x[4] = 0, 5
    w, b = data(300, dtype=torch.float32, device=device, seed=2), data(300, dtype=torch.float16, device=device, seed=3)
    check(x, w, b, dy, 1e-5, close)
    x[1, 7], x[3, 3] = float("nan"), float("inf")
    y = layer_norm_forward(x, w, b)[0]
    close(y, reference_layer_norm(*(t.double().cpu() for t in (x, w, b))), length=300)


def test_rows_apart_and_three_dimensions(device, close):
    wide = data(12, 300, dtype=torch.float16, device=device)
    for x in (wide[:, :200], wide[::3], wide.view(4, 3, 300), wide.view(4, 3, 300)[:, 0], wide[0], wide[:0]):
        cols = x.shape[-1]
        w, dy = data(cols, dtype=torch.float16, device=device), torch.ones_like(x)
        for tile in (None, BLOCKED):
            y, mean, rstd = layer_norm_forward(x, w, w, tile=tile)
            assert y.shape == x.shape and y.is_contiguous()
            close(y, reference_layer_norm(x.double(), w.double(), w.double()), length=cols, magnitude=12)
            got = layer_norm_backward(x, w, dy, mean, rstd, tile=tile)
            leaves = [t.detach().double().requires_grad_() for t in (x, w, w)]
            wanted = torch.autograd.grad(reference_layer_norm(*leaves), leaves, dy.double())
            for a, b in zip(got, wanted, strict=True):
                close(a, b, length=cols, magnitude=40)


def test_many_rows_share_their_weight_gradient(device, close, guarded):
    rows, cols = (600, 64) if device == "cpu" else (20_000, 4096)
    x, dy = (data(rows, cols, dtype=torch.float32, device=device, seed=s) for s in (0, 1))
    w, b = (data(cols, dtype=torch.float32, device=device, seed=s) for s in (2, 3))
    check(x, w, b, dy, 1e-5, close)


def test_autograd(device, close):
    x = data(2, 3, 100, dtype=torch.float32, device=device).requires_grad_()
    w, b = (data(100, dtype=torch.float32, device=device, seed=s).requires_grad_() for s in (1, 2))
    layer_norm(x, w, b).sum().backward()
    x64, w64, b64 = (t.detach().double().requires_grad_() for t in (x, w, b))
    reference_layer_norm(x64, w64, b64).sum().backward()
    close(x.grad, x64.grad, length=100, magnitude=12)
    close(w.grad, w64.grad, length=6, magnitude=12)
    close(b.grad, b64.grad, length=6)
    assert bool(layer_norm(x).sum().isfinite()) and bool(layer_norm(x, None, b.half()).sum().isfinite())
    b16 = b.detach().half().requires_grad_()
    layer_norm(x, w, b16).sum().backward()
    assert b16.grad.dtype == torch.float16


def test_bad_arguments_are_named(device):
    x, w = torch.ones(4, 8, device=device), torch.ones(8, device=device)
    nan, b = float("nan"), torch.ones(8, device=device)
    for call, words in (
        (lambda: layer_norm(x.int(), w), "x is int32"),
        (lambda: layer_norm(x.t()), "stride 8 in its last dimension"),
        (lambda: layer_norm(x, w[:4]), r"weight has shape \(4,\): give \(8,\)"),
        (lambda: layer_norm(x, w, b[:2]), r"bias has shape \(2,\)"),
        (lambda: layer_norm(x, w, b.int()), "bias is int32"),
        (lambda: layer_norm(x, w, torch.ones(16, device=device)[::2]), "bias of shape"),
        (lambda: layer_norm(x, w, torch.ones(8, device="meta")), "bias is on meta"),
        (lambda: layer_norm(x, w, b, nan), "eps=nan"),
        (lambda: layer_norm(x, w, b, -1e-6), "eps=-1e-06"),
        (lambda: layer_norm_backward(x, w, x[:2], w[:4], w[:4]), "dy has shape"),
        (lambda: layer_norm_backward(x, w, x, w, w[:4]), "mean has shape"),
        (lambda: layer_norm_backward(x, w, x, w[:4], w), "rstd has shape"),
        (lambda: layer_norm_backward(x, w, x, w[:4].half(), w[:4]), "mean is float16"),
        (lambda: layer_norm_backward(x, w, x, w[:4], w[::2]), "rstd of shape"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.slow
def test_for_mi300x_rows_of_16384_columns_keep_4_waves_or_more():
    rows = [r for r in rows_of("layer_norm") if r.kernel.startswith("layer_norm")]
    for r in rows:
        # One program a unit, of eight waves: by the model 2,048 rows take 10.3 us, with four rows a program 11.2.
        least = 2 if "backward, 1024 columns" in r.case else 4
        for release, case, waves in (("3.6.", "backward, 512 columns", 3), ("3.8.", "backward, 2048 columns", 2)):
            if case in r.case and triton.__version__.startswith(release):
                least = waves  # this release takes more registers
        assert r.spills == 0 and r.findings == "-" and r.waves >= least, r
        if "8191" in r.case or "16383" in r.case:
            continue  # odd rows have no wide loads
        assert r.loads.startswith("128x") and r.stores.startswith("128x"), r
        if "16384" in r.case:
            assert r.waves >= (8 if "forward" in r.case and "float32" not in r.case else 4) and r.vgprs <= 128, r
            # Narrow ones are single numbers per row.
            assert {w.split("x")[0] for w in f"{r.loop_loads},{r.loop_stores}".split(",")} <= {"128", "32", "-"}, r
    assert sum("16384" in r.case for r in rows) == 6
