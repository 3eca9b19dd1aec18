# SPDX-License-Identifier: MIT
"""Cases of test_on_gfx942.py: attention with every feature, forward and backward, decoding, MLA."""

from __future__ import annotations

import torch

from rocm_guide.kernels.attention import attention_backward, attention_forward, reference_attention
from rocm_guide.kernels.attention_fp8 import attention_quantized, dequantize_heads, quantize_heads
from rocm_guide.kernels.decode import attention_decode, reference_attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int, dequantize_kv, quantize_kv
from rocm_guide.kernels.mla_decode import mla_decode, reference_mla_decode
from rocm_guide.kernels.mla_prefill import mla_attention, reference_mla_naive
from rocm_guide.kernels.paged import attention_paged, reference_attention_paged
from tests.kernels.gfx942_near import Case, near, normal

F16, BF16 = torch.float16, torch.bfloat16
CASES: dict[str, Case] = {}
FEATURES = {
    "": {},
    "alibi": {"alibi_slopes": True},
    "matrix": {"bias": True},
    "dropout": {"dropout": 0.1, "seed": 12345},
}


def problem(d, heads, kv_heads, rows, keys, dtype, options):
    given = dict(options)
    widths = d, given.pop("values", d)
    q, do = (normal(1, heads, rows, width, dtype=dtype, seed=i) for i, width in enumerate(widths))
    k, v = (normal(1, kv_heads, keys, width, dtype=dtype, seed=i + 2) for i, width in enumerate(widths))
    if given.pop("alibi_slopes", False):
        given["alibi_slopes"] = torch.tensor([0.5, 0.25][:heads])
    if given.pop("bias", False):
        given["bias"] = normal(1, heads, rows, keys, dtype=dtype, seed=4)
    return q, k, v, do, given


def wide(options):
    return {n: x.double() if isinstance(x, torch.Tensor) else x for n, x in options.items()}


def forward_case(d, dtype=F16, heads=2, kv_heads=1, rows=19, keys=35, transposed=False, schedule="grid", **options):
    def run():
        q, k, v, _, given = problem(d, heads, kv_heads, rows, keys, dtype, options)
        if transposed:
            v = v.mT.contiguous().mT
        out, lse = attention_forward(q, k, v, schedule=schedule, **given)

        def check():
            q64, k64, v64 = (x.double() for x in (q, k, v))
            want, want_lse = reference_attention(q64, k64, v64, **wide(given))
            size, _ = reference_attention(q64, k64, v64.abs(), **wide(given))
            near(out, want, size, torch.finfo(dtype).eps)
            near(lse, want_lse, 8 + want_lse.abs())

        return check

    return run


def backward_case(d, dtype=F16, heads=2, kv_heads=1, rows=19, keys=35, **options):
    def run():
        q, k, v, do, given = problem(d, heads, kv_heads, rows, keys, dtype, options)
        leaves = [x.double().requires_grad_() for x in (q, k, v)]
        wanted = wide(given)
        if "bias" in wanted:
            wanted["bias"].requires_grad_()
            leaves.append(wanted["bias"])
        o64, lse64 = reference_attention(*leaves[:3], **wanted)
        grads = attention_backward(
            do, q, k, v, o64.detach().to(dtype), lse64.detach().float(), bias_gradient="bias" in given, **given
        )

        def check():
            wants = torch.autograd.grad(o64, leaves, do.double())
            for got, want in zip(grads, wants, strict=False):
                near(got, want, want.abs().amax(), 4 * torch.finfo(dtype).eps)

        return check

    return run


BACKWARD = ("attention_delta_kernel", "attention_backward_kv_kernel", "attention_backward_q_kernel")
# Every pair of head size, mask and feature. A backward case takes three kernels, so dropout goes along with a bias: it
# changes other lines.
for _d in (64, 128):
    for _causal in (False, True):
        for _feature, _given in FEATURES.items():
            _label = f"heads of {_d}{', causal' * _causal}{', ' * bool(_feature)}{_feature}"
            if (_d == 128) ^ _causal ^ (_feature in ("alibi", "dropout")):
                CASES[f"attention, {_label}"] = Case(
                    ("attention_forward_kernel",), forward_case(_d, causal=_causal, **_given)
                )
for _d, _causal, *_features in (
    (64, False),
    (64, True),
    (128, True),
    (64, False, "alibi", "dropout"),
    (64, True, "alibi"),
    (64, False, "matrix"),
    (64, True, "matrix", "dropout"),
):
    _given = {name: value for feature in _features for name, value in FEATURES[feature].items()}
    _label = ", ".join([f"heads of {_d}", *["causal"] * _causal, *_features])
    CASES[f"attention backward, {_label}"] = Case(BACKWARD, backward_case(_d, causal=_causal, **_given))
for _schedule in ("fixed", "dynamic"):
    CASES[f"attention, persistent {_schedule}"] = Case(
        ("attention_forward_kernel",), forward_case(64, causal=True, schedule=_schedule)
    )
CASES["attention, transposed values"] = Case(("attention_forward_kernel",), forward_case(64, transposed=True))
CASES["attention, bf16"] = Case(("attention_forward_kernel",), forward_case(128, BF16, causal=True))
CASES["attention backward, bf16"] = Case(BACKWARD, backward_case(64, BF16, causal=True))
for _d in (16, 72, 112, 256):  # from 72 to 112 the heads lie in a block of 128
    CASES[f"attention, heads of {_d}"] = Case(("attention_forward_kernel",), forward_case(_d, heads=1, causal=True))
for _d in (16, 72, 256):
    CASES[f"attention backward, heads of {_d}"] = Case(BACKWARD, backward_case(_d, heads=1, causal=True))
for _d, _values, _dtype in ((192, 128, BF16), (40, 16, F16), (24, 72, F16)):  # 40: blocks of 16 and 32
    _label, _given = f"heads of {_d}, values of {_values}", {"dtype": _dtype, "values": _values, "causal": True}
    CASES[f"attention, {_label}"] = Case(("attention_forward_kernel",), forward_case(_d, **_given))
    CASES[f"attention backward, {_label}"] = Case(BACKWARD, backward_case(_d, **_given))


def quantized_case(kind, causal):
    def run():
        q, k, v = (normal(1, h, n, 64, seed=i) for i, (h, n) in enumerate([(2, 19), (1, 35), (1, 35)]))
        dtype = torch.float8_e4m3fnuz if kind == "fp8" else torch.int8
        (kc, ks), (vc, vs) = quantize_heads(k, dtype), quantize_heads(v, dtype)
        named = {"k_scale": ks, "v_scale": vs}
        qc, q64 = q.half(), q.half().double()
        if kind != "int8 k v":
            qc, named["q_scale"] = quantize_heads(q, dtype)
            q64 = dequantize_heads(qc, named["q_scale"]).double()
        if kind == "int8 q k v p":
            named["p_scale"] = 1 / 127
        out, lse = attention_quantized(qc, kc, vc, **named, causal=causal)

        def check():
            k64, v64 = (dequantize_heads(c, s).double() for c, s in ((kc, ks), (vc, vs)))
            want, want_lse = reference_attention(q64, k64, v64, causal=causal)
            top = v64.abs().amax() * torch.ones_like(want)
            near(out, want, top, 2.0**-4 if kind == "fp8" else 2.0**-5 if kind == "int8 q k v p" else 2.0**-9)
            # With p_scale the sum of a row is that of the rounded probabilities.
            near(lse, want_lse, 8 + want_lse.abs(), 2.0**-10 if kind == "int8 q k v p" else 2.0**-16)

        return check

    return run


# The mask is laid over the scores whatever they were computed from: the types take turns.
for _kind, _causal in (("int8 q k v", False), ("int8 q k v p", True), ("int8 k v", False), ("fp8", True)):
    CASES[f"attention, {_kind}{', causal' * _causal}"] = Case(("attention_fp8_kernel",), quantized_case(_kind, _causal))


def decode_case(width, heads, kv_heads, dtype=F16, parts=2):
    def run():
        q = normal(2, heads, width, dtype=dtype)
        k, v = (normal(2, 70, kv_heads, width, dtype=dtype, seed=i) for i in (1, 2))
        lengths = torch.tensor([70, 33], dtype=torch.int32)
        out = attention_decode(q, k, v, lengths=lengths, parts=parts)

        def check():
            q64, k64, v64 = (x.double() for x in (q, k, v))
            size = reference_attention_decode(q64, k64, v64.abs(), lengths)
            near(out, reference_attention_decode(q64, k64, v64, lengths), size, torch.finfo(dtype).eps)

        return check

    return run


for _width in (64, 72, 96, 128, 256):
    CASES[f"decode, heads of {_width}"] = Case(("_decode_part", "_combine"), decode_case(_width, 4, 2))
CASES["decode, bf16, 8 per KV head"] = Case(("_decode_part", "_combine"), decode_case(128, 8, 1, BF16))
CASES["decode, as many KV heads"] = Case(("_decode_part", "_combine"), decode_case(128, 2, 2))


def integer_case(bits, width, dtype):
    def run():
        q = normal(1, 4, width, dtype=dtype)
        (k, kg), (v, vg) = (quantize_kv(normal(1, 70, 2, width, seed=i), bits) for i in (1, 2))
        out = attention_decode_int(q, k, v, kg, vg, parts=2)

        def check():
            k64, v64 = (dequantize_kv(c, g).double() for c, g in ((k, kg), (v, vg)))
            want = reference_attention_decode(q.double(), k64, v64)
            near(out, want, v64.abs().amax() * torch.ones_like(want), 2 * torch.finfo(dtype).eps)

        return check

    return run


for _bits in (8, 4):
    for _width, _dtype in ((64, F16), (128, F16), (128, BF16), (256, F16)):
        _name = f"decode, int{_bits} cache, heads of {_width}, {str(_dtype).removeprefix('torch.')}"
        # With heads of 256 two waves hold a copy of the sum of a query's features, added in different orders.
        _copies = 2.0**-17 if _width == 256 else 0.0
        CASES[_name] = Case(("_decode_int_part", "_combine"), integer_case(_bits, _width, _dtype), _copies)


def paged_case(page):
    def run():
        q = normal(2, 4, 128, dtype=F16)
        k, v = (normal(12, page, 2, 128, dtype=F16, seed=i) for i in (1, 2))
        table = torch.tensor([[3, 1, 7, 2], [5, 9, 0, 11]], dtype=torch.int32)
        lengths = torch.tensor([4 * page - 3, page + 1], dtype=torch.int32)
        out = attention_paged(q, k, v, table, lengths, parts=2)

        def check():
            want = reference_attention_paged(q.double(), k, v, table, lengths)
            near(out, want, 4 * torch.ones_like(want), 2.0**-9)

        return check

    return run


for _page in (16, 64):
    CASES[f"paged, {_page} keys"] = Case(("_paged_part", "_combine"), paged_case(_page))


def mla_data(queries, keys, heads, d, r, c, dtype):
    at = (1, queries) if queries else (1,)
    q, q_pe = (normal(*at, heads, size, dtype=dtype, seed=i) for i, size in enumerate((d, r)))
    cache, w = normal(1, keys, c + r, dtype=dtype, seed=3), normal(heads, 2 * d, c, dtype=dtype, size=c**-0.5, seed=4)
    return q, q_pe, cache[..., :c], cache[..., c:], w


def mla_decode_case(heads, d, r, c, dtype):
    def run():
        data = mla_data(0, 40, heads, d, r, c, dtype)
        out = mla_decode(*data, parts=2)

        def check():
            want = reference_mla_decode(*(x.double() for x in data))
            near(out, want, 4 * torch.ones_like(want), torch.finfo(dtype).eps)

        return check

    return run


def mla_prefill_case(d, r, c, causal):
    def run():
        data = mla_data(5, 20, 2, d, r, c, BF16)
        out = mla_attention(*data, causal=causal)

        def check():
            want = reference_mla_naive(*(x.double() for x in data), causal=causal)
            near(out, want, 4 * torch.ones_like(want), torch.finfo(BF16).eps)

        return check

    return run


CASES["MLA decode, latents of 512"] = Case(
    ("_per_head", "_mla_part", "_combine"), mla_decode_case(2, 128, 64, 512, BF16)
)
CASES["MLA decode, latents of 256"] = Case(("_per_head", "_mla_part", "_combine"), mla_decode_case(2, 64, 32, 256, F16))
CASES["MLA, latents of 256"] = Case(("_mla_attention",), mla_prefill_case(64, 32, 256, False))
CASES["MLA, latents of 512, causal"] = Case(("_mla_attention",), mla_prefill_case(128, 64, 512, True))
