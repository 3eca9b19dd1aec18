# SPDX-License-Identifier: MIT
"""Integer caches and pages against float64, on the GPU or in the interpreter; the bounds of quantisation."""

from __future__ import annotations

import re

import pytest
import torch

from rocm_guide.kernels.cases import decode_int4_cases, paged_cases
from rocm_guide.kernels.decode import reference_attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int as decode_int
from rocm_guide.kernels.decode_int4 import dequantize_kv, quantize_kv, unpack_grid
from rocm_guide.kernels.paged import attention_paged as paged
from rocm_guide.kernels.paged import reference_attention_paged

HALF = torch.float16


def normal(*shape, seed=0, size=1.0, shift=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * size + shift


def rounding(q, k, v, lengths=None):
    """Allowed error of the kernel itself against float64 over the same (dequantised) cache."""
    k, v, q = (x.double().cpu() for x in (k, v, q))
    lengths = None if lengths is None else lengths.cpu()
    scale = q.shape[-1] ** -0.5
    expected = reference_attention_decode(q, k, v, lengths, scale)
    # Codes are centred: what is rounded is p * (v - shift), never larger than the spread of a row of v.
    size = v.abs().amax(-1, keepdim=True).expand_as(v).contiguous()
    size = reference_attention_decode(q, k, size, lengths, scale)
    score = torch.einsum("bhd,bnhd->bhn", q.abs(), k.abs().repeat_interleave(q.shape[1] // k.shape[2], 2)) * scale
    return expected, 2 * size * (2.0**-11 + 2.0**-20 * (1 + score.amax(-1, keepdim=True))) + 2.0**-11 * expected.abs()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [1.0, 1e-3, 300.0])
def test_quantisation_bound(bits, size):
    """Half a scale for every number; the scale is the row's spread over 254 or 15, to within 0.3 %."""
    x = normal(3, 17, 2, 80, size=size, shift=size)
    x[0, 0] = 0.0
    x[0, 1] = 5 * size
    codes, grid = quantize_kv(x, bits)
    back = dequantize_kv(codes, grid)
    groups = 2 if bits == 4 else 1
    fitted = unpack_grid(grid)[0].permute(1, 3, 2, 0)
    scale = fitted.repeat_interleave(80 // groups, dim=-1)
    assert bool(((x - back).abs() <= scale / 2 * (1 + 1e-4) + 1e-6 * x.abs()).all())
    spread = x.unflatten(-1, (groups, -1)).amax(-1) - x.unflatten(-1, (groups, -1)).amin(-1)
    mid_rounding = x.abs().amax() * 2.0**-11
    limit = (spread / 2 + mid_rounding) / (127 if bits == 8 else 7.5) * 1.003
    assert bool((fitted <= limit.clamp(min=2.0**-14)).all())


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 1, 16, 1),
        (2, 33, 8, 2, 64, 3),
        (1, 65, 6, 2, 80, None),
        (1, 47, 5, 1, 72, 2),
        (1, 40, 7, 7, 112, 2),
        (1, 70, 4, 1, 128, 4),
        (1, 21, 2, 1, 256, 2),
        (1, 20, 20, 1, 96, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("bits", [8, 4])
def test_decode_int(device, shape, bits):
    batch, keys, q_heads, heads, width, parts = shape
    q = normal(batch, q_heads, width, seed=1).to(device, HALF)
    x, y = normal(batch, keys, heads, width, shift=0.5), normal(batch, keys, heads, width, seed=2, shift=-0.3)
    (k, k_grid), (v, v_grid) = (quantize_kv(t.to(device), bits) for t in (x, y))
    out = decode_int(q, k, v, k_grid, v_grid, parts=parts)
    expected, allowed = rounding(q, dequantize_kv(k, k_grid), dequantize_kv(v, v_grid))
    error = (out.double().cpu() - expected).abs()
    assert bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g} times the allowed error"


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1000.0])
def test_scales_of_any_size(device, bits, size):
    """Tokens whose values differ by a factor of a million: the reference point keeps p * scale in fp16's range."""
    q = normal(1, 4, 64, seed=1).to(device, HALF)
    x, y = normal(1, 90, 2, 64), normal(1, 90, 2, 64, seed=2) * size
    y[:, ::3] *= 1e-3
    y[:, 1::7] *= 0.0
    (k, k_grid), (v, v_grid) = (quantize_kv(t.to(device), bits) for t in (x, y))
    out = decode_int(q, k, v, k_grid, v_grid, parts=2)
    expected, allowed = rounding(q, dequantize_kv(k, k_grid), dequantize_kv(v, v_grid))
    assert bool(((out.double().cpu() - expected).abs() <= allowed + 2.0**-25).all())


@pytest.mark.parametrize("bits", [8, 4])
def test_small_values_under_a_large_score(device, bits):
    """One key takes nearly all weight and its value is 0; what is left has p = 2^-9 and scales of 1e-4 to 1e-3.

    Their product is far below what fp16 resolves. It must not be rounded before it is measured against a good point.
    """
    q, keys, values = torch.zeros(1, 1, 64), torch.zeros(1, 40, 1, 64), normal(1, 40, 1, 64, seed=2, size=5e-3)
    q[..., 0], keys[:, 7, :, 0], values[:, 7] = 8.0, 6.24, 0.0  # a score of 6.24 = 9 ln 2
    (k, k_grid), (v, v_grid) = (quantize_kv(t.to(device), bits) for t in (keys, values))
    out = decode_int(q.to(device, torch.bfloat16 if device == "cuda" else HALF), k, v, k_grid, v_grid, parts=1)
    expected = reference_attention_decode(
        q.double(), *(dequantize_kv(*x).double().cpu() for x in ((k, k_grid), (v, v_grid)))
    )
    error = (out.double().cpu() - expected).abs().max() / expected.abs().max()
    assert float(error) < (1e-2 if device == "cuda" else 2e-3)


@pytest.mark.parametrize("bits", [8, 4])
def test_against_the_unquantised_cache(device, bits):
    """The stated bound: half the scale of v, and a score error of sum|q| * half the scale of k."""
    q = normal(2, 4, 64, seed=1).to(device, HALF)
    x, y = normal(2, 100, 2, 64), normal(2, 100, 2, 64, seed=2)
    (k, k_grid), (v, v_grid) = (quantize_kv(t.to(device), bits) for t in (x, y))
    out = decode_int(q, k, v, k_grid, v_grid).double().cpu()
    expected = reference_attention_decode(q.double().cpu(), x.double(), y.double())
    e = float(q.double().abs().sum(-1).max() * 64**-0.5 * unpack_grid(k_grid)[0].double().max() / 2)
    v_error = float(unpack_grid(v_grid)[0].double().max() / 2)
    # exp(s + e) / sum exp(s - e): every weight is off by a factor between exp(-2e) and exp(2e).
    moved = (torch.tensor(2 * e).exp() - 1) * reference_attention_decode(q.double().cpu(), x.double(), y.double().abs())
    error = (out - expected).abs()
    assert bool((error <= moved + v_error + 2e-3).all())
    assert float(error.max()) < (0.02 if bits == 8 else 0.25)  # and in practice


def make_pages(x, lengths, page, seed=3):
    """Scatter (batch, keys, heads, width) into a shuffled pool; unused table entries point outside the pool."""
    batch, keys = x.shape[:2]
    width = -(-keys // page)
    order = torch.randperm(batch * width, generator=torch.Generator().manual_seed(seed)).reshape(batch, width)
    pool = torch.full((batch * width, page, *x.shape[2:]), float("nan"))
    table = torch.full((batch, width), 1 << 30, dtype=torch.int32)
    for b in range(batch):
        for n in range(int(lengths[b])):
            pool[order[b, n // page], n % page] = x[b, n]
            table[b, n // page] = order[b, n // page]
    return pool, table


@pytest.mark.parametrize("page", [16, 1, 7, 64])
def test_pages(device, page):
    """Uneven block tables: full, partly filled, one key, none. What is not in use is NaN or points nowhere."""
    lengths = torch.tensor([50, 33, 1, 0], dtype=torch.int32)
    x, y = normal(4, 50, 2, 32), normal(4, 50, 2, 32, seed=2)
    (k, table), (v, _) = (make_pages(t.to(HALF).float(), lengths, page) for t in (x, y))
    q = normal(4, 4, 32, seed=1).to(device, HALF)
    table, lengths = table.to(device), lengths.to(device)
    k, v = k.to(device, HALF), v.to(device, HALF)
    out = paged(q, k, v, table, lengths, parts=3)
    assert bool((out[3] == 0).all())
    expected = reference_attention_paged(q.double(), k.nan_to_num(), v.nan_to_num(), table, lengths).cpu()
    assert float((out.double().cpu() - expected).abs().max()) < 4e-3
    assert float(expected[0].abs().max()) > 0.05


def test_pages_on_a_gpu(device):
    if device != "cuda":
        pytest.skip("sizes for a GPU")
    for dtype in (HALF, torch.bfloat16):
        for page in (16, 48, 256):
            lengths = torch.tensor([3000, 1, 1777, 0, 2999], dtype=torch.int32, device=device)
            pool = torch.randn(5 * -(-3000 // page), page, 8, 128, device=device, dtype=dtype)
            table = torch.randperm(pool.shape[0], device=device).int().reshape(5, -1)
            q = torch.randn(5, 32, 128, device=device, dtype=dtype)
            out = paged(q, pool, pool.flip(0), table, lengths)
            expected = reference_attention_paged(q.double(), pool, pool.flip(0), table, lengths)
            assert float((out.double() - expected).abs().max()) < (2e-3 if dtype == HALF else 1.6e-2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"table": torch.zeros(2, 3)}, "table is float32"),
        ({"table": torch.zeros(1, 3, dtype=torch.int32)}, "table has shape (1, 3): give (2, any)"),
        ({"lengths": torch.zeros(3, dtype=torch.int32)}, "lengths has shape (3,): give (2,)"),
        ({"lengths": None}, "lengths is None"),
        ({"k_pages": torch.zeros(9, 16, 2, 32)}, "k_pages is float32: give float16"),
        ({"k_pages": torch.zeros(9, 0, 2, 32, dtype=HALF), "v_pages": torch.zeros(9, 0, 2, 32, dtype=HALF)}, "0 keys"),
    ],
)
def test_what_paged_refuses(change, text):
    pool = torch.zeros(9, 16, 2, 32, dtype=HALF)
    table, lengths = torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    arguments = {"q": torch.zeros(2, 4, 32, dtype=HALF), "k_pages": pool, "v_pages": pool.clone(), "table": table}
    arguments |= {"lengths": lengths} | change
    with pytest.raises(ValueError, match=re.escape(text)):
        paged(**arguments)


def test_what_int_refuses():
    q = torch.zeros(1, 2, 32, dtype=HALF)
    codes, grid = quantize_kv(torch.zeros(1, 5, 1, 32), 8)
    with pytest.raises(ValueError, match=re.escape("k_grid has shape (1, 1, 5): give (1, 1, 1, 5)")):
        decode_int(q, codes, codes, grid[:, 0], grid)
    with pytest.raises(ValueError, match="bits=3"):
        quantize_kv(torch.zeros(1, 1, 1, 2), 3)
    with pytest.raises(ValueError, match="must be even"):
        quantize_kv(torch.zeros(1, 1, 1, 3), 4)
    with pytest.raises(ValueError, match="k_codes has shape"):
        decode_int(torch.zeros(1, 2, 64, dtype=HALF), codes, codes, grid, grid)


@pytest.mark.parametrize("cases", [decode_int4_cases, paged_cases])
def test_gfx942(cases):
    """Every configuration: launches, nothing spilled, MFMA 16x16, 128-bit loads of the codes, 2 waves per SIMD."""
    import triton

    from cdna.dry_run.driver import dry_run

    if not triton.__version__.startswith("3.9"):
        pytest.skip("register counts are stated for Triton 3.9")
    with dry_run("gfx942", device="meta") as run:
        for _, call in cases():
            call()
    for r in (launch.report for launch in run.launches):
        assert r.launches and r.resources.vgpr_spills == 0 and r.resources.scratch == 0, str(r)
        assert r.occupancy.waves_per_simd >= 2, str(r)
        if r.kernel != "_combine":
            assert r.isa.mfma and all("16x16x16" in op for op in r.isa.mfma)
            assert 128 in r.isa.global_loads_in_loops, str(r)
