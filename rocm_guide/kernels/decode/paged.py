# SPDX-License-Identifier: MIT
r"""Flash decoding over a paged cache: key ``n`` of sequence ``b`` is key ``n % P`` of page ``table[b, n // P]``.

A server holds hundreds of sequences that grow at different speeds. Instead of reserving the longest possible cache for
each, it keeps one pool of small pages (``P`` keys each) and a *block table* per sequence, as an operating system maps
virtual memory. The kernel is that of attention_decode or attention_decode_int; only where a key lies is looked up.

Source: W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
https://arxiv.org/abs/2309.06180.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import (
    KernelError,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
)
from rocm_guide.kernels.decode.decode import check_decode, check_parts, plan_decode, reference_attention_decode
from rocm_guide.kernels.decode.integer import check_decode_int, plan_decode_int
from rocm_guide.kernels.decode.kv_quant import dequantize_kv
from rocm_guide.kernels.launch import planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["attention_paged"]


def reference_attention_paged(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    grids: tuple[torch.Tensor, torch.Tensor] | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Gather the pages of every sequence into an ordinary cache, then attend. Give a float64 q for a yardstick."""
    if grids is not None:
        k_pages, v_pages = (dequantize_kv(c, g) for c, g in zip((k_pages, v_pages), grids, strict=True))
    # A slot of the table that no key uses may hold anything; any valid page does.
    keys = table.shape[1] * k_pages.shape[1]
    used = lengths[:, None] > k_pages.shape[1] * table.new_tensor(range(table.shape[1]))
    pages = table.masked_fill(~used, 0).long()
    k, v = (x[pages].reshape(q.shape[0], keys, *x.shape[2:]).to(q.dtype) for x in (k_pages, v_pages))
    return reference_attention_decode(q, k, v, lengths, scale)


def attention_paged(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    grids: tuple[torch.Tensor, torch.Tensor] | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Attention of one query token per sequence over keys and values in pages.

    Args:
        q: (batch, query heads, head size), fp16 or bf16.
        k_pages, v_pages: (pages, keys per page, KV heads, head size) in the dtype of q; or codes of quantize_kv.
        table: (batch, pages per sequence at most) int32: which page holds which keys. Entries that a sequence does
            not reach may hold anything; those that it reaches must be valid (they are not checked: that would make
            the CPU wait for the GPU).
        lengths: (batch,) int32, keys of each sequence.
        grids: the grids of keys and of values if the pages hold codes.
        scale, parts: as for attention_decode.

    Returns:
        (batch, query heads, head size) in the dtype of q; zeros for a sequence without keys.

    Raises:
        KernelError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``out = attention_paged(q, k_pages, v_pages, table, lengths)``.
    """
    if lengths is None:
        raise KernelError("lengths is None: a page table does not say how many keys a sequence has")
    if scale is not None:
        scale = check_number("scale", scale)
    if (traced := operator("attention_paged")) is not None:
        return traced(q, k_pages, v_pages, table, lengths, *(grids or (None, None)), scale)
    plan = planned(_plan, (q, k_pages, v_pages, table, lengths, *(grids or ())), parts)
    return plan(q, k_pages, v_pages, table, lengths, grids, scale)


def _plan(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *grids_and_parts: Any,
) -> Callable[..., torch.Tensor]:
    import torch

    *grids, parts = grids_and_parts
    if grids:
        check_decode_int(q, (k_pages, v_pages), (grids[0], grids[1]), lengths)
    else:
        check_decode(q, k_pages, v_pages, lengths)
        check_dtype("k_pages", k_pages, (q.dtype,))
        check_dtype("v_pages", v_pages, (q.dtype,))
        check_shape("k_pages", k_pages, (None, None, None, q.shape[2]))
    check_dtype("table", table, (torch.int32, torch.int64))
    check_shape("table", table, (q.shape[0], None))
    check_last_contiguous("table", table)
    check_same_device(q=q, table=table)
    page = k_pages.shape[1]
    if page < 1:
        raise KernelError("pages of 0 keys: a page holds at least one")
    tokens, parts, usual = table.shape[1] * page, check_parts(parts), q.shape[2] ** -0.5
    if grids:
        launch_int = plan_decode_int(q, k_pages, grids[0], tokens, table, parts)
    else:
        launch = plan_decode(q, k_pages, v_pages, tokens, lengths, table, parts)

    def run(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: Any, lengths: Any, grids: Any, scale: float | None
    ) -> torch.Tensor:
        scale = usual if scale is None else scale
        return launch_int(q, (k, v), grids, lengths, table, scale) if grids else launch(q, k, v, lengths, table, scale)

    return run
