# SPDX-License-Identifier: MIT
"""The back end that attention takes: a fused kernel, which asks BLAS for nothing, or matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = []


def sdpa_needs_gemms(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    causal: bool,
    gqa: bool,
    cudnn: bool = False,
) -> bool:
    """Return True when ``scaled_dot_product_attention`` falls back to matrix products,
    False when one fused kernel runs.

    The rules are those of PyTorch's CUDA and ROCm back ends: FlashAttention takes 16-bit types without a mask and
    head sizes to 256; the memory-efficient kernel also takes float32 and masks, but no grouped heads; cuDNN (NVIDIA
    only) takes 16-bit types with masks and grouped heads if the head size is a multiple of 8.

    >>> import torch
    >>> q, kv = torch.empty(1, 8, 4, 64, device="meta"), torch.empty(1, 2, 4, 64, device="meta")
    >>> sdpa_needs_gemms(q, kv, kv, None, causal=True, gqa=True)  # float32 with grouped heads: no fused kernel
    True
    >>> sdpa_needs_gemms(q.half(), kv.half(), kv.half(), None, causal=True, gqa=True)
    False
    """
    half = str(query.dtype) in ("torch.float16", "torch.bfloat16")
    head, same_head = query.shape[-1], query.shape[-1] == key.shape[-1] == value.shape[-1]
    square = query.shape[-2] == key.shape[-2]
    flash = half and mask is None and same_head and head <= 256 and (square or not causal)
    aligned = all(t.shape[-1] % (8 if half else 4) == 0 for t in (query, key, value))
    grouped = gqa and query.shape[1] != key.shape[1]
    both = mask is not None and causal
    efficient = (half or str(query.dtype) == "torch.float32") and aligned and not grouped and not both
    return not (flash or efficient or (cudnn and half and aligned and head <= 256 and not both))
