# SPDX-License-Identifier: MIT
"""One argument of a good call replaced by something odd: it works, or one clear line says why it cannot.

A sample by default; ROCM_GUIDE_FUZZ=2000 in the environment tries every replacement (about 1,600).
"""

from __future__ import annotations

import os
import random

import pytest
import torch

from rocm_guide.kernels.attention import attention, attention_backward, attention_forward
from rocm_guide.kernels.attention_fp8 import attention_quantized, quantize_heads
from rocm_guide.kernels.decode import attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int, quantize_kv
from rocm_guide.kernels.mla_decode import mla_decode
from rocm_guide.kernels.mla_prefill import mla_attention
from rocm_guide.kernels.paged import attention_paged

HALF, INT = torch.float16, torch.int32
NAMES = ("forward", "packed", "trained", "backward", "int8", "decode", "int4", "paged", "mla", "mla_decode", "quantize")


def good_call(name, device):
    """A function and arguments that it accepts."""
    gen = torch.Generator().manual_seed(0)

    def some(*shape):
        return torch.randn(*shape, generator=gen).to(device, HALF)

    def whole(*values):
        return torch.tensor(values, dtype=INT, device=device)

    q, k, v = some(1, 4, 5, 16), some(1, 2, 7, 16), some(1, 2, 7, 16)
    one, keys, values = some(2, 4, 16), some(2, 9, 2, 16), some(2, 9, 2, 16)
    latent = {"q_nope": some(1, 5, 2, 16), "q_pe": some(1, 5, 2, 8), "kv": some(1, 7, 32), "k_pe": some(1, 7, 8)}
    latent |= {"wkv_b": some(2, 24, 32), "scale": 0.2}
    if name == "forward":
        more = {"bias": some(1, 1, 5, 7), "alibi_slopes": torch.rand(4, generator=gen).to(device), "seed": 3}
        return attention_forward, {
            "q": q,
            "k": k,
            "v": v,
            "causal": True,
            "scale": 0.3,
            "dropout": 0.1,
            "schedule": "grid",
            "layout": "bhsd",
            **more,
        }
    if name == "packed":
        given = {"q": some(5, 4, 16), "k": some(7, 2, 16), "v": some(7, 2, 16), "layout": "thd"}
        longest = {"max_seqlen_q": 3, "max_seqlen_k": 4} if device == "cpu" else {}  # on a GPU they forgo the checks
        return attention_forward, given | {"cu_seqlens_q": whole(0, 2, 5), "cu_seqlens_k": whole(0, 3, 7)} | longest
    if name == "trained":
        return attention, {"q": q, "k": k, "v": v, "bias": some(1, 1, 5, 7), "dropout": 0.1, "seed": 3}
    if name == "backward":
        out, lse = attention_forward(q, k, v)
        return attention_backward, {"do": out, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    if name == "int8":
        (q, a), (k, b), (v, c) = (quantize_heads(x, torch.int8) for x in (q, k, v))
        named = {"q_scale": a, "k_scale": b, "v_scale": c, "p_scale": 1 / 127}
        return attention_quantized, {"q": q, "k": k, "v": v, **named}
    if name == "decode":
        return attention_decode, {"q": one, "k": keys, "v": values, "lengths": whole(9, 3), "scale": 0.2, "parts": 2}
    if name == "int4":
        (k, a), (v, b) = quantize_kv(keys, 4), quantize_kv(values, 4)
        named = {"k_grid": a, "v_grid": b, "lengths": whole(9, 3), "parts": 2}
        return attention_decode_int, {"q": one, "k_codes": k, "v_codes": v, **named}
    if name == "paged":
        pages = {"k_pages": some(5, 4, 2, 16), "v_pages": some(5, 4, 2, 16), "table": whole([0, 1, 2], [4, 3, 0])}
        return attention_paged, {"q": one, **pages, "lengths": whole(9, 3), "parts": 1}
    if name == "mla":
        return mla_attention, {**latent, "causal": True}
    if name == "mla_decode":
        single = {n: x[:, 0] for n, x in latent.items() if n.startswith("q_")}
        return mla_decode, {**latent, **single, "lengths": whole(5), "parts": 2}
    return quantize_kv, {"x": keys, "bits": 4}


def replacements(x):
    """Odd things in the place of ``x``."""
    if not isinstance(x, torch.Tensor):
        yield from (None, "x", -1, 0, 1.5, float("nan"), float("inf"), True, 10**9, [1], 2**70)
        return
    yield from (None, [1.0], torch.tensor(1.0).to(x), x[:0], x[0], x[None], x.to("meta"))
    yield from (x.to(t) for t in (torch.int64, torch.float64, torch.bool, torch.float32, torch.bfloat16))
    yield x.to(torch.complex64)
    for dim in range(x.ndim):
        yield from (x.narrow(dim, 0, x.shape[dim] - 1), x.narrow(dim, 0, 0), torch.cat([x, x.narrow(dim, 0, 1)], dim))
        yield x.transpose(dim, -1).contiguous().transpose(dim, -1)


@pytest.mark.parametrize("name", NAMES)
def test_odd_arguments(device, name):
    function, arguments = good_call(name, device)
    function(**arguments)
    tries = [(key, odd) for key, value in arguments.items() for odd in replacements(value)]
    count = max(16, int(os.environ.get("ROCM_GUIDE_FUZZ", "0")))
    refused = 0
    for key, odd in random.Random(name).sample(tries, min(count, len(tries))):
        try:
            function(**arguments | {key: odd})
        except ValueError as e:
            refused += 1
            assert str(e) and "\n" not in str(e), (key, odd)
    assert refused > 0
