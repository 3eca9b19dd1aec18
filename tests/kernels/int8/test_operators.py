# SPDX-License-Identifier: MIT
"""The INT8 operators against float64: shapes and strides, rounding at the edges, refusals before a launch."""

from __future__ import annotations

import random

import pytest
import torch
import triton

from benchmarks.kernels.gemm_tiles import cycles
from course.resource_table import read_rows
from rocm_guide.kernels import int8_gemm as operators
from rocm_guide.kernels.gemm import GemmTile
from rocm_guide.kernels.int8_gemm import (
    LONGEST_K,
    bmm_ab_i8_e_f32,
    bmm_abe_i8,
    linear_abde_i8,
    linear_scaled,
    pick_int8_tile,
    reference_operator,
    reference_scaled,
)
from tests.kernels.int8.cases import check_rounded, codes

SIZES = (1, 2, 7, 16, 31, 32, 33, 65, 100)


def sizes(seed):
    rng = random.Random(seed)
    return rng, [rng.choice(SIZES) for _ in range(3)], (rng.randrange(4), rng.randrange(4))


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.parametrize("name", ["linear_abde_i8", "linear_relu_abde_i8", "linear_ab_i8_de_f32"])
def test_linear(device, close, guarded, name, seed):
    rng, (m, n, k), (ka, kb) = sizes(seed)
    a, b = codes(m, k, seed=seed, kind=ka, device=device), codes(k, n, seed=seed + 1, kind=kb, device=device)
    d = codes(1, n, seed=2, device=device)[0] if seed % 2 else codes(m, n, seed=2, kind=seed % 4, device=device)
    alpha, beta = rng.choice((0.5, 0.01, -0.003, 1.0)), rng.choice((1.0, 0.0, -0.7))
    floating = name.endswith("f32")
    d = d.float() / 7 if floating else d
    want = reference_operator(a, b, d, alpha, beta, relu="relu" in name, int8_out=False)
    got = getattr(operators, name)(a, b, d, alpha, beta)
    if floating:
        magnitude = abs(alpha) * (a.double().abs() @ b.double().abs()).max() + abs(beta) * d.abs().max().double()
        assert got.dtype == torch.float32
        close(got, want, magnitude=magnitude)
    else:
        check_rounded(got, want)


@pytest.mark.parametrize("seed", range(12))
def test_batches(device, close, guarded, seed):
    rng, (m, n, k), (ka, kb) = sizes(100 + seed)
    batch, alpha = rng.choice((1, 2, 5)), rng.choice((0.004, -0.02))
    a, b = (
        codes(batch, m, k, seed=seed, kind=ka, device=device),
        codes(batch, k, n, seed=seed + 1, kind=kb, device=device),
    )
    want = reference_operator(a, b, None, alpha, int8_out=False)
    check_rounded(bmm_abe_i8(a, b, alpha), want)
    close(bmm_ab_i8_e_f32(a, b, alpha), want, magnitude=abs(alpha) * (a.double().abs() @ b.double().abs()).max())


@pytest.mark.parametrize("seed", range(12))
def test_scales_of_rows_and_columns(device, close, guarded, seed):
    rng, (m, n, k), (ka, kb) = sizes(200 + seed)
    a, b = codes(m, k, seed=seed, kind=ka, device=device), codes(k, n, seed=seed + 1, kind=kb, device=device)
    rows, columns = (torch.rand(rng.choice((1, s)), device=device) / 50 for s in (m, n))
    bias = torch.randn(n, device=device) if seed % 2 else None
    dtype = torch.float16 if seed % 3 == 0 else torch.float32
    want = reference_scaled(a, b, rows, columns, bias)
    magnitude = reference_scaled(a.abs().double(), b.abs().double(), rows, columns).max() + 4
    got = linear_scaled(a, b, rows, columns, bias, out_dtype=dtype)
    assert got.dtype == dtype
    close(got, want, magnitude=magnitude, length=4)


def test_every_number_is_rounded_to_nearest_and_halves_to_even(device):
    """All of -600 … 600 in eighths: below, between, at and beyond the ends of int8."""
    values = torch.arange(-4800, 4801, device=device)
    a = torch.stack([values // 128, values % 128], 1).to(torch.int8)
    b = torch.tensor([[127, 1], [1, 0]], dtype=torch.int8, device=device)
    d = (values // 128).to(torch.int8)[:, None].expand(-1, 2).contiguous()
    got = linear_abde_i8(a, b, d, 0.125, 0.125)[:, 0]  # (127 q + r + q) / 8 with value = 128 q + r
    assert torch.equal(got.cpu().double(), (values.cpu().double() / 8).round().clamp(-128, 127))


def test_sums_beyond_what_float32_counts(device):
    a = torch.full((1, 3000), 127, dtype=torch.int8, device=device)
    b = torch.full((3000, 1), 127, dtype=torch.int8, device=device)
    b[0, 0] = 126
    d = torch.zeros(1, device=device)
    got = operators.linear_ab_i8_de_f32(a, b, d, 1.0)
    assert got.item() == float(torch.tensor(3000 * 127 * 127 - 127, dtype=torch.float32))


@pytest.mark.parametrize("tile", [GemmTile(16, 64, 32, 4), GemmTile(64, 32, 64, 2), GemmTile(32, 32, 32, 4, group=1)])
def test_tiles_of_ones_own(device, tile):
    a, b = codes(70, 90, device=device), codes(90, 50, kind=1, device=device)
    one = torch.ones(1, device=device)
    assert torch.equal(linear_scaled(a, b, one, one, tile=tile).double(), reference_scaled(a, b, one, one))


def test_empty(device):
    empty = torch.empty(0, 4, dtype=torch.int8, device=device)
    d = codes(1, 3, device=device)[0]
    assert linear_abde_i8(empty, codes(4, 3, device=device), d, 1.0).shape == (0, 3)
    got = bmm_ab_i8_e_f32(codes(2, 3, 1, device=device)[..., :0], codes(2, 1, 4, device=device)[:, :0], 1.0)
    assert bool((got == 0).all()) and got.shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a, b, d: linear_abde_i8(a.float(), b, d, 1.0), "a is float32: give int8"),
        (lambda a, b, d: linear_abde_i8(a, b.T, d, 1.0), r"b has shape \(3, 4\): give \(4, any\)"),
        (lambda a, b, d: linear_abde_i8(a, b, d.float(), 1.0), "d is float32: give int8"),
        (lambda a, b, d: linear_abde_i8(a, b, d[:2], 1.0), r"d has shape \(2,\): give \(3,\)"),
        (lambda a, b, d: linear_abde_i8(a, b, d.expand(5, 3), 1.0), r"d has shape \(5, 3\): give \(2, 3\)"),
        (lambda a, b, d: linear_abde_i8(a, b, d, float("nan")), "alpha=nan: give a finite number"),
        (lambda a, b, d: linear_abde_i8(a, b, d, 1.0, 1e39), "beta=1e\\+39: give a finite number"),
        (lambda a, b, d: bmm_abe_i8(a, b, 1.0), r"a has shape \(2, 4\): give \(any, any, any\)"),
        (
            lambda a, b, d: bmm_abe_i8(a[None], b[None].expand(2, 4, 3), 1.0),
            r"b has shape \(2, 4, 3\): give \(1, 4, any\)",
        ),
        (lambda a, b, d: linear_scaled(a, b, d.float(), d.float()), r"row_scale has shape \(3,\): give \(2,\)"),
        (lambda a, b, d: linear_scaled(a, b, d[:1].double(), d.float()), "row_scale is float64: give float32"),
        (
            lambda a, b, d: linear_abde_i8(a[:, :1].expand(2, LONGEST_K + 1), b[:1].expand(LONGEST_K + 1, 3), d, 1.0),
            "K=131072: sums of 8-bit products fit into 32 bits up to K=131071; split K",
        ),
    ],
)
def test_errors_before_launch(device, call, text):
    with pytest.raises(ValueError, match=text) as caught:
        call(codes(2, 4, device=device), codes(4, 3, device=device), codes(1, 3, device=device)[0])
    assert "\n" not in str(caught.value)


def test_what_they_become_on_an_mi300x():
    rows = [r for r in read_rows()[1] if r.case.startswith("int8_gemm")]
    assert len(rows) == 17
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 2, r
        assert r.mfma.startswith("v_mfma_i32_16x16x32_i8") and "," not in r.mfma, r
        if "2047" not in r.case:
            assert {w.split("x")[0] for w in r.loop_loads.split(",")} == {"128"}, r


@pytest.mark.skipif(triton.__version__[:4] != "3.9.", reason="the table's cycles are those of Triton 3.9's code")
def test_cycles_of_a_tile_are_those_of_its_machine_code():
    tile = operators.CONFIGS["gfx942"][-1]
    assert cycles(tile, torch.int8) == tile.cycles


def test_the_tile_on_an_mi300x():
    """Few rows get small tiles, many large ones; with a number of D for each of E the largest would spill."""
    assert [pick_int8_tile(m, 8192, 1, "gfx942", 304, k=8192).bm for m in (32, 512, 8192)] == [32, 64, 256]
    tiles = [pick_int8_tile(8192, 8192, 1, "gfx942", 304, k=4096, matrix=matrix) for matrix in (False, True)]
    assert [tile.bm * tile.bn for tile in tiles] == [256 * 256, 256 * 128]
    alone, many = (pick_int8_tile(512, 512, batch, "gfx942", 304, k=512) for batch in (1, 400))
    assert alone.bm * alone.bn < many.bm * many.bn, "a batch fills the GPU, too"


def test_few_rows_get_a_workgroup_for_almost_every_unit_of_hopper():
    """As measured for Llama-2-7B: with the GEMM's own tiles 32 or 128 rows left half of the units without work."""
    for m in (1, 32, 128):
        for n in (4096, 12288, 22016):
            tile = pick_int8_tile(m, n, 1, "sm_90", 132)
            assert -(-m // tile.bm) * -(-n // tile.bn) >= 128, (m, n, tile)
    # One workgroup a unit takes more of K at a time; several wait for memory together.
    assert [pick_int8_tile(32, n, 1, "sm_90", 132).bk for n in (4096, 12288)] == [256, 128]
    assert pick_int8_tile(8192, 4096, 1, "sm_90", 132).bm == 256
