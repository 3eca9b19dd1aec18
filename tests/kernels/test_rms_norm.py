# SPDX-License-Identifier: MIT
"""RMSNorm against float64: every type, odd lengths and row counts, both ways of reading a row, all gradients."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.rms_norm import Tile, reference_rms_norm, rms_norm, rms_norm_backward, rms_norm_forward
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


def data(*shape, dtype, device, seed=0, scale=3.0, shift=0.0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=g) * scale + shift).to(dtype).to(device)


def check(x, w, dy, eps, close, tile=None):
    """Forward and both gradients of one case."""
    rows, cols = x.shape
    y, rstd = rms_norm_forward(x, w, eps, tile=tile)
    x64, w64, dy64 = x.double(), None if w is None else w.double(), dy.double()
    y64 = reference_rms_norm(x64, w64, eps)
    close(y, y64, length=cols, magnitude=y64.abs().cpu())
    rstd64 = (x64.square().mean(-1) + eps).rsqrt()
    close(rstd, rstd64, length=cols)
    dx, dw = rms_norm_backward(x, w, dy, rstd, tile=tile)
    h = x64 * rstd64[:, None]
    g = dy64 if w is None else dy64 * w64
    dx64 = rstd64[:, None] * (g - h * (g * h).mean(-1, keepdim=True))
    size = rstd64[:, None] * (g.abs() + h.abs() * (g * h).abs().mean(-1, keepdim=True))
    close(dx, dx64, length=cols, magnitude=size.cpu())
    if w is not None:
        close(dw, (dy64 * h).sum(0), length=rows, magnitude=(dy64 * h).abs().sum(0).cpu())
    else:
        assert dw is None


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_forward_and_backward(rows, cols, dtype, device, close, guarded):
    x, dy = (data(rows, cols, dtype=dtype, device=device, seed=s) for s in (0, 1))
    w = data(cols, dtype=dtype, device=device, seed=2) if cols % 3 else None
    check(x, w, dy, 1e-6, close)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("cols", [1, 255, 256, 257, 1000, *((4096,) if EVERY else ())])
@pytest.mark.parametrize("weighted", [True, False])
def test_blocks_give_the_same(weighted, cols, dtype, device, close, guarded):
    x, dy = (data(FEW, cols, dtype=dtype, device=device, seed=s) for s in (0, 1))
    w = data(cols, dtype=dtype, device=device, seed=2) if weighted else None
    for tile in (BLOCKED, Tile(4096, 1, 4, 2, stages=2), Tile(4096, 2, 4)):
        check(x, w, dy, 1e-6, close, tile)


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-5, 1.0, 1e4])
def test_eps_and_sizes(eps, device, close):
    for scale in (1e-4, 1.0, 1e4):
        x, dy = (data(5, 200, dtype=torch.float32, device=device, seed=s, scale=scale) for s in (0, 1))
        check(x, data(200, dtype=torch.float32, device=device, seed=2), dy, eps, close)


def test_mixed_types_and_zeros(device, close):
    x, dy = (data(6, 300, dtype=torch.bfloat16, device=device, seed=s) for s in (0, 1))
    x[2] = 0
    w = data(300, dtype=torch.float32, device=device, seed=2)
    check(x, w, dy, 1e-6, close)
    assert rms_norm_backward(x, w, dy, rms_norm_forward(x, w)[1])[1].dtype == torch.float32
    x[1, 7], x[3, 3] = float("nan"), float("inf")
    # On the CPU: torch's fused fp64 kernel for CUDA makes the whole row NaN where the formula gives zeros beside it.
    close(rms_norm_forward(x, w)[0], reference_rms_norm(x.double().cpu(), w.double().cpu()), length=300)


def test_rows_apart_and_three_dimensions(device, close):
    wide = data(12, 300, dtype=torch.float16, device=device)
    for x in (wide[:, :200], wide[::3], wide.view(4, 3, 300), wide.view(4, 3, 300)[:, 0], wide[0], wide[:0]):
        cols = x.shape[-1]
        w, dy = data(cols, dtype=torch.float16, device=device), torch.ones_like(x)
        for tile in (None, BLOCKED):
            y, rstd = rms_norm_forward(x, w, tile=tile)
            assert y.shape == x.shape and y.is_contiguous()
            close(y, reference_rms_norm(x.double(), w.double(), 1e-6), length=cols)
            dx, dw = rms_norm_backward(x, w, dy, rstd, tile=tile)
            x64, w64 = x.detach().double().requires_grad_(), w.double().requires_grad_()
            wanted = torch.autograd.grad(reference_rms_norm(x64, w64, 1e-6), (x64, w64), dy.double())
            close(dx, wanted[0], length=cols, magnitude=3)
            close(dw, wanted[1], length=max(rstd.numel(), 1), magnitude=40)


def test_many_rows_share_their_weight_gradient(device, close, guarded):
    rows, cols = (600, 64) if device == "cpu" else (20_000, 4096)
    x, dy = (data(rows, cols, dtype=torch.float32, device=device, seed=s) for s in (0, 1))
    check(x, data(cols, dtype=torch.float32, device=device, seed=2), dy, 1e-6, close)


def test_autograd(device, close):
    x = data(2, 3, 100, dtype=torch.float32, device=device).requires_grad_()
    w = data(100, dtype=torch.float32, device=device, seed=1).requires_grad_()
    rms_norm(x, w, 1e-5).sum().backward()
    x64, w64 = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    reference_rms_norm(x64, w64, 1e-5).sum().backward()
    close(x.grad, x64.grad, length=100, magnitude=6)
    close(w.grad, w64.grad, length=6, magnitude=6)
    only = rms_norm(x).sum()
    only.backward()
    assert bool(only.isfinite())


def test_bad_arguments_are_named(device):
    x, w = torch.ones(4, 8, device=device), torch.ones(8, device=device)
    nan = float("nan")
    for call, words in (
        (lambda: rms_norm(x.int(), w), "x is int32"),
        (lambda: rms_norm(x.t()), "stride 8 in its last dimension"),
        (lambda: rms_norm(x, w[:4]), r"weight has shape \(4,\): give \(8,\)"),
        (lambda: rms_norm(x, w.int()), "weight is int32"),
        (lambda: rms_norm(x, torch.ones(16, device=device)[::2]), "weight of shape"),
        (lambda: rms_norm(x, torch.ones(8, device="meta")), "weight is on meta"),
        (lambda: rms_norm(x, w, nan), "eps=nan"),
        (lambda: rms_norm(x, w, True), "eps=True"),
        (lambda: rms_norm(x, w, -1e-6), "eps=-1e-06: give a finite number of 0 or more"),
        (lambda: rms_norm_backward(x, w, x[:2], w), "dy has shape"),
        (lambda: rms_norm_backward(x, w, x, w), "rstd has shape"),
        (lambda: rms_norm_backward(x, w, x, w[:4].double()), "rstd is float64"),
        (lambda: rms_norm_backward(x, w, x, w[::2]), "rstd of shape"),
        (lambda: rms_norm_backward(x, w, x.int(), w[:4]), "dy is int32"),
        (lambda: rms_norm_backward(x, w, x, torch.ones(4, device="meta")), "rstd is on meta"),
        (lambda: rms_norm([1.0]), "x is .1.0.: give a float tensor"),
        (lambda: rms_norm(x, 3), "weight is 3: give a tensor"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.slow
def test_for_mi300x_rows_of_16384_columns_keep_4_waves_or_more():
    rows = [r for r in rows_of("rms_norm") if r.kernel.startswith("rms_norm")]
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 4, r
        if "8191" in r.case or "16383" in r.case:
            continue  # odd rows have no wide loads
        assert r.loads.startswith("128x") and r.stores.startswith("128x"), r
        if "16384" in r.case:
            assert r.waves >= (8 if "forward" in r.case and "float32" not in r.case else 4) and r.vgprs <= 128, r
            # Narrow ones are single numbers per row.
            assert {w.split("x")[0] for w in f"{r.loop_loads},{r.loop_stores}".split(",")} <= {"128", "32", "-"}, r
    assert sum("16384" in r.case for r in rows) == 6
