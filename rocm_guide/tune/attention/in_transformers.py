# SPDX-License-Identifier: MIT
"""Our attention kernels inside transformers: ``attn_implementation="rocm_guide"`` trains and generates with them."""

from __future__ import annotations

from typing import Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.kernels.api import attention, attention_decode

__all__ = ["register_attention"]

NAME = "rocm_guide"


def transformers_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention (batch, queries, heads, D) as transformers asks for it in every layer, with our kernels.

    Args:
        query: (batch, heads, queries, D); ``key`` and ``value`` the same with KV heads, which are not repeated.
        attention_mask: None when the causal structure says it all; else (batch, 1, queries, keys), True or 0 for keys
            that may be seen. It becomes a matrix bias.

    Raises:
        GuideError: soft-capping, attention sinks or a bias by position.
        ValueError: tensors that the kernels cannot take (on the CPU without the interpreter, say).
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if other.get(name) is not None:
            raise GuideError(f"{name}: not part of attn_implementation={NAME!r}; load the model with 'eager'")
    if not query.dtype == key.dtype == value.dtype:
        # Autocast: a normalisation of queries and keys may have left them in fp32, beside 16-bit values.
        query, key = query.to(value.dtype), key.to(value.dtype)
    bias = None
    if attention_mask is not None:
        bias = attention_mask[..., : key.shape[-2]]
        if bias.dtype == torch.bool:
            bias = torch.zeros((), dtype=query.dtype, device=bias.device).where(bias, float("-inf"))
    # One query sees everything that is cached; a mask says itself what is causal.
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if causal and key.shape[2] > query.shape[2]:
        # No mask means SDPA's is_causal, which counts from the first key. More keys than queries are then the places of
        # a static cache that nothing has been written to yet; our kernels would count from the last key.
        key, value = (x[:, :, : query.shape[2]] for x in (key, value))
    training = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    usual = query.dtype in (torch.float16, torch.bfloat16) and value.shape[-1] == query.shape[-1]
    if query.shape[2] == 1 and bias is None and usual and not training and not dropout:
        # A cache of keys is read by a kernel that cuts it in parts.
        k, v = (x.transpose(1, 2) for x in (key, value))
        if k.stride() != v.stride():
            k, v = k.contiguous(), v.contiguous()
        return attention_decode(query[:, :, 0], k, v, scale=scaling)[:, None], None
    out = attention(query, key, value, bias=bias, causal=causal, scale=scaling, dropout=dropout)
    return out.transpose(1, 2).contiguous(), None


def register_attention() -> str:
    """Make ``attn_implementation="rocm_guide"`` known to transformers; returns the name. Calling it twice is harmless.

    Masks are made as for SDPA: none where the causal structure is enough, else a boolean matrix.

    >>> register_attention()
    'rocm_guide'
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, transformers_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME
