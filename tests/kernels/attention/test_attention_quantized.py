# SPDX-License-Identifier: MIT
"""8-bit attention: against float64 on the dequantised numbers, within the stated bounds."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.attention import reference_attention
from rocm_guide.kernels.attention_fp8 import attention_quantized, dequantize_heads, quantize_heads
from rocm_guide.kernels.cases import attention_fp8_cases
from rocm_guide.kernels.fp8 import fp8_dtype
from tests.kernels.this_machine import INTERPRETED, fp8_here

HALF = torch.float16
#: batch, heads, KV heads, queries, keys, head size
SHAPES = [(2, 4, 2, 35, 35, 32), (1, 2, 1, 20, 50, 80)]
if not INTERPRETED:
    SHAPES += [(2, 4, 2, 1000, 1000, 128), (1, 4, 4, 1024, 1024, 64), (1, 2, 1, 333, 777, 112), (1, 8, 2, 1, 2000, 128)]


def prepared(shape, kind, device, size=1.0, form=None):
    """Codes (of this machine's e4m3, or of ``form``), named scales, and q, k, v as the codes stand for in float64."""
    batch, heads, kv_heads, rows, keys, width = shape
    gen = torch.Generator().manual_seed(0)
    q = (torch.randn(batch, heads, rows, width, generator=gen) * size).to(device)
    k, v = (torch.randn(batch, kv_heads, keys, width, generator=gen).to(device) for _ in range(2))
    k[:, 0] *= 3.0  # heads of different size have scales of their own
    dtype = torch.int8 if "int8" in kind else form or fp8_dtype(fp8_here())
    (kc, ks), (vc, vs) = quantize_heads(k, dtype), quantize_heads(v, dtype)
    named = {"k_scale": ks, "v_scale": vs}
    if kind == "int8 kv":
        return (q.half(), kc, vc), named, (q.half().double(), dequantize_heads(kc, ks), dequantize_heads(vc, vs))
    qc, qs = quantize_heads(q, dtype)
    named["q_scale"] = qs
    if kind == "int8 qkvp":
        named["p_scale"] = 1 / 127
    return (qc, kc, vc), named, tuple(dequantize_heads(c, s) for c, s in ((qc, qs), (kc, ks), (vc, vs)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["int8 qkv", "int8 qkvp", "int8 kv", "fp8"])
def test_bounds(device, kind, causal):
    if kind == "fp8" and INTERPRETED:
        pytest.skip("conversions to fp8 are wrong in the interpreter")
    for shape in SHAPES:
        for size in (1.0, 4.0):
            codes, named, (q, k, v) = prepared(shape, kind, device, size)
            out, lse = attention_quantized(*codes, **named, causal=causal)
            expected, expected_lse = reference_attention(q, k, v, causal=causal)
            magnitude, _ = reference_attention(q, k, v.abs(), causal=causal)
            group, keys = shape[1] // shape[2], shape[4]
            s = (q @ k.repeat_interleave(group, 1).mT) * q.shape[-1] ** -0.5
            if causal:
                i, j = (torch.arange(n, device=device) for n in (shape[3], keys))
                s = s.masked_fill(j[None, :] > i[:, None] + keys - shape[3], float("-inf"))
            largest = (s.amax(-1) - expected_lse).exp()[..., None]  # the row's largest probability
            seen = s.isfinite().sum(-1, keepdim=True)
            top = v.abs().amax((-1, -2), keepdim=True).repeat_interleave(group, 1)
            unit = 2.0**-11
            allowed = (
                unit * expected.abs()
                + 2 * unit * magnitude
                + 2.0**-18 * (1 + s.abs().nan_to_num(0, 0, 0).amax())
                + 2.0**-25 * keys * top
            )
            allowed = allowed + {"int8 qkvp": seen * largest * top / 127, "fp8": 2.0**-4 * top}.get(kind, 0.0)
            error = (out.double() - expected).abs()
            assert out.dtype == HALF and bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g}"
            if kind != "int8 qkvp":
                # int8 products are added exactly, fp8 products as hopper_scores() below does it.
                allowed = 2.0**-18 * (1 + s.abs().nan_to_num(0, 0, 0).amax())
                if kind == "fp8":
                    allowed = allowed + fp8_slack(q, k, s)
                off = (lse.double() - expected_lse).nan_to_num(0.0).abs()
                assert bool((off <= allowed).all()), f"lse: {float((off / allowed).max()):.3g} times the allowed error"


def fp8_slack(q, k, s):
    """How far a row's log-sum-exp may be off because of the way in which Hopper adds fp8 products.

    An instruction takes 32 products and the sum so far, aligns all 33 to the largest and cuts each to 14 bits, towards
    0 (DeepSeek-V3 report, arXiv 2412.19437, section 3.5.2). So it loses less than 33 * 2^-13 of the largest; signs are
    mixed, and 2^-13 of the sum of all sizes is enough, once more for the end: see test_fp8_sums_of_hopper.
    """
    sizes = q.abs() @ k.abs().repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    return (1 + -(-q.shape[-1] // 32)) * 2.0**-13 * sizes.masked_fill(s.isneginf(), 0.0).amax(-1)


def hopper_scores(q, k):
    """(rows, D) and (keys, D) numbers of e4m3 in fp32: the sums of products as an H100's matrix unit makes them."""

    def last_bit(x):  # the weight of the 14th bit
        return torch.ldexp(torch.ones_like(x), torch.frexp(x.abs().clamp(min=2.0**-60))[1] - 14)

    total = torch.zeros(q.shape[0], k.shape[0])
    for d in range(0, q.shape[1], 32):
        products = q[:, None, d : d + 32] * k[None, :, d : d + 32]  # exact: 4 bits times 4 bits
        unit = last_bit(torch.maximum(products.abs().amax(-1), total.abs()))
        total = unit * ((products / unit[..., None]).trunc().sum(-1) + (total / unit).trunc())
        total = (total / last_bit(total)).trunc() * last_bit(total)
    return total


def first_heads(shape, causal, size):
    """Codes, scale, q and k, scores and allowed deviations of the heads that share the first KV head."""
    (qc, kc, _), named, (q, k, _) = prepared(shape, "fp8", "cpu", size, torch.float8_e4m3fn)
    heads, (queries, keys, width) = shape[1] // shape[2], shape[3:]
    q, k = q[:1, :heads], k[:1, :1]
    hidden = torch.ones(queries, keys).triu(keys - queries + 1) > 0 if causal else torch.zeros(queries, keys) > 0
    exact = (q @ k.mT * width**-0.5).masked_fill(hidden, float("-inf"))
    allowed = 2.0**-18 * (1 + exact.abs().nan_to_num(0, 0, 0).amax()) + fp8_slack(q, k, exact)
    scale = (named["q_scale"][0, :heads, None, None] * named["k_scale"][0, 0]).double() * width**-0.5
    return qc[0, :heads].float(), kc[0, 0].float(), scale, q, k, exact, allowed


@pytest.mark.parametrize(
    ("shape", "causal", "rows", "seen"),
    [
        ((2, 4, 2, 35, 35, 32), True, slice(0, 35), None),
        # Seen on an NVIDIA H100 80GB (torch 2.11, Triton 3.6), each the largest of its shape.
        ((1, 2, 1, 20, 50, 80), False, slice(0, 20), 1.33e-2),
        ((2, 4, 2, 1000, 1000, 128), True, slice(400, 450), 2.47e-2),
    ],
)
def test_fp8_sums_of_hopper(shape, causal, rows, seen):
    """The emulation has the H100's deviation to three digits, and the bound leaves room."""
    qc, kc, scale, _, _, exact, allowed = first_heads(shape, causal, 4.0)
    made = torch.stack([hopper_scores(x[rows], kc) for x in qc])[None].double() * scale
    made = made.masked_fill(exact[:, :, rows].isneginf(), float("-inf"))
    off = (made.logsumexp(-1) - exact[:, :, rows].logsumexp(-1)).abs()
    ratio = float((off / allowed[:, :, rows]).max())
    print(f"{shape}: log-sum-exp off by {float(off.max()):.3e}, {ratio:.2f} of what is allowed")
    assert ratio < 0.5 and (seen is None or abs(float(off.max()) - seen) < 0.005e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 2, 35, 35, 32), (1, 2, 1, 20, 50, 80), (2, 4, 2, 1000, 1000, 128)])
def test_the_fp8_bound_finds_faults(shape, causal):
    """What a wrong kernel would do exceeds the bound for one of the two sizes of scores."""
    found = {}
    for size in (1.0, 4.0):
        _, _, _, q, k, exact, allowed = first_heads(shape, causal, size)
        keys, factor = shape[4], shape[5] ** -0.5
        part = q[..., -16:] @ k[..., -16:].mT * factor
        last = exact.isneginf().roll(-1, -1) | (torch.arange(keys) == keys - 1)
        faults = {
            "scores a tenth too large": exact * 1.1,
            "16 features left out": exact - part,
            "a key too few": exact.masked_fill(last, float("-inf")),
        }
        for name, scores in faults.items():
            ratio = ((scores.logsumexp(-1) - exact.logsumexp(-1)).abs() / allowed).max()
            found[name] = max(found.get(name, 0.0), float(ratio))
    print(shape, causal, {n: round(r, 1) for n, r in found.items()})
    assert all(ratio > 2 for ratio in found.values()), found


def predicted_error(q, k, v, kind):
    """Relative error of the output (root mean square) when every rounding is independent and uniform over its step.

    Scores: the roundings of q and k, which become relative errors of p; then those of p itself and of v. A step of int8
    is the scale; e4m3 rounds with a relative error of 0.0255 in the mean (a step of 1/8 of the leading power of two).
    """
    group = q.shape[1] // k.shape[1]
    q, k, v = q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale, fp8 = q.shape[-1] ** -0.5, 0.0255
    step = {n: (x.abs().amax((-1, -2), keepdim=True) / 127) ** 2 / 12 for n, x in (("q", q), ("k", k), ("v", v))}
    p = (q @ k.mT * scale).softmax(-1)
    if kind == "fp8":
        scores = 2 * fp8**2 * (q.pow(2) @ k.pow(2).mT)
        own, values = fp8**2 * p.pow(2), fp8**2 * v.pow(2)
    else:
        scores = q.pow(2).sum(-1, keepdim=True) * step["k"]
        scores = scores + (k.pow(2).sum(-1)[:, :, None] * step["q"] if kind != "int8 kv" else 0.0)
        own = (p.amax(-1, keepdim=True) / 127) ** 2 / 12 * (kind == "int8 qkvp") * torch.ones_like(p)
        values = step["v"] * torch.ones_like(v)
    weight, out = p.pow(2) * scores * scale**2, p @ v
    noise = p.pow(2) @ values
    if kind == "fp8":
        noise = noise + own @ v.pow(2)  # the sum that divides is that of the unrounded p
    else:
        weight = weight + own
    # A change of p_j moves the output by (v_j - output), because the sum of p changes with it.
    noise = noise + weight @ v.pow(2) - 2 * out * (weight @ v) + out.pow(2) * weight.sum(-1, keepdim=True)
    return float((noise.mean() / out.pow(2).mean()).sqrt())


@pytest.mark.parametrize("kind", ["int8 qkv", "int8 qkvp", "int8 kv", "fp8"])
def test_error_in_practice(device, kind):
    """Against the numbers before quantisation: as large as independent roundings predict, not more."""
    if kind == "fp8" and INTERPRETED:
        pytest.skip("conversions to fp8 are wrong in the interpreter")
    shape = SHAPES[0] if INTERPRETED else SHAPES[2]
    codes, named, _ = prepared(shape, kind, device)
    batch, heads, kv_heads, rows, keys, width = shape
    gen = torch.Generator().manual_seed(0)
    q = torch.randn(batch, heads, rows, width, generator=gen).to(device).double()
    k, v = (torch.randn(batch, kv_heads, keys, width, generator=gen).to(device).double() for _ in range(2))
    k[:, 0] *= 3.0
    expected, _ = reference_attention(q, k, v)
    off = attention_quantized(*codes, **named)[0].double() - expected
    relative = float((off.pow(2).mean() / expected.pow(2).mean()).sqrt())
    predicted = predicted_error(q, k, v, kind)
    print(f"{kind}: relative error {relative:.4f}, predicted {predicted:.4f}")
    assert 0.5 * predicted < relative < 1.3 * predicted


def test_heads_may_lie_apart(device):
    codes, named, (q, k, v) = prepared((2, 4, 2, 35, 35, 32), "int8 qkv", device)
    expected, _ = reference_attention(q, k, v, causal=True, scale=0.2)
    moved = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in codes]
    out, _ = attention_quantized(*moved, **named, causal=True, scale=0.2)
    assert (out.double() - expected).abs().max() < 5e-3


def test_quantize_heads():
    x = torch.randn(2, 3, 50, 16)
    codes, scale = quantize_heads(x, torch.int8)
    assert codes.abs().amax((-1, -2)).eq(127).all() and scale.shape == (2, 3)
    assert ((dequantize_heads(codes, scale) - x).abs() <= scale[..., None, None] * 0.5001).all()
    codes, scale = quantize_heads(torch.zeros(1, 1, 2, 2), torch.int8)
    assert not codes.any() and scale.isfinite().all()


def test_refusals():
    x, s = torch.zeros(1, 2, 4, 16, dtype=torch.int8), torch.ones(1, 2)
    half = x.half()
    for given, message in [
        (((x, x, x), {"k_scale": s, "v_scale": s}), "q_scale is missing"),
        (((x, half, half), {"k_scale": s, "v_scale": s, "q_scale": s}), "quantise all three"),
        (((half, x, x), {"k_scale": s, "v_scale": s, "p_scale": 0.01}), "p_scale with unquantised q"),
        (((x, x, x), {"k_scale": s.half(), "v_scale": s, "q_scale": s}), "k_scale is float16"),
        (((x, x, x), {"k_scale": torch.ones(3), "v_scale": s, "q_scale": s}), "k_scale has shape (3,)"),
        (((x, x, x), {"k_scale": s, "v_scale": s, "q_scale": s, "p_scale": 2.0}), "p_scale=2.0"),
    ]:
        with pytest.raises(ValueError) as caught:
            attention_quantized(*given[0], **given[1])
        assert message in str(caught.value)


def test_gfx942():
    """int8 and fp8 MFMA of 16x16, no spills, 2 waves per SIMD; the rows are compiled again by test_kernel_table.py."""
    from course.resource_table import read_rows

    rows = [r for r in read_rows()[1] if r.case.startswith("attention_fp8:")]
    assert len(rows) == sum(1 for _ in attention_fp8_cases())
    for r in rows:
        assert r.spills == 0 and r.findings == "-" and r.waves >= 2 and r.loop_loads.startswith("128x"), r
        kinds = {op.rsplit("x", 1)[0] for op in r.mfma.split(",")}
        assert all("16x16x" in op for op in kinds), r
        wanted = "fp8_fp8" if r.case.endswith(", fp8") else "i8" if "q k v" in r.case else "f16"
        assert any(op.endswith(wanted) for op in kinds), r
