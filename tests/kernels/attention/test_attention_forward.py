# SPDX-License-Identifier: MIT
"""Attention, forward, against float64: on the GPU, or in the interpreter at small sizes."""

from __future__ import annotations

import itertools
import os
import re

import pytest
import torch

from rocm_guide.kernels.attention import Tile, attention_forward, reference_attention
from rocm_guide.kernels.cases import attention_cases

HALF, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: batch, heads, KV heads, queries, keys, head size
SHAPES = [
    (1, 1, 1, 1, 1, 16),
    (1, 2, 1, 20, 34, 32),  # the diagonal ends one key short of a tile of 16: a mask too few would show
    (2, 2, 1, 17, 17, 16),
    (1, 2, 2, 33, 1, 32),
    (1, 4, 1, 1, 47, 64),
    (2, 4, 2, 31, 50, 72),
    (1, 2, 2, 50, 31, 80),
    (1, 3, 1, 35, 35, 96),
    (1, 2, 1, 19, 40, 112),
    (1, 2, 2, 37, 45, 128),
    (1, 1, 1, 21, 33, 256),
    (2, 2, 2, 9, 13, 1),
    (1, 6, 2, 18, 30, 40),
    # and a head size of the values: keys in two blocks, with ends in either or both; in one; wider values
    (1, 2, 1, 20, 34, 192, 128),
    (2, 4, 2, 33, 17, 96, 64),
    (1, 2, 1, 19, 35, 40, 16),
    (1, 2, 2, 18, 20, 200, 100),
    (1, 2, 1, 21, 20, 17, 1),
    (1, 2, 1, 17, 33, 72, 80),
    (1, 2, 1, 17, 33, 24, 72),
]
#: Shapes at which several tiles, ragged ends and every code path of a tuned configuration are met; GPU only.
LARGE = [
    (2, 8, 8, 1024, 1024, 128),
    (1, 8, 2, 1023, 1023, 64),
    (2, 4, 1, 113, 211, 64),
    (2, 4, 4, 128, 217, 128),
    (1, 4, 2, 108, 256, 128),
    (1, 4, 2, 256, 512, 128),
    (1, 2, 1, 256, 382, 128),  # the diagonal ends one key short of a tile of 128, and of 64
    (2, 4, 2, 512, 256, 96),
    (1, 2, 1, 1024, 1023, 80),
    (1, 2, 2, 1023, 1024, 72),
    (1, 2, 1, 2048, 2048, 112),
    (1, 2, 2, 799, 3131, 256),
    (1, 8, 1, 1, 4097, 128),
    (4, 3, 1, 113, 203, 256),
    (1, 2, 2, 3, 799, 32),
    (2, 2, 1, 64, 128, 16),
    (2, 8, 8, 1024, 1024, 192, 128),
    (2, 4, 2, 113, 211, 192, 128),
    (1, 4, 2, 256, 382, 96, 64),
]


def problem(shape, dtype, device, size=1.0, seed=0):
    batch, heads, kv_heads, rows, keys, width, *values = shape
    gen = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, rows, width, generator=gen) * size
    k, v = (torch.randn(batch, kv_heads, keys, n, generator=gen) for n in (width, *(values or [width])))
    return tuple(x.to(device, dtype) for x in (q, k, v))


def check(actual, lse, q, k, v, dtype=None, **options):
    """p is rounded to the type of v once (absolutely to 2^-25 when small in fp16), the output once more."""
    q, k, v = (x.detach().double() for x in (q, k, v))
    expected, expected_lse = reference_attention(q, k, v, **options)
    size, _ = reference_attention(q, k, v.abs(), **options)
    keys, group = k.shape[2], q.shape[1] // k.shape[1]
    scale = q.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]
    products = q.abs() @ k.abs().repeat_interleave(group, 1).mT
    score = (products.amax((-1, -2), keepdim=True) if keys else products.new_zeros(1, 1, 1, 1)) * scale
    if options.get("bias") is not None:
        score = score + options["bias"].double().nan_to_num(0, 0, 0).abs().max()
    if options.get("alibi_slopes") is not None:
        score = score + options["alibi_slopes"].double().abs().max() * (keys + q.shape[2])
    dtype = dtype or actual.dtype
    unit = torch.finfo(dtype).eps / 2 if dtype != FP32 else 0.0
    unit *= 2 if INTERPRETED and dtype == BF16 else 1  # the interpreter cuts off where hardware rounds
    small = keys * 2.0**-25 * (v.abs().max() if keys else 0.0) if dtype == HALF else 0.0
    small = small / (1 - options.get("dropout", 0.0))
    allowed = unit * expected.abs() + size * (unit + 2.0**-20 * (1 + score)) + small + 2.0**-25
    assert actual.shape == expected.shape and bool(actual.isfinite().all())
    error = (actual.double() - expected).abs()
    assert bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g} times the allowed error"
    assert bool((lse.isneginf() == expected_lse.isneginf()).all())
    off = (lse.double() - expected_lse).nan_to_num(0.0).abs()
    assert bool((off <= 2.0**-20 * (1 + score[..., 0] + expected_lse.nan_to_num(0, 0, 0).abs())).all()), (
        f"lse off by {float(off.max())}"
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_small(device, shape, causal):
    for dtype in (FP32, HALF) if INTERPRETED else (HALF, BF16):
        q, k, v = problem(shape, dtype, device)
        check(*attention_forward(q, k, v, causal=causal), q, k, v, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large(device, shape, causal):
    if INTERPRETED:
        pytest.skip("too large for the interpreter")
    for dtype in (HALF, BF16):
        q, k, v = problem(shape, dtype, device)
        check(*attention_forward(q, k, v, causal=causal), q, k, v, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("schedule", ["fixed", "dynamic"])
def test_persistent(device, schedule, causal):
    for shape in [(2, 4, 2, 70, 50, 32)] + [(4, 8, 2, 1000, 1100, 128)] * (not INTERPRETED):
        q, k, v = problem(shape, HALF, device)
        check(*attention_forward(q, k, v, causal=causal, schedule=schedule), q, k, v, causal=causal)
        bias = torch.randn(1, 1, q.shape[2], k.shape[2]).to(device, HALF)
        given = {"causal": causal, "bias": bias}
        check(*attention_forward(q, k, v, schedule=schedule, **given), q, k, v, **given)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (25, 50), (50, 20)])
def test_alibi(device, rows, keys, causal):
    sizes = [(rows, keys)] if INTERPRETED else [(rows, keys), (rows * 21, keys * 21)]
    for rows_, keys_ in sizes:
        q, k, v = problem((2, 4, 2, rows_, keys_, 64), HALF, device)
        for slopes in (torch.tensor([0.5, 0.25, 0.02, 0.0]), torch.rand(2, 4)):
            slopes = slopes.to(device)
            check(
                *attention_forward(q, k, v, causal=causal, alibi_slopes=slopes),
                q,
                k,
                v,
                causal=causal,
                alibi_slopes=slopes,
            )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 40, 50), (40, 50), (1, 4, 1, 50), (2, 1, 40, 1)], ids=str)
def test_matrix_bias(device, shape, causal):
    q, k, v = problem((2, 4, 2, 40, 50, 32), HALF, device)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device, HALF)
    check(*attention_forward(q, k, v, causal=causal, bias=bias), q, k, v, causal=causal, bias=bias)


def test_bias_that_masks_a_row(device):
    q, k, v = problem((1, 2, 2, 40, 50, 32), HALF, device)
    bias = torch.zeros(1, 1, 40, 50, device=device)
    bias[..., 7, :] = float("-inf")
    bias[..., 9, :49] = float("-inf")  # one key is left
    out, lse = attention_forward(q, k, v, bias=bias)
    assert bool((out[:, :, 7] == 0).all()) and bool(lse[:, :, 7].isneginf().all())
    check(out, lse, q, k, v, bias=bias)


def test_rows_without_keys(device):
    """Bottom-right causal with more queries than keys: the first ones see nothing."""
    q, k, v = problem((1, 2, 2, 40, 10, 32), HALF, device)
    out, lse = attention_forward(q, k, v, causal=True)
    assert (
        bool((out[:, :, :30] == 0).all())
        and bool(lse[:, :, :30].isneginf().all())
        and bool(lse[:, :, 30:].isfinite().all())
    )


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(("width", "values"), [(64, 64), (72, 60)])  # 60: rows of the output are not multiples of 16 B
def test_layouts_and_strides(device, layout, width, values):
    q, k, v = problem((2, 4, 2, 33, 40, width, values), HALF, device)
    move = (lambda x: x) if layout == "bhsd" else (lambda x: x.transpose(1, 2))
    gaps = [torch.full((*move(x).shape[:-1], 80), float("nan"), dtype=HALF, device=device) for x in (q, k, v)]
    for wide, x in zip(gaps, (q, k, v), strict=True):
        wide[..., : x.shape[3]] = move(x)
    parts = (g[..., : x.shape[3]] for g, x in zip(gaps, (q, k, v), strict=True))
    out, lse = attention_forward(*parts, layout=layout, causal=True)
    assert out.shape == (*move(q).shape[:3], values) and out.is_contiguous()
    check(move(out), lse, q, k, v, causal=True)


def test_expanded_keys(device):
    """Keys and values that are one row, expanded: steps of 0 bytes, which a tensor descriptor cannot take."""
    q, k, v = problem((1, 2, 2, 20, 1, 32), HALF, device)
    k, v = (x.expand(1, 2, 40, 32) for x in (k, v))
    check(*attention_forward(q, k, v, causal=True), q, k, v, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_transposed_values(device, causal):
    shapes = [(2, 4, 2, 33, 48, 64), (1, 2, 1, 18, 24, 40, 16)]
    for shape in shapes + [(2, 4, 2, 500, 700, 128), (1, 2, 2, 513, 513, 72)] * (not INTERPRETED):
        q, k, v = problem(shape, HALF, device)
        stored = v.mT.contiguous()
        check(*attention_forward(q, k, stored.mT, causal=causal), q, k, v, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("alibi", [False, True])
def test_packed_sequences(device, causal, alibi):
    lengths = [(5, 5), (1, 20), (33, 17), (0, 4), (18, 40), (3, 0)]
    if not INTERPRETED:
        lengths += [(500, 700), (257, 129), (1024, 1024)]
    for width, values in ((32, 32), (128, 64)):
        cu = [
            torch.tensor([0, *itertools.accumulate(n)], dtype=torch.int32, device=device)
            for n in zip(*lengths, strict=True)
        ]
        total_q, total_k = int(cu[0][-1]), int(cu[1][-1])
        q, k, v = (
            x.transpose(1, 2)[0]
            for x in problem((1, 4, 2, max(total_q, total_k), max(total_q, total_k), width, values), HALF, device)
        )
        q, k, v = q[:total_q], k[:total_k], v[:total_k]
        slopes = torch.rand(len(lengths), 4, device=device) if alibi else None
        out, lse = attention_forward(
            q, k, v, layout="thd", causal=causal, cu_seqlens_q=cu[0], cu_seqlens_k=cu[1], alibi_slopes=slopes
        )
        assert out.shape == (*q.shape[:2], values) and lse.shape == (4, total_q)
        for n in range(len(lengths)):
            a, b, c, d = (int(x) for x in (cu[0][n], cu[0][n + 1], cu[1][n], cu[1][n + 1]))
            if b > a:
                one = (q[a:b], k[c:d], v[c:d])
                one = [x.transpose(0, 1)[None] for x in one]
                check(
                    out[a:b].transpose(0, 1)[None],
                    lse[None, :, a:b],
                    *one,
                    causal=causal,
                    alibi_slopes=None if slopes is None else slopes[n : n + 1],
                )


@pytest.mark.parametrize("seed", [0, 1, 1234567, (1 << 40) + 5])
def test_dropout_is_the_mask_of_its_seed(device, seed):
    for shape in [(2, 2, 1, 40, 50, 32)] + [(1, 2, 2, 300, 400, 128)] * (not INTERPRETED):
        q, k, v = problem(shape, HALF, device)
        out, lse = attention_forward(q, k, v, causal=True, dropout=0.3, seed=seed)
        check(out, lse, q, k, v, causal=True, dropout=0.3, seed=seed)


def test_dropout_statistics(device):
    """With q = 0 and v = 1 the output is the share of kept keys / (1 - p): mean 1, and the binomial's variance."""
    rows, keys, p = (64, 256, 0.25) if INTERPRETED else (4096, 1024, 0.25)
    q = torch.zeros(1, 2, rows, 16, device=device)
    k, v = (torch.ones(1, 2, keys, 16, device=device) for _ in range(2))
    out = attention_forward(q, k, v, dropout=p, seed=11)[0][..., 0].double()
    sigma = (p / (1 - p) / keys) ** 0.5
    assert abs(out.mean().item() - 1) < 4 * sigma / out.numel() ** 0.5
    assert 0.8 < out.std().item() / sigma < 1.2
    again = attention_forward(q, k, v, dropout=p, seed=11)[0][..., 0].double()
    other = attention_forward(q, k, v, dropout=p, seed=12)[0][..., 0].double()
    assert torch.equal(out, again) and not torch.equal(out, other)
    assert not torch.equal(out[0, 0], out[0, 1])  # heads differ
    plain = attention_forward(q, k, v, dropout=0.0, seed=11)[0]
    assert torch.equal(plain, torch.ones_like(plain))


def test_large_scores(device):
    q, k, v = problem((1, 2, 2, 33, 40, 32), HALF, device, size=40.0)
    check(*attention_forward(q, k, v, causal=True, scale=1.0), q, k, v, causal=True, scale=1.0)


def test_no_queries_and_no_keys(device):
    q, k, v = problem((1, 2, 2, 3, 4, 16), HALF, device)
    out, lse = attention_forward(q[:, :, :0], k, v)
    assert out.shape == (1, 2, 0, 16) and lse.shape == (1, 2, 0)
    out, lse = attention_forward(q, k[:, :, :0], v[:, :, :0])
    assert bool((out == 0).all()) and bool(lse.isneginf().all())


BAD = {
    "layout='hbsd'": {"layout": "hbsd"},
    "scale=-1.0": {"scale": -1.0},
    "dropout=1.0": {"dropout": 1.0},
    "seed=-1": {"dropout": 0.5, "seed": -1},
    "schedule='static'": {"schedule": "static"},
    "alibi_slopes has shape (3,)": {"alibi_slopes": torch.zeros(3)},
    "alibi_slopes is float16": {"alibi_slopes": torch.zeros(2, dtype=HALF)},
    "bias has shape (2, 3)": {"bias": torch.zeros(2, 3)},
    "needs cu_seqlens": {"layout": "thd"},
    "max_seqlen_k=-1": {"layout": "thd", "max_seqlen_k": -1}
    | {f"cu_seqlens_{x}": torch.tensor([0, 2], dtype=torch.int32) for x in "qk"},
}
#: Only seen at the launch, so after the question whether there is a GPU.
BAD_TILES = {
    "tile has n=None": Tile(16, None, 4),
    "tile has m=48": Tile(48, 16, 4),
    "tile has warps='4'": Tile(16, 16, "4"),
}


@pytest.mark.parametrize("message", BAD)
def test_refusals(message):
    x = torch.zeros(1, 2, 4, 16, dtype=HALF)
    x = x[0] if BAD[message].get("layout") == "thd" else x
    with pytest.raises(ValueError) as caught:
        attention_forward(x, x, x, **BAD[message])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_refused_tensors():
    x = torch.zeros(1, 4, 4, 16, dtype=HALF)
    for bad, message in [
        ((x, x[:, :3], x[:, :3]), "4 query heads and 3 KV heads"),
        ((x, x, x[:, :, :2]), "v has shape (1, 4, 2, 16): give (1, 4, 4, any)"),
        ((x, x, torch.zeros(1, 4, 4, 257, dtype=HALF)), "v has head size 257: give 1 to 256"),
        ((x.long(), x, x), "q is int64"),
        ((x, x.float(), x), "k is float32: give float16"),
        ((x.bfloat16(), x.bfloat16(), x), "v is float16: give bfloat16"),
        ((x.mT.contiguous().mT, x, x), "stride"),
        ((torch.zeros(1, 1, 2, 300, dtype=HALF),) * 3, "head size 300"),
        *([] if INTERPRETED else [((x, x, x), "tensors on cpu: move them to a GPU")]),
    ]:
        with pytest.raises(ValueError) as caught:
            attention_forward(*bad)
        assert message in str(caught.value)


@pytest.mark.parametrize("message", BAD_TILES)
def test_refused_tiles(device, message):
    q, k, v = problem((1, 2, 2, 20, 20, 16), HALF, device)
    with pytest.raises(ValueError, match=message):
        attention_forward(q, k, v, tile=BAD_TILES[message])


def test_gfx942():
    """No spills, the tile's MFMA, 2 waves per SIMD, 128-bit loads; test_resource_table.py compiles the rows again."""
    from course.resource_table import read_rows

    rows = [r for r in read_rows()[1] if r.case.startswith("attention: forward,")]
    assert len(rows) == sum(label.startswith("forward,") for label, _ in attention_cases())
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 2 and r.lds <= 65_536, r
        head = int(re.findall(r"heads of (\d+)", r.case)[0])
        large = 64 < head <= 128 and not r.case.endswith(("matrix", "dropout"))
        shape = "32x32x8" if large else "16x16x16"
        assert r.mfma != "-" and all(shape in op for op in r.mfma.split(",")), r
        widths = {int(w.split("x")[0]) for w in r.loop_loads.split(",")}
        # Rows of 16 numbers are too short for 64 lanes to take 8 each.
        assert widths == ({64} if "heads of 16," in r.case else {128}), r
