# SPDX-License-Identifier: MIT
"""SwiGLU + FP8: against float64 over many shapes, types and scales; clear errors; what gfx942 gets."""

from __future__ import annotations

import math

import pytest
import torch

from rocm_guide.kernels import swiglu_fp8 as module
from rocm_guide.kernels.swiglu_fp8 import reference_swiglu_fp8, swiglu_fp8
from tests.kernels.fp8.cases import cases, check_fp8, poison
from tests.kernels.table import rows_of
from tests.kernels.this_machine import fp8_here

CASES = cases(220, seed=2)


def check(x, scale):
    q, scales = swiglu_fp8(x, scale)
    y = reference_swiglu_fp8(x)
    if scale is None:
        wanted = y.abs().amax(-1, keepdim=True).clamp(min=1e-30) / fp8_here().maximum
        assert scales.shape == (x.shape[0], 1) and scales.dtype == torch.float32
        torch.testing.assert_close(scales.double(), wanted, rtol=2e-5, atol=1e-36)
        y = y / scales.double()
    else:
        assert scales is None
        y = y / scale
    gate = x.double().chunk(2, -1)[0].abs().nan_to_num()
    # 2^(-g log2 e) inherits the rounding of its argument, which grows with g.
    check_fp8(q, y, (y.abs() * (2**-18 + gate.clamp(max=200) * 2**-22)).nan_to_num(posinf=0.0) + 1e-9)
    return q


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v).removeprefix("torch.") for v in c))
def test_against_float64(case, device, monkeypatch):
    rows, columns, dtype, scale = case
    g = torch.Generator().manual_seed(rows * 100_003 + columns)
    x = (torch.randn(rows, 2 * columns, generator=g) * 3).to(dtype).to(device)
    poison(monkeypatch, module)
    check(x, scale)


@pytest.mark.parametrize("scale", [None, 0.02])
def test_rows_may_lie_apart(device, scale):
    wide = torch.randn(6, 500, dtype=torch.float16).to(device)
    check(wide[::2, 11:265], scale)


def test_every_tile_gives_the_same(device, monkeypatch):
    x = torch.randn(3, 2 * 1500, dtype=torch.float16).to(device)
    results = []
    for tile, warps in ((128, 1), (1024, 2), (2048, 8)):
        for config in module.CONFIGS.values():
            monkeypatch.setitem(config, "static", ((None, tile, warps),))
        results.append(check(x, 0.1).view(torch.uint8))
    assert all(torch.equal(r, results[0]) for r in results)


def test_long_rows_in_pieces(device, monkeypatch):
    for config in module.CONFIGS.values():
        monkeypatch.setitem(config, "one_pass", 512)
        monkeypatch.setitem(config, "looped", 256)
    for columns in (513, 768, 1000):
        check(torch.randn(3, 2 * columns, dtype=torch.float32).to(device), None)


def test_values_at_the_edges(device):
    gate = torch.tensor([0.0, -0.0, 1.0, -1.0, 80.0, -80.0, 60000.0, -60000.0, float("nan"), 2.0, float("inf"), 1e-7])
    up = torch.tensor([1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 60000.0, 60000.0, 1.0, float("nan"), 1.0, 1e-7])
    x = torch.cat([gate, up])[None].half().to(device)
    check(x, 1.0)
    check(x, 1e-3)
    q, scales = swiglu_fp8(torch.zeros(1, 64, dtype=torch.float16, device=device))
    assert bool((q.float() == 0).all()) and 0 < scales.item() < 1e-30
    assert swiglu_fp8(torch.empty(0, 64, dtype=torch.float16, device=device), 1.0)[0].shape == (0, 32)


def test_bad_arguments_are_named_before_any_launch(device, monkeypatch):
    x = torch.ones(4, 32, dtype=torch.float16, device=device)
    swiglu_fp8(x, 1.0), swiglu_fp8(x)  # what is remembered of good calls lets no bad one pass

    class Never:
        def __getitem__(self, grid):
            raise AssertionError("launched")

    monkeypatch.setattr(module, "swiglu_fp8_kernel", Never())
    monkeypatch.setattr(module, "swiglu_fp8_rows_kernel", Never())
    for arguments, words in (
        ((x.long(), 1.0), "x is int64"),
        ((x[0], 1.0), r"x has shape \(32,\)"),
        ((x[:, :31], 1.0), "gate and up"),
        ((x.t(), 1.0), "stride"),
        ((x.to("meta"), 1.0), "meta"),
        ((x, math.nan), "scale=nan"),
        ((x, math.inf), "scale=inf"),
        ((x, 0.0), "scale=0"),
        ((x, "1"), "scale='1'"),
    ):
        with pytest.raises(ValueError, match=words):
            swiglu_fp8(*arguments)


def test_for_mi300x_no_spills_wide_accesses():
    rows = rows_of("swiglu_fp8")
    assert len(rows) == 18
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 4, r
        assert {w.split("x")[0] for w in r.loads.split(",")} == {"128"}, r
        assert r.stores.startswith("64") and r.lds <= 64, r
    assert all(r.waves == 8 for r in rows if " 16384 " in r.case)
