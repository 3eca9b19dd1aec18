# SPDX-License-Identifier: MIT
"""Softmax against float64: every type, odd lengths and row counts, both ways of reading a row, both gradients."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.softmax import Tile, reference_softmax, softmax, softmax_backward, softmax_forward
from tests.kernels.table import rows_of

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# Odd lengths, one column, one row, around every change of tile; the longest are blocked.
COLUMNS = (1, 2, 3, 31, 64, 127, 128, 129, 500, 512, 513, 1000, 1024, 1025, 2047, 2049, 3000, 4096, 4097, 6000)
LONG = ((3, 8192), (2, 8193), (2, 16384), (1, 16385), (1, 30001), (2, 32768), (1, 40000), (1, 70001))
# The interpreter is slow: there each length has one number of rows.
EVERY = torch.cuda.is_available()
SHAPES = [(rows, cols) for i, cols in enumerate(COLUMNS) for rows in ((1, 5, 33) if EVERY else ((1, 5, 9)[i % 3],))]
SHAPES += LONG
BLOCKED = Tile(256, 1, 4, blocked=True)


def data(rows, cols, dtype, device, seed=0, scale=3.0):
    g = torch.Generator().manual_seed(seed + rows * 7919 + cols)
    return (torch.randn(rows, cols, generator=g) * scale).to(dtype).to(device)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_forward_and_backward(rows, cols, dtype, device, close, guarded):
    x, dy = data(rows, cols, dtype, device), data(rows, cols, dtype, device, seed=1)
    y64 = reference_softmax(x.double())
    y = softmax_forward(x)
    close(y, y64, length=cols, magnitude=y64.cpu())
    # The gradient of what the kernel is given: the rounded y.
    given = y.double()
    dx64 = given * (dy.double() - (given * dy.double()).sum(-1, keepdim=True))
    size = (given * (dy.double().abs() + (given * dy.double().abs()).sum(-1, keepdim=True))).cpu()
    close(softmax_backward(y, dy), dx64, length=cols, magnitude=size)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("cols", [1, 255, 256, 257, 1000, *((4096,) if EVERY else ())])
def test_blocks_give_the_same(cols, dtype, device, close, guarded):
    x, dy = data(4, cols, dtype, device), data(4, cols, dtype, device, seed=1)
    y = softmax_forward(x, tile=BLOCKED)
    y64 = reference_softmax(x.double())
    close(y, y64, length=cols, magnitude=y64.cpu())
    given = y.double()
    dx64 = given * (dy.double() - (given * dy.double()).sum(-1, keepdim=True))
    size = (given * (dy.double().abs() + (given * dy.double().abs()).sum(-1, keepdim=True))).cpu()
    close(softmax_backward(y, dy, tile=BLOCKED), dx64, length=cols, magnitude=size)


@pytest.mark.parametrize("tile", [None, BLOCKED], ids=["one pass", "blocked"])
def test_ties_huge_values_and_special_ones(tile, device, close):
    inf, nan = float("inf"), float("nan")
    rows = [
        [1.0] * 300,
        [1e38, -1e38] + [0.0] * 298,
        [-inf] * 299 + [2.0],
        [-inf] * 300,
        [inf] + [0.0] * 299,
        [nan] + [0.0] * 299,
        [-3e38] * 300,
        [88.0, 89.0] * 150,
        [-inf] * 256 + [1.0] * 44,
    ]
    x = torch.tensor(rows, device=device)
    y64 = reference_softmax(x.double())
    close(softmax_forward(x, tile=tile), y64, length=300, magnitude=y64.nan_to_num().cpu())


def test_rows_apart_and_three_dimensions(device, close):
    wide = data(40, 300, torch.float16, device)
    for x in (wide[:, :200], wide[::3], wide.view(4, 10, 300), wide.view(4, 10, 300)[:, 0], wide[0], wide[:0]):
        for tile in (None, BLOCKED):
            y = softmax_forward(x, tile=tile)
            assert y.shape == x.shape and y.is_contiguous()
            close(y, reference_softmax(x.double()), length=x.shape[-1])


def test_autograd(device, close):
    x = data(6, 100, torch.float32, device).requires_grad_()
    weight = data(6, 100, torch.float32, device, seed=3)
    (softmax(x) * weight).sum().backward()
    x64 = x.detach().double().requires_grad_()
    (reference_softmax(x64) * weight.double()).sum().backward()
    close(x.grad, x64.grad, length=100, magnitude=3)
    # A gradient that is one number seen many times is no list of rows; it is made one.
    x.grad = None
    softmax(x).sum().backward()
    assert float(x.grad.abs().max()) < 1e-5


def test_bad_arguments_are_named(device):
    x = torch.ones(4, 8, device=device)
    for call, words in (
        (lambda: softmax(x.int()), "x is int32"),
        (lambda: softmax(x.t()), "stride 8 in its last dimension"),
        (lambda: softmax(torch.ones(2, 3, 4, device=device).transpose(0, 1)), "no list of rows"),
        (lambda: softmax(torch.ones(4, 0, device=device)), "at least one column"),
        (lambda: softmax(torch.ones((), device=device)), "at least one column"),
        (lambda: softmax_backward(x, x[:3]), "dy has shape"),
        (lambda: softmax_backward(x, torch.ones(4, 8, device="meta")), "dy is on meta"),
        (lambda: softmax(torch.ones(4, 8, device="meta")), "meta"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.slow
def test_for_mi300x_rows_of_16384_columns_run_at_8_waves():
    rows = {r.case.removeprefix("softmax: "): r for r in rows_of("softmax")}
    for name, r in rows.items():
        assert r.spills == 0 and r.findings == "-" and r.waves >= 4, r
        if "8191" in name or "16383" in name:
            continue  # odd rows have no wide loads
        assert {w.split("x")[0] for w in f"{r.loads},{r.stores}".split(",")} == {"128"}, r
        if "16384" in name:
            assert r.waves == 8 and r.vgprs <= 64, r
    assert sum("16384" in name for name in rows) == 6
