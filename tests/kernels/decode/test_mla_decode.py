# SPDX-License-Identifier: MIT
"""Latent attention against the naive and the absorbed form in float64, on the GPU or in the interpreter."""

from __future__ import annotations

import re

import pytest
import torch

from rocm_guide.kernels.cases import mla_decode_cases
from rocm_guide.kernels.mla_decode import MLA_CONFIGS, launch_mla, mla_decode, reference_mla_decode
from rocm_guide.kernels.mla_prefill import reference_mla_naive

HALF = torch.float16
#: batch, keys, heads, D, R, C, parts
SHAPES = [
    (1, 1, 1, 16, 16, 16, None),
    (2, 17, 16, 64, 32, 64, 2),
    (1, 33, 3, 24, 8, 40, 3),  # nothing is a power of two
    (3, 40, 20, 16, 16, 32, None),  # heads in more than one tile
    (1, 29, 8, 128, 64, 256, 2),
]


def inputs(batch, keys, heads, d, r, c, dtype, device, v=None, joined=False):
    gen = torch.Generator().manual_seed(0)
    sizes = [(batch, heads, d), (batch, heads, r), (batch, keys, c), (batch, keys, r), (heads, d + (v or d), c)]
    made = [torch.randn(*size, generator=gen) for size in sizes]
    made[4] *= d**-0.5  # so that scores stay near 1
    q, q_pe, kv, pe, w = (x.to(device, dtype) for x in made)
    if joined:
        cache = torch.cat([kv, pe], dim=-1)
        kv, pe = cache[..., :c], cache[..., c:]
    return q, q_pe, kv, pe, w


def check(out, args, lengths=None, scale=None):
    """Rounded to 16 bits on the way: the absorbed query, p, the summed latent, the output."""
    args = [x.double().cpu() for x in args]
    lengths = None if lengths is None else lengths.cpu()
    expected = reference_mla_decode(*args, lengths, scale)
    one = [x[:, None] for x in args[:2]]
    naive = reference_mla_naive(*one, *args[2:], lengths=lengths, scale=scale)[:, 0]
    assert torch.allclose(expected, naive, atol=1e-9)
    # Sizes: what each rounding of one part in 2^11 (2^8) can move, with every term at its largest.
    unit = torch.finfo(out.dtype).eps / 2
    q, q_pe, kv, _, w = (x.abs() for x in args)
    d = q.shape[-1]
    latent = torch.einsum("bhd,hdc->bhc", args[0], args[4][:, :d]).abs()
    factor = (d + q_pe.shape[-1]) ** -0.5 if scale is None else scale
    score = unit * torch.einsum("bhc,btc->bht", latent, kv).amax(-1, keepdim=True) * abs(factor)
    size = torch.einsum("bhc,hdc->bhd", kv.amax(1)[:, None].expand(-1, w.shape[0], -1), w[:, d:])
    allowed = size * (2 * unit + 2 * score + 2.0**-18) + 2 * unit * expected.abs()
    error = (out.double().cpu() - expected).abs()
    assert out.shape == expected.shape
    assert bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g} times the allowed error"
    limit = (0.02 if out.dtype == HALF else 0.15) * max(1.0, float(expected.abs().max()))
    assert float(error.max()) <= limit  # the bound above is for the worst case; in practice it is far less


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device, shape):
    *sizes, parts = shape
    args = inputs(*sizes, HALF, device)
    check(mla_decode(*args, parts=parts), args)


def test_one_cache_and_other_value_size(device):
    """Latents and rotary keys as slices of one cache; values smaller than keys."""
    args = inputs(2, 30, 4, 32, 16, 64, HALF, device, v=24, joined=True)
    check(mla_decode(*args, parts=2), args)


def test_uneven_lengths(device):
    q, q_pe, kv, pe, w = inputs(4, 50, 4, 32, 16, 64, HALF, device)
    lengths = torch.tensor([50, 17, 1, 0], device=device)
    for b, n in enumerate([50, 17, 1, 0]):
        kv[b, n:], pe[b, n:] = float("nan"), float("nan")
    out = mla_decode(q, q_pe, kv, pe, w, lengths=lengths, parts=3)
    assert bool((out[3] == 0).all())
    check(out, (q, q_pe, kv.nan_to_num(), pe.nan_to_num(), w), lengths)


@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_scale(device, scale):
    args = inputs(1, 20, 2, 32, 16, 32, HALF, device)
    check(mla_decode(*args, scale=scale), args, scale=scale)


GUARD = 512


def inside_nan(x):
    """``x`` in the middle of a piece of memory that is NaN before and behind it."""
    memory = torch.full((x.numel() + 2 * GUARD,), float("nan"), dtype=x.dtype, device=x.device)
    memory[GUARD:-GUARD] = x.flatten()
    return memory[GUARD:-GUARD].view(x.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_outside_is_touched(device, monkeypatch, shape):
    """NaN around every input would show in the result; what lies around every output is the same afterwards."""
    made = []

    def empty(size, dtype, device):
        memory = torch.full((torch.Size(size).numel() + 2 * GUARD,), 7.0, dtype=dtype, device=device)
        made.append(memory)
        return memory[GUARD:-GUARD].view(size)

    *sizes, parts = shape
    q, q_pe, kv, pe, w = (inside_nan(x) for x in inputs(*sizes, HALF, device))
    d, tiles = q.shape[-1], MLA_CONFIGS["sm_90"] if device == "cuda" else {}
    latent = inside_nan(torch.einsum("bhd,hdc->bhc", q, w[:, :d]))
    for config in (None, *({rows: tile._replace(least=64)} for rows, tile in tiles.items())):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", empty)
            patch.setattr(torch, "empty_like", lambda x: empty(x.shape, x.dtype, x.device))
            summed = launch_mla(latent, q_pe, kv, pe, None, (d + pe.shape[-1]) ** -0.5, parts, config)
        assert bool(summed.isfinite().all()) and len(made) >= 2
        for memory in made:
            assert bool((memory[:GUARD] == 7).all()) and bool((memory[-GUARD:] == 7).all())
        check(torch.einsum("bhc,hdc->bhd", summed, w[:, d:]), (q, q_pe, kv, pe, w))


def test_on_a_gpu(device):
    if device != "cuda":
        pytest.skip("sizes for a GPU")
    for dtype in (HALF, torch.bfloat16):
        for batch, keys, heads in ((1, 32768, 128), (16, 4097, 16), (3, 777, 128), (20, 63, 8)):
            args = inputs(batch, keys, heads, 128, 64, 512, dtype, device, joined=True)
            lengths = torch.randint(1, keys + 1, (batch,), device=device)
            out = mla_decode(*args, lengths=lengths)
            expected = reference_mla_decode(*(x.double() for x in args), lengths)
            error = (out.double() - expected).abs().max() / expected.abs().max()
            assert float(error) < (4e-3 if dtype == HALF else 3e-2), (dtype, batch, keys, heads, float(error))


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (0, torch.zeros(1, 2, 16), "q_nope is float32"),
        (1, torch.zeros(1, 3, 8, dtype=HALF), "q_pe has shape (1, 3, 8): give (1, 2, any)"),
        (2, torch.zeros(2, 5, 32, dtype=HALF), "kv has shape (2, 5, 32): give (1, any, any)"),
        (3, torch.zeros(1, 5, 9, dtype=HALF), "k_pe has shape (1, 5, 9): give (1, 5, 8)"),
        (4, torch.zeros(2, 16, 32, dtype=HALF), "wkv_b has 16 rows per head"),
        (4, torch.zeros(2, 32, 32, dtype=torch.bfloat16), "wkv_b is bfloat16"),
        (4, torch.zeros(2, 32, 64, dtype=HALF)[..., ::2], "call .contiguous()"),
    ],
)
def test_what_is_refused(index, value, text):
    args = list(inputs(1, 5, 2, 16, 8, 32, HALF, "cpu"))
    args[index] = value
    with pytest.raises(ValueError, match=re.escape(text)):
        mla_decode(*args)


def test_gfx942():
    """Nothing spills, MFMA 16x16, 2 waves per SIMD."""
    import triton

    from cdna.dry_run.driver import dry_run

    if not triton.__version__.startswith("3.9"):
        pytest.skip("register counts are stated for Triton 3.9")
    with dry_run("gfx942", device="meta") as run:
        for _, call in mla_decode_cases():
            call()
    for r in (launch.report for launch in run.launches):
        assert r.launches and r.resources.vgpr_spills == 0 and r.resources.scratch == 0, str(r)
        assert r.occupancy.waves_per_simd >= 2, str(r)
        if r.kernel != "_combine":
            assert r.isa.mfma and all("16x16x16" in op for op in r.isa.mfma)
            assert 128 in r.isa.global_loads, str(r)
