# SPDX-License-Identifier: MIT
"""The fused latent attention of many queries against the naive form in float64, on the GPU or in the interpreter."""

from __future__ import annotations

import re

import pytest
import torch

from rocm_guide.kernels.cases import mla_prefill_cases
from rocm_guide.kernels.mla_prefill import mla_attention, reference_mla_absorbed, reference_mla_naive

HALF = torch.float16
#: batch, queries, keys, heads, D, R, C, V, causal
SHAPES = [
    (1, 1, 1, 1, 16, 16, 16, 16, False),
    (2, 17, 33, 3, 32, 16, 64, 24, False),
    (1, 33, 33, 2, 24, 8, 40, 40, True),
    (1, 20, 45, 2, 16, 16, 32, 16, True),
    (1, 40, 20, 2, 16, 16, 32, 16, True),  # more queries than keys: the first 20 see none
    (1, 19, 37, 2, 128, 64, 256, 128, True),
]


def inputs(batch, queries, keys, heads, d, r, c, v, dtype, device):
    gen = torch.Generator().manual_seed(0)
    made = [torch.randn(batch, queries, heads, n, generator=gen) for n in (d, r)]
    cache = torch.randn(batch, keys, c + r, generator=gen).to(device, dtype)
    w = torch.randn(heads, d + v, c, generator=gen) * d**-0.5
    return (*(x.to(device, dtype) for x in made), cache[..., :c], cache[..., c:], w.to(device, dtype))


def check(out, args, causal, scale=None):
    """Rounded to 16 bits on the way: the absorbed query, p, the summed latent, the output."""
    args = [x.double().cpu() for x in args]
    expected = reference_mla_naive(*args, causal=causal, scale=scale)
    assert torch.allclose(expected, reference_mla_absorbed(*args, causal=causal, scale=scale), atol=1e-9)
    unit = torch.finfo(out.dtype).eps / 2
    q, q_pe, kv, _, w = args
    d = q.shape[-1]
    factor = (d + q_pe.shape[-1]) ** -0.5 if scale is None else scale
    latent = torch.einsum("bshd,hdc->bshc", q, w[:, :d]).abs()
    score = unit * torch.einsum("bshc,btc->bsht", latent, kv.abs()).amax(-1, keepdim=True) * abs(factor)
    size = torch.einsum("bc,hdc->bhd", kv.abs().amax(1), w[:, d:].abs())[:, None]
    allowed = size * (2 * unit + 2 * score + 2.0**-18) + 2 * unit * expected.abs()
    error = (out.double().cpu() - expected).abs()
    assert out.shape == expected.shape
    assert bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g} times the allowed error"
    assert float(error.max()) <= 0.02 * max(1.0, float(expected.abs().max()))  # far less than the worst case


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device, shape):
    *sizes, causal = shape
    args = inputs(*sizes, HALF, device)
    out = mla_attention(*args, causal=causal)
    if causal and sizes[1] > sizes[2]:
        assert bool((out[:, : sizes[1] - sizes[2]] == 0).all())
    check(out, args, causal)


def test_scale_and_strides(device):
    q, q_pe, kv, pe, w = inputs(2, 9, 21, 2, 32, 16, 32, 32, HALF, device)
    wide = torch.stack([q, q], dim=-1)[..., 0]  # stride 2 between features: made contiguous by the wrapper
    check(mla_attention(wide, q_pe, kv, pe, w, scale=0.5), (q, q_pe, kv, pe, w), False, 0.5)
    assert mla_attention(q[:0], q_pe[:0], kv[:0], pe[:0], w).shape == (0, 9, 2, 32)


def test_on_a_gpu(device):
    if device != "cuda":
        pytest.skip("sizes for a GPU")
    for dtype in (HALF, torch.bfloat16):
        for sizes in ((2, 128, 128, 16, 64, 32, 256, 64), (1, 500, 777, 16, 128, 64, 512, 128)):
            for causal in (False, True):
                args = inputs(*sizes, dtype, device)
                expected = reference_mla_absorbed(*(x.double() for x in args), causal=causal)
                error = (mla_attention(*args, causal=causal).double() - expected).abs().max() / expected.abs().max()
                assert float(error) < (4e-3 if dtype == HALF else 3e-2), (dtype, sizes, causal, float(error))


def test_what_is_refused():
    q, q_pe, kv, pe, w = inputs(1, 5, 7, 2, 16, 8, 32, 16, HALF, "cpu")
    with pytest.raises(ValueError, match=re.escape("q_nope has shape (1, 2, 16): give (any, any, any, any)")):
        mla_attention(q[:, 0], q_pe[:, 0], kv, pe, w)
    with pytest.raises(ValueError, match="latents of 600 numbers"):
        mla_attention(q, q_pe, torch.zeros(1, 7, 600, dtype=HALF), pe, torch.zeros(2, 32, 600, dtype=HALF))
    with pytest.raises(ValueError, match="k_pe has shape"):
        mla_attention(q, q_pe, kv, pe[:, :5], w)


def test_gfx942():
    """Nothing spills, MFMA 16x16, 2 waves per SIMD."""
    import triton

    from cdna.dry_run.driver import dry_run

    if not triton.__version__.startswith("3.9"):
        pytest.skip("register counts are stated for Triton 3.9")
    with dry_run("gfx942", device="meta") as run:
        for _, call in mla_prefill_cases():
            call()
    assert len(run.launches) == 3
    for r in (launch.report for launch in run.launches):
        assert r.launches and r.resources.vgpr_spills == 0 and r.resources.scratch == 0, str(r)
        assert r.occupancy.waves_per_simd >= 2, str(r)
        assert r.isa.mfma and all("16x16x16" in op for op in r.isa.mfma) and 128 in r.isa.global_loads_in_loops
