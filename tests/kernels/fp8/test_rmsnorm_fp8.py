# SPDX-License-Identifier: MIT
"""Residual + RMSNorm + FP8: against float64 over many shapes, types and scales; clear errors; what gfx942 gets."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from cdna.dry_run.driver import dry_run
from cdna.ir.program import parse_ir
from cdna.isa.kernel import parse_asm
from rocm_guide.kernels import rmsnorm_fp8 as module
from rocm_guide.kernels.cases import rmsnorm_fp8_cases, swiglu_fp8_cases
from rocm_guide.kernels.rmsnorm_fp8 import reference_rmsnorm_fp8, rmsnorm_fp8
from tests.kernels.fp8.cases import cases, check_fp8, poison
from tests.kernels.table import rows_of
from tests.kernels.this_machine import fp8_here

CASES = cases(220, seed=1)


def check(x, residual, weight, scale, eps=1e-6):
    q, updated, scales = rmsnorm_fp8(x, residual, weight, scale, eps=eps)
    y, s = reference_rmsnorm_fp8(x, residual, weight, eps)
    if x.dtype == torch.bfloat16 and x.device.type == "cpu":
        # The interpreter cuts bfloat16 off instead of rounding it: take its sum, check it loosely, go on from it.
        assert (updated.double() - s.double()).abs().max() <= 0.008 * s.double().abs().max()
        s = updated.clone()
        y, _ = reference_rmsnorm_fp8(s, torch.zeros_like(s), weight, eps)
    assert torch.equal(updated.nan_to_num(7), s.nan_to_num(7)) and updated.dtype == x.dtype
    if scale is None:
        wanted = y.abs().amax(-1, keepdim=True).clamp(min=1e-30) / fp8_here().maximum
        assert scales.shape == (x.shape[0], 1) and scales.dtype == torch.float32
        torch.testing.assert_close(scales.double(), wanted, rtol=1e-5, atol=0)
        y = y / scales.double()
    else:
        assert scales is None
        y = y / scale
    check_fp8(q, y, y.abs() * 2**-18)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v).removeprefix("torch.") for v in c))
def test_against_float64(case, device, monkeypatch):
    rows, columns, dtype, scale = case
    g = torch.Generator().manual_seed(rows * 100_003 + columns)
    x, residual = (torch.randn(rows, columns, generator=g).to(dtype).to(device) for _ in range(2))
    weight = torch.randn(columns, generator=g).to(torch.float32 if columns % 3 == 0 else dtype).to(device)
    poison(monkeypatch, module)
    check(x, residual, weight, scale)


@pytest.mark.parametrize("scale", [None, 0.02])
def test_rows_may_lie_apart(device, scale):
    wide = torch.randn(6, 400, dtype=torch.float16).to(device)
    check(wide[::2, 3:130], wide[::2, 200:327], torch.ones(127, dtype=torch.float16, device=device), scale)


@pytest.mark.parametrize("scale", [None, 0.02])
def test_long_rows_in_pieces(device, scale, monkeypatch):
    monkeypatch.setitem(module.CONFIGS["gfx942"], "one_pass", 512)
    monkeypatch.setitem(module.CONFIGS["gfx942"], "looped", 256)
    if "sm_90" in module.CONFIGS:
        monkeypatch.setitem(module.CONFIGS["sm_90"], "one_pass", 512)
        monkeypatch.setitem(module.CONFIGS["sm_90"], "looped", 256)
    for columns in (513, 768, 1000):
        x, residual = (torch.randn(3, columns, dtype=torch.float32).to(device) for _ in range(2))
        check(x, residual, torch.randn(columns).to(device), scale)


def test_values_at_the_edges(device):
    x = torch.zeros(6, 64, dtype=torch.float16)
    x[1, :] = 1.0
    x[2, 0], x[3, :] = 60000.0, torch.linspace(-3, 3, 64).half()
    x[4, :32], x[5, 5] = 1e-7, float("nan")
    x, residual, weight = x.to(device), torch.zeros(6, 64, dtype=torch.float16).to(device), torch.ones(64).half()
    check(x, residual, weight.to(device), 0.001)  # far too small a scale: everything saturates, NaN stays NaN
    check(x, residual, weight.to(device), 0.5, eps=1e-5)
    q, _, scales = rmsnorm_fp8(x[:1], residual[:1], weight.to(device))
    assert bool((q.float() == 0).all()) and 0 < scales.item() < 1e-30
    empty = torch.empty(0, 64, dtype=torch.float16, device=device)
    assert rmsnorm_fp8(empty, empty, weight.to(device), 0.5)[0].shape == (0, 64)


def test_bad_arguments_are_named_before_any_launch(device, monkeypatch):
    x = torch.ones(4, 32, dtype=torch.float16, device=device)
    w = torch.ones(32, dtype=torch.float16, device=device)
    rmsnorm_fp8(x, x, w, 1.0), rmsnorm_fp8(x, x, w)  # what is remembered of good calls lets no bad one pass

    class Never:
        def __getitem__(self, grid):
            raise AssertionError("launched")

    monkeypatch.setattr(module, "rmsnorm_fp8_kernel", Never())
    for arguments, words in (
        ((x.long(), x, w, 1.0), "x is int64"),
        ((x[0], x, w, 1.0), r"x has shape \(32,\)"),
        ((x, x.float(), w, 1.0), "residual is float32"),
        ((x, x[:2], w, 1.0), "residual has shape"),
        ((x, x, w[:31], 1.0), "weight has shape"),
        ((x, x, w.bfloat16(), 1.0), "weight is bfloat16"),
        ((x, x, w.to("meta"), 1.0), "meta"),
        ((x.t(), x.t(), w[:4], 1.0), "stride"),
        ((x, x, w, math.nan), "scale=nan"),
        ((x, x, w, math.inf), "scale=inf"),
        ((x, x, w, 0.0), "scale=0"),
        ((x, x, w, -1.0), "scale=-1"),
    ):
        with pytest.raises(ValueError, match=words):
            rmsnorm_fp8(*arguments)
    with pytest.raises(ValueError, match="eps=nan"):
        rmsnorm_fp8(x, x, w, 1.0, eps=math.nan)


def test_for_mi300x_no_spills_wide_accesses_packed_conversions():
    rows = rows_of("rmsnorm_fp8")
    assert len(rows) == 20
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 4, r
        assert {w.split("x")[0] for w in r.loads.split(",")} == {"128"}, r
        # 128 bits of the residual, 64 bits of FP8 (the same eight columns), 32 bits of a row's scale
        assert {w.split("x")[0] for w in r.stores.split(",")} == {
            "128",
            "64",
            *(["32"] if "per-row" in r.case else []),
        }, r
        assert r.lds <= 64, "LDS for the reduction only: no change of layout"
    under_way = [r.waves * int(r.loads.split("x")[1]) for r in rows if " 16384 " in r.case]
    assert min(under_way) >= 48, "loads that the waves of a SIMD have under way, a row and its weight at once"


@pytest.mark.parametrize("cases", [rmsnorm_fp8_cases, swiglu_fp8_cases], ids=["rmsnorm", "swiglu"])
def test_for_mi300x_every_wave_reads_contiguous_memory(cases):
    """One layout for everything, eight neighbours to a lane: 64 lanes x 16 bytes of fp16 without a gap."""
    for _, launch in cases():
        with dry_run("gfx942", device="meta") as run:
            launch()
        program = parse_ir(run.launches[0].compiled.ttgir)[0]
        assert not program.conversions
        layouts = {x.describe().split(",")[0] for x in program.layouts.values() if x.kind == "blocked"}
        assert layouts == {"blocked: each lane holds 8"}
        assert "f8E4M3FNUZ" in run.launches[0].compiled.ttgir, "the form that MI300X multiplies"
        # Two numbers for each conversion, each clamped first: beyond 240 the instruction alone gives NaN.
        count = Counter(i.op for i in parse_asm(run.launches[0].compiled.assembly)[0].instructions)
        assert count["v_med3_f32"] == 2 * count["v_cvt_pk_fp8_f32"] >= 8
