# SPDX-License-Identifier: MIT
"""GEMM of every type, against float64: random shapes and strides, epilogues, errors before launch, gfx942 code."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
import triton
import triton.language as tl

from benchmarks.kernels.gemm_tiles import cycles
from cdna.examples.gemm_ladder import Rung
from rocm_guide.kernels.gemm import (
    ACTIVATIONS,
    CONFIGS,
    GemmTile,
    architecture,
    gemm,
    pick_gemm_tile,
    reference_gemm,
    tile_order,
)
from tests.kernels.gemm.cases import TYPES, case, full_sums, values
from tests.kernels.this_machine import seeds


def check(close, got, c, expected):
    if got.dtype == torch.int32:
        assert torch.equal(got.cpu().double(), expected.cpu())
    else:
        close(got, expected, length=c.a.shape[1], magnitude=c.magnitude)


@pytest.mark.parametrize("seed", seeds(216))
def test_random_products(device, close, seed, monkeypatch, guarded):
    c = case(seed, device)
    if (seed // 7) % 2:
        full_sums(monkeypatch, c, [sys.modules["rocm_guide.kernels.gemm"]])
    out_dtype = torch.float32 if c.a.element_size() == 1 and c.a.is_floating_point() and seed % 2 else None
    got = gemm(c.a, c.b, out_dtype=out_dtype)
    check(close, got, c, reference_gemm(c.a, c.b))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues(device, close, activation, seed):
    c = case(seed, device)
    bias = values((c.b.shape[1],), torch.float32, c.rng, device) if seed % 3 else None
    alpha = (1.0, 0.5, -0.003)[seed % 3]
    got = gemm(c.a, c.b, bias, activation=activation, alpha=alpha, out_dtype=torch.float32)
    expected = reference_gemm(c.a, c.b, bias, activation=activation, alpha=alpha)
    big = 0.0 if bias is None else bias.abs().max().double().cpu()
    close(got, expected, length=c.a.shape[1] + 16, magnitude=1.2 * abs(alpha) * c.magnitude.cpu() + big)


@pytest.mark.parametrize("seed", range(24))
def test_descriptors_agree_with_pointers(device, seed):
    c = case(seed, device)
    if device == "cuda" and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("TMA needs Hopper")
    sizes = (64, 64, 128 // c.a.element_size()) if device == "cuda" else (32, 32, 32)
    out = torch.int32 if c.a.dtype == torch.int8 else torch.float32
    one, two = (gemm(c.a, c.b, tile=GemmTile(*sizes, 4, 3, 4, d), out_dtype=out) for d in (False, True))
    assert torch.equal(one, two)


@pytest.mark.parametrize("kind", range(6))  # not the types: they differ between this process and the interpreter's
def test_every_tile_of_the_table(device, close, kind, guarded):
    dtype = TYPES[kind % len(TYPES)]
    arch = architecture(torch.empty(1, device=device))
    for tile in CONFIGS.get(arch, CONFIGS["gfx942"])[8 * torch.empty((), dtype=dtype).element_size()]:
        c = case(TYPES.index(dtype), device, sizes=(tile.bm + 1, tile.bn * 2, tile.bk * 2 + 16), plain=True)
        for b in (c.b, c.b.T.contiguous().T):
            check(close, gemm(c.a, b, tile=tile), c, reference_gemm(c.a, b))


def test_infinities_and_nan_pass_through(device):
    a = torch.ones(3, 40, device=device)
    a[0, 3], a[1, 4] = float("inf"), float("nan")
    got = gemm(a, torch.ones(40, 5, device=device))
    assert torch.isinf(got[0]).all() and torch.isnan(got[1]).all() and bool((got[2] == 40).all())
    assert torch.isnan(gemm(a, torch.ones(40, 5, device=device), activation="relu")[1]).all()


def test_empty(device):
    bias = torch.arange(4.0, device=device)
    assert gemm(torch.ones(0, 3, device=device), torch.ones(3, 4, device=device)).shape == (0, 4)
    assert torch.equal(gemm(torch.ones(2, 0, device=device), torch.ones(0, 4, device=device), bias), bias.expand(2, 4))


ONE = torch.ones


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (lambda d: (ONE(2, 3, device=d), ONE(4, 5, device=d)), "b has shape"),
        (lambda d: (ONE(3, device=d), ONE(3, 5, device=d)), "a has shape"),
        (
            lambda d: (ONE(2, 3, device=d, dtype=torch.float64), ONE(3, 5, device=d, dtype=torch.float64)),
            "a is float64",
        ),
        (lambda d: (ONE(2, 3, device=d), ONE(3, 5, device=d, dtype=torch.float16)), "b is float16"),
        (lambda d: (ONE(2, 3, device=d), ONE(3, 5, device=d), ONE(4, device=d)), "bias has shape"),
        (lambda d: (ONE(2, 3, device=d), ONE(3, 5, device="meta")), "on one device"),
        (lambda d: (ONE(2, 3, device="meta"), ONE(3, 5, device="meta")), "meta"),
    ],
)
def test_errors_before_launch(device, arguments, text):
    gemm(ONE(2, 3, device=device), ONE(3, 5, device=device))  # what is remembered of it lets no bad call pass
    with pytest.raises(ValueError, match=text):
        gemm(*arguments(device))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"activation": "tanh"}, "tanh"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"alpha": float("inf")}, "alpha=inf"),
        ({"alpha": 1e39}, "alpha=1e\\+39"),  # infinite in fp32
        ({"out_dtype": torch.float64}, "out is float64"),
        ({"out_dtype": torch.int32}, "out is int32"),
    ],
)
def test_wrong_options(device, options, text):
    arguments = ONE(2, 3, device=device), ONE(3, 5, device=device)
    gemm(*arguments)
    with pytest.raises(ValueError, match=text):
        gemm(*arguments, **options)


def test_cpu_without_the_interpreter():
    with pytest.raises(ValueError, match="TRITON_INTERPRET"):
        gemm(ONE(2, 3), ONE(3, 5))


def dealt(tile, m, n, k, units):
    """Return the cycles until every workgroup has been dealt to a compute unit, all that fit at a time, and is done."""
    left, cycles = -(-m // tile.bm) * -(-n // tile.bn), 0.0
    while left > 0:
        together = min(len(tile.cycles), -(-left // units))
        start, step = tile.cycles[together - 1]
        cycles, left = cycles + start + step * k / 64, left - units * len(tile.cycles)
    return cycles


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_the_tile_is_the_one_with_which_the_gpu_is_done_first(bits):
    for m, n, k in itertools.product((96, 256, 1000, 4096, 8192), (1280, 4096, 5120, 55296), (1024, 8192)):
        tile = pick_gemm_tile(m, n, bits, "gfx942", 304, k=k)
        needed = {t: dealt(t, m, n, k, 304) for t in CONFIGS["gfx942"][bits]}
        least = min(needed.values())
        assert needed[tile] <= 1.05 * least, (m, n, k)
        loads = [1 / t.bm + 1 / t.bn for t, its in needed.items() if its <= 1.05 * least]
        assert 1 / tile.bm + 1 / tile.bn == min(loads), "of those about as fast, the one that loads least"


@pytest.mark.skipif(triton.__version__[:4] != "3.9.", reason="the table's cycles are those of Triton 3.9's code")
def test_cycles_of_a_tile_are_those_of_its_machine_code():
    tile = CONFIGS["gfx942"][16][-2]
    assert cycles(tile, torch.bfloat16) == tile.cycles


def test_pick_tile_fills_the_gpu():
    tile = pick_gemm_tile(4096, 4096, 16, "gfx942", 304)
    assert (tile.bm, tile.bn) == (256, 256) and pick_gemm_tile(1, 1, 16, "gfx942", 304) in CONFIGS["gfx942"][16]
    # 43 x 32 tiles of 128 are more even over 304 units than 688 of 256, which are faster all the same.
    assert {pick_gemm_tile(4096, 11008, bits, "gfx942", 304, k=4096).bm for bits in (16, 8)} == {256}
    # Masks along K spill where a tile is 128 bytes deep.
    assert [pick_gemm_tile(8192, 8192, 16, "gfx942", 304, k=k).bk for k in (8192, 8224, 8200)] == [64, 32, 32]
    assert pick_gemm_tile(8192, 8192, 8, "gfx942", 304, k=8200).bk == 64
    upright = pick_gemm_tile(8192, 8192, 16, "sm_90", 132, weight=True)
    assert (upright.bm, upright.bn) == (256, 128) and pick_gemm_tile(8192, 8192, 16, "sm_90", 132).bn == 256
    with pytest.raises(ValueError, match="64 bits"):
        pick_gemm_tile(1, 1, 64, "gfx942", 304)


@triton.jit
def numbers(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr, XCDS: tl.constexpr):
    row, col = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    tl.store(out_ptr + tl.program_id(0) * 2, row)
    tl.store(out_ptr + tl.program_id(0) * 2 + 1, col)


def test_the_walk_in_python_is_that_of_the_kernel(device):
    for m, n, group, xcds in ((3, 5, 1, 1), (7, 4, 3, 1), (9, 9, 8, 8), (1, 20, 8, 8), (13, 2, 4, 8), (2, 2, 8, 8)):
        out = torch.full((m * n, 2), -1, dtype=torch.int32, device=device)
        numbers[(m * n,)](out, m, n, GROUP=group, XCDS=xcds)
        tiles = {"BM": 1, "BN": 1, "GROUP": group, "XCDS": xcds}
        walk = Rung("", None, tiles, "walk").order(m, n)
        assert [tuple(t) for t in out.tolist()] == walk
        assert sorted(walk) == [(i, j) for i in range(m) for j in range(n)], "every tile once"
