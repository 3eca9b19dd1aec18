# SPDX-License-Identifier: MIT
"""Skinny GEMM against float64; workspaces, repeatability, errors before launch."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.gemm_skinny import (
    CONFIGS,
    SHAPES,
    SkinnyTile,
    SkinnyWorkspace,
    architecture,
    gemm_skinny,
    pick_split,
    reference_skinny,
)
from tests.kernels.gemm.cases import BRAIN, case
from tests.kernels.this_machine import INTERPRETED, eight_bit, seeds

TYPES = [torch.float16, *eight_bit(), *BRAIN]
DEPTHS = (1, 5, 16, 32, 64, 100, 128, 256, 257, 300)


@pytest.mark.parametrize("seed", seeds(216))
def test_random_products(device, close, seed, guarded):
    depths = DEPTHS if device == "cpu" else (*DEPTHS, 500, 512, 1000, 2048, 4096, 4100)
    c = case(seed, device, types=TYPES, sizes=depths, most_rows=32, plain=True)
    x, weight = c.a, c.b.T.contiguous()
    if seed % 4 == 3 and x.shape[1] > 16:  # rows that are further apart than they are long
        x, weight = x[:, : x.shape[1] - 16], weight[:, : x.shape[1] - 16]
        c.a, c.b = x, weight.T
    sx, sw = c.rng.choice((1.0, 0.01, -3.0)), c.rng.choice((1.0, 0.5, 1e-4))
    out_dtype = torch.float32 if INTERPRETED or seed % 2 else torch.bfloat16
    tile = CONFIGS.get(architecture(x), CONFIGS["gfx942"])[8 * x.element_size()]
    if (seed // 5) % 2:  # no sums in the matrix unit: the tight tolerance
        tile, c.full_sums = tile._replace(exact=0), True
    got = gemm_skinny(x, weight, sx, sw, out_dtype=out_dtype, tile=tile)
    close(got, reference_skinny(x, weight, sx, sw), length=x.shape[1] + 8, magnitude=abs(sx * sw) * c.magnitude)


@pytest.mark.parametrize("groups", [1, 3, 9, 40])
def test_one_workspace_for_many_calls(device, close, groups):
    dtype = torch.float16
    space = SkinnyWorkspace.on(device, 1 << 18, 64)
    space.partials.fill_(float("nan"))
    sizes, repeats = ((70, 300), 2) if device == "cpu" else ((200, 1000), 3)
    for seed in range(repeats + 1):
        c = case(seed, device, types=[dtype], sizes=sizes, most_rows=32, plain=True)
        tile = SkinnyTile(64, 32, 4, 2, groups)
        weight = c.b.T.contiguous()
        results = [
            gemm_skinny(c.a, weight, workspace=space, tile=tile, out_dtype=torch.float32) for _ in range(repeats)
        ]
        close(results[0], reference_skinny(c.a, weight), length=c.a.shape[1], magnitude=c.magnitude)
        assert all(torch.equal(results[0], r) for r in results[1:]), "not repeatable"
        assert not space.counters.any(), "a counter was left raised"


@pytest.mark.parametrize("bits", [0x7E00, 0xFE00, 0xFFFF])  # quiet NaNs of fp16, the last with all bits set
def test_parts_that_are_nan_arrive(device, bits):
    x, weight = torch.ones(3, 256, dtype=torch.float16, device=device), torch.ones(40, 256, device=device).half()
    weight[7, 5] = torch.tensor(bits - (1 << 16) if bits >> 15 else bits, dtype=torch.int16).view(torch.float16)
    got = gemm_skinny(x, weight, tile=SkinnyTile(32, 32, 4, 2, 99))
    assert got[:, 7].isnan().all() and (got[:, :7] == 256).all() and (got[:, 8:] == 256).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [8, 16])
def test_enough_workgroups_on_mi300x(shape, bits):
    n, k = shape
    tile = CONFIGS["gfx942"][bits]
    assert pick_split(n, k, tile, 304) * -(-n // tile.bn) >= 304


@pytest.mark.parametrize("groups", [0.01, 99])
def test_a_call_makes_and_clears_what_it_needs(device, groups):
    tile = SkinnyTile(32, 32, 4, 2, groups)
    x = torch.ones(4, 64, dtype=torch.float16, device=device)
    for n in (90, 900, 90):
        assert (gemm_skinny(x, torch.ones(n, 64, device=device).half(), tile=tile) == 64).all()


def test_no_more_parts_than_steps():
    tile = SkinnyTile(32, 256, 4, 4, 99)
    assert [pick_split(64, k, tile, 132) for k in (1, 256, 257, 1000, 1024)] == [1, 1, 2, 4, 4]


@pytest.mark.parametrize(
    ("x", "weight", "options", "text"),
    [
        ((33, 64), (16, 64), {}, "33 rows"),
        ((0, 64), (16, 64), {}, "0 rows"),
        ((4, 64), (16, 65), {}, "weight has shape"),
        ((4, 64), (16, 64), {"scale_x": float("nan")}, "scale_x=nan"),
        ((4, 64), (16, 64), {"scale_w": float("inf")}, "scale_w=inf"),
        ((4, 64), (16, 64), {"scale_x": 1e30, "scale_w": 1e30}, r"scale_x \* scale_w=1\S*e\+60"),
        ((4, 64), (16, 64), {"scale_w": torch.ones(1)}, "scale_w=tensor"),
        ((4, 64), (16, 64), {"out_dtype": torch.int8}, "out is int8"),
    ],
)
def test_errors_before_launch(device, x, weight, options, text):
    x, weight = (torch.ones(s, dtype=torch.float16, device=device) for s in (x, weight))
    gemm_skinny(*(torch.ones(s, dtype=torch.float16, device=device) for s in ((4, 64), (16, 64))))
    with pytest.raises(ValueError, match=text):
        gemm_skinny(x, weight, **options)


def test_errors_of_types_strides_and_workspace(device):
    x, weight = torch.ones(4, 64, dtype=torch.float16, device=device), torch.ones(90, 64, device=device).half()
    gemm_skinny(x, weight)  # what is remembered of it lets no bad call pass
    for args, text in (
        ((x.float(), weight), "x is float32"),
        ((x, weight.float()), "weight is float32"),
        ((x, torch.ones(64, 90, device=device).half().T), "weight has stride"),
        ((x, weight.to("meta")), "on one device"),
    ):
        with pytest.raises(ValueError, match=text):
            gemm_skinny(*args)
    room = torch.ones(1 << 16, device=device)
    elsewhere = SkinnyWorkspace(room, torch.zeros(64, dtype=torch.int32, device="meta"))
    with pytest.raises(ValueError, match="counters is on meta"):
        gemm_skinny(x, weight, workspace=elsewhere)
    with pytest.raises(ValueError, match="workspace is too small"):
        gemm_skinny(x, weight, workspace=SkinnyWorkspace.on(device, 1, 1), tile=SkinnyTile(32, 32, 4, 2, 9))
    one_part = SkinnyTile(32, 64, 4, 2, 0.01)  # puts nothing anywhere
    assert gemm_skinny(x, weight, workspace=SkinnyWorkspace.on(device, 0, 0), tile=one_part).shape == (4, 90)
    assert torch.equal(gemm_skinny(x[:, :0], weight[:, :0]), torch.zeros(4, 90, device=device).bfloat16())
    assert gemm_skinny(x, weight[:0]).shape == (4, 0)
