# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap, and torch.compile sees operators.

Each is the function of the same name in a file of the same name, which is the one to read and to copy; what stands
around it is in :mod:`rocm_guide.kernels.fast` and :mod:`rocm_guide.kernels.ops`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from rocm_guide.kernels import attention as _attention
from rocm_guide.kernels import attention_fp8 as _attention_fp8
from rocm_guide.kernels import decode as _decode
from rocm_guide.kernels import decode_int4 as _decode_int4
from rocm_guide.kernels import layer_norm as _layer_norm
from rocm_guide.kernels import mla_decode as _mla_decode
from rocm_guide.kernels import mla_prefill as _mla_prefill
from rocm_guide.kernels import paged as _paged
from rocm_guide.kernels import rms_norm as _rms_norm
from rocm_guide.kernels import softmax as _softmax
from rocm_guide.kernels.fast import fast
from rocm_guide.kernels.tracing import load_operators

__all__ = []  # the helpers to copy are those in the files


def _traced_softmax(x: torch.Tensor) -> Any:
    load_operators()
    return torch.ops.rocm_guide.softmax_forward(x)


def _traced_rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> Any:
    load_operators()
    return torch.ops.rocm_guide.rms_norm_forward(x, weight, eps)[0]


def _traced_layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> Any:
    load_operators()
    return torch.ops.rocm_guide.layer_norm_forward(x, weight, bias, eps)[0]


softmax = fast(_softmax.softmax, _softmax.Softmax, _traced_softmax)
rms_norm = fast(_rms_norm.rms_norm, _rms_norm.RmsNorm, _traced_rms_norm)
layer_norm = fast(_layer_norm.layer_norm, _layer_norm.LayerNorm, _traced_layer_norm)


def _traced_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    layout: str = "bhsd",
    scale: float | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    seed: int | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    return_lse: bool = False,
) -> Any:
    load_operators()
    if alibi_slopes is not None and alibi_slopes.requires_grad:
        raise ValueError("alibi_slopes require a gradient, which is not computed: pass alibi_slopes.detach()")
    if seed is None:
        seed = int(torch.randint(1 << 62, ())) if dropout else 0
    tensors = (bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k)
    numbers = (layout, scale, causal, dropout, seed, max_seqlen_q, max_seqlen_k)
    out, lse = torch.ops.rocm_guide.attention_forward(q, k, v, *tensors, *numbers)
    return (out, lse) if return_lse else out


_fast_attention = fast(_attention.attention, _attention.Attention, _traced_attention)


@functools.wraps(_attention.attention)
def attention(*args: Any, **options: Any) -> Any:
    # With dropout each call has a seed of its own, and each would be a kind of call to remember.
    plain = options.get("dropout") and not torch.compiler.is_compiling()
    return (_attention.attention if plain else _fast_attention)(*args, **options)


def _traced_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> Any:
    load_operators()
    return torch.ops.rocm_guide.attention_decode(q, k, v, lengths, scale, parts)


attention_decode = fast(_decode.attention_decode, traced=_traced_decode)


def _without_operator(wrapper: Any) -> Any:
    """Return ``wrapper`` made cheap; torch.compile calls it and does not look inside, which breaks its graph there."""
    # As torch.compiler.disable, which imports the compiler at once: that takes seconds.
    return fast(wrapper, traced=torch._disable_dynamo(wrapper))


attention_quantized = _without_operator(_attention_fp8.attention_quantized)
attention_decode_int = _without_operator(_decode_int4.attention_decode_int)
attention_paged = _without_operator(_paged.attention_paged)
mla_decode = _without_operator(_mla_decode.mla_decode)
mla_attention = _without_operator(_mla_prefill.mla_attention)
