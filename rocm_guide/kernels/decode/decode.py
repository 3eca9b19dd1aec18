# SPDX-License-Identifier: MIT
r"""Flash decoding: attention of one new token over a long cache, the keys shared out among many programs (split-K).

For each query head :math:`h` of a sequence with :math:`n` cached keys

.. math:: o_h = \sum_{j<n} p_j v_j, \qquad p_j = \frac{\exp(s\, q_h \cdot k_j)}{\sum_{i<n} \exp(s\, q_h \cdot k_i)}

A query head does one operation for every byte that it reads, so this kernel is about reading: every key and value must
come from memory once, at full speed. Two things decide. The query heads that share a KV head (GQA) are the columns of
one tile of scores, so their keys are read once (keys are its rows: each wave has some of its own, and no product is
made twice). And the keys are cut into parts, one program each, because a batch of one has far fewer heads than a GPU
has compute units; a second kernel joins the parts by their log-sum-exp.

Source: T. Dao et al., "Flash-Decoding for long-context inference", https://pytorch.org/blog/flash-decoding/; it is the
document's 06-attention-decode.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_batch,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
    choose,
    next_power_of_2,
)
from rocm_guide.kernels.decode.configs import (
    DECODE_CONFIGS,
    MOST_PARTS,
    DecodeTile,
    common_unit,
    keys_per_step,
    parts_for,
)
from rocm_guide.kernels.gemm import hint_multiple
from rocm_guide.kernels.launch import Launch, maker, planned, unread
from rocm_guide.kernels.tracing import traced

if TYPE_CHECKING:
    import torch

__all__ = ["attention_decode", "reference_attention_decode"]

_LOG2E = 1.4426950408889634


@triton.jit
def _rows_of(table_ptr, b, n, live, stride_page, stride_token, table_width, PAGE: tl.constexpr):
    """Where keys ``n`` of sequence ``b`` lie: row offset and page, found through the block table if there is one."""
    if PAGE:
        page = tl.load(table_ptr + b * table_width + n // PAGE, live, 0).to(tl.int64)
        row = page * stride_page + (n % PAGE) * stride_token
    else:
        page = b
        row = b * stride_page + n.to(tl.int64) * stride_token
    return row, page


@triton.jit
def _decode_part(
    q_ptr,
    k_ptr,
    v_ptr,
    length_ptr,
    table_ptr,
    out_ptr,
    lse_ptr,
    tokens,
    qk_scale,
    stride_page,
    stride_token,
    stride_head,
    table_width,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    UNIT: tl.constexpr,
):
    """One part of the keys, for up to BLOCK_M query heads of one KV head: a finished output and its log-sum-exp."""
    TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    head, part, b = tl.program_id(0) // TILES, tl.program_id(1), tl.program_id(2).to(tl.int64)
    heads, parts = tl.num_programs(0) // TILES, tl.num_programs(1)
    d, in_group = tl.arange(0, BLOCK_D), tl.program_id(0) % TILES * BLOCK_M + tl.arange(0, BLOCK_M)
    q_row, in_d = (b * heads + head) * GROUP + in_group, d < D
    wanted = in_d[:, None] & (in_group < GROUP)[None, :]
    q = tl.load(q_ptr + q_row[None, :] * D + d[:, None], wanted, 0.0)
    acc = tl.zeros((BLOCK_D, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), float("-inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)

    length = tokens
    if length_ptr is not None:
        length = tl.minimum(tl.load(length_ptr + b).to(tl.int32), tokens)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), parts) * BLOCK_N  # the parts of a sequence are equal, in whole steps
    for start in range(part * share, tl.minimum(part * share + share, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        row, _ = _rows_of(table_ptr, b, n, live, stride_page, stride_token, table_width, PAGE)
        place = hint_multiple(row[:, None] + head.to(tl.int64) * stride_head, UNIT) + d[None, :]
        inside = live[:, None] & in_d[None, :]
        k = tl.load(k_ptr + place, inside, 0.0)
        score = tl.where(live[:, None], tl.dot(k, q) * qk_scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        v = tl.load(v_ptr + place, inside, 0.0)
        acc = tl.dot(tl.trans(v), p.to(v.dtype), acc * shrink[None, :])
        total, top = total * shrink + tl.sum(p, 0), new_top

    # A part without keys weighs nothing: its log-sum-exp is -inf and its output 0.
    part_row, some = q_row * parts + part, total > 0.0
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part_row, lse, in_group < GROUP)
    out = acc / tl.where(some, total, 1.0)[None, :]
    tl.store(out_ptr + part_row[None, :] * D + d[:, None], out.to(out_ptr.dtype.element_ty), wanted)


@triton.jit
def _combine(
    part_ptr,
    lse_ptr,
    out_ptr,
    parts,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """One row of the output: the average of its parts, each weighed by exp2 of its log-sum-exp; 16 parts at a time."""
    row, d, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_P)
    lse = tl.load(lse_ptr + row * parts + i, i < parts, float("-inf"))
    top = tl.max(lse, 0)
    top = tl.where(top > float("-inf"), top, 0.0)  # no part has a key: weights 0, not NaN
    total = tl.sum(tl.exp2(lse - top), 0)
    acc = tl.zeros((16, BLOCK_D), tl.float32)
    for first in range(0, parts, 16):
        j = first + tl.arange(0, 16)
        weight = tl.exp2(tl.load(lse_ptr + row * parts + j, j < parts, float("-inf")) - top)
        inside = (j < parts)[:, None] & (d < D)[None, :]
        acc += weight[:, None] * tl.load(part_ptr + (row * parts + j)[:, None] * D + d[None, :], inside, 0.0)
    out = tl.sum(acc, 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + row * D + d, out.to(out_ptr.dtype.element_ty), d < D)


def block_rows(group: int, heads: int) -> tuple[int, int]:
    """Rows of a tile (16 at least: the matrix unit has no smaller one) and tiles for all KV heads of a sequence."""
    rows = min(max(16, next_power_of_2(group)), 64)
    return rows, heads * -(-group // rows)


def plan_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tokens: int,
    lengths: torch.Tensor | None,
    table: torch.Tensor | None,
    parts: int | None = None,
    config: DecodeTile | None = None,
) -> Callable[..., torch.Tensor]:
    """Choose both launches for checked arguments: ``k`` and ``v`` are (batch or page, key, KV head, feature).

    What is returned takes (q, k, v, lengths, table, scale) of that kind.
    """
    import torch

    (batch, q_heads, width), heads, arch, shape = q.shape, k.shape[2], architecture(q), q.shape
    config = config or choose(DECODE_CONFIGS, arch)
    block_m, tiles = block_rows(q_heads // heads, heads)
    parts = parts or parts_for(q, tokens, tiles, config)
    block_d = max(16, next_power_of_2(width))
    page, table_width = (k.shape[1], table.stride(0)) if table is not None else (0, 0)
    constants = {"GROUP": q_heads // heads, "D": width, "PAGE": page, "BLOCK_M": block_m, "BLOCK_D": block_d}
    constants |= {"BLOCK_N": keys_per_step(config, width), "UNIT": common_unit(*k.stride()[:3])}
    steps = dict(zip(("stride_page", "stride_token", "stride_head"), k.stride(), strict=False))
    constants = steps | {"table_width": table_width} | constants
    decode = Launch(_decode_part, (tiles, parts, batch), (tokens,), constants, config.options(arch))
    widths = {"D": width, "BLOCK_D": block_d, "BLOCK_P": next_power_of_2(parts)}
    combine = Launch(_combine, (batch * q_heads,), (parts,), widths, {"num_warps": 4})

    new_out, new_lse = maker(q, shape), maker(q, (batch, q_heads, parts), torch.float32)
    new_parts, nowhere = maker(q, (batch, q_heads, parts, width), torch.float32), unread(q, batch * q_heads)
    none = not q.numel()

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Any, table: Any, scale: float) -> torch.Tensor:
        out = new_out()
        if none:
            return out
        part, lse = (new_parts(), new_lse()) if parts > 1 else (out, nowhere())
        decode(q.contiguous(), k, v, lengths, table, part, lse, floats=(scale * _LOG2E,))
        if parts > 1:
            combine(part, lse, out)
        return out

    return run


def check_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor | None) -> None:
    """Everything that a query and a cache must have in common; a KernelError names what is wrong."""
    import torch

    check_dtype("q", q, (torch.float16, torch.bfloat16))
    check_shape("q", q, (None, None, None))
    check_shape("k", k, (None, None, None, None))
    check_shape("v", v, tuple(k.shape))
    check_same_device(q=q, k=k, v=v, lengths=lengths)
    check_last_contiguous("k", k)
    check_last_contiguous("v", v)
    # How far apart the only entry of a dimension is from the next one does not matter.
    if any(a != b for a, b, n in zip(k.stride(), v.stride(), k.shape, strict=True) if n > 1):
        raise KernelError(f"k has strides {k.stride()}, v {v.stride()}: lay both out alike, for example .contiguous()")
    if not k.shape[2] or q.shape[1] % k.shape[2]:
        raise KernelError(f"{q.shape[1]} query heads for {k.shape[2]} KV heads: give a whole number of times as many")
    if not 1 <= q.shape[2] <= 256:
        raise KernelError(f"head size {q.shape[2]}: give 1 to 256")
    check_batch(q.shape[0])
    if lengths is not None:
        check_shape("lengths", lengths, (q.shape[0],))
        check_dtype("lengths", lengths, (torch.int32, torch.int64))


def check_parts(parts: int | None) -> int | None:
    """A number of parts that the combining kernel can hold, or None."""
    if parts is not None and not (isinstance(parts, int) and 1 <= parts <= MOST_PARTS):
        raise KernelError(f"parts={parts!r}: give an integer from 1 to {MOST_PARTS}, or None")
    return parts


def attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Attention of one query token per sequence over its cached keys and values.

    Args:
        q: (batch, query heads, head size), fp16 or bf16.
        k, v: (batch, keys, KV heads, head size), the dtype of q; any strides with the last one 1, the same for both
            (a cache laid out as (batch, KV heads, keys, head size) is passed as ``k.transpose(1, 2)``).
        lengths: (batch,) integers: keys 0 to lengths[b] - 1 of sequence b count (all, if it is larger). None: all.
        scale: factor of the scores; ``head size ** -0.5`` if None.
        parts: into how many parts to cut the keys; chosen from the shape and the GPU if None.

    Returns:
        (batch, query heads, head size) in the dtype of q; zeros for a sequence without keys.

    Raises:
        KernelError: shapes, dtypes, strides or devices that do not fit together.

    >>> import torch
    >>> from rocm_guide.kernels.anywhere import call  # on a GPU: attention_decode(…) itself
    >>> q, k = torch.zeros(1, 4, 16).half(), torch.zeros(1, 3, 2, 16).half()
    >>> v = torch.tensor([1.0, 2.0, 6.0]).half().view(1, 3, 1, 1).expand(1, 3, 2, 16).contiguous()
    >>> call(attention_decode, q, k, v)[0, :, 0].tolist()  # equal scores: the mean of the values
    [3.0, 3.0, 3.0, 3.0]
    """
    if scale is not None:
        scale = check_number("scale", scale)
    if traced():
        import torch

        return torch.ops.rocm_guide.attention_decode(q, k, v, lengths, scale)
    return planned(_plan, (q, k, v, lengths), parts)(q, k, v, lengths, scale)


def _plan(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor | None, parts: int | None
) -> Callable[..., torch.Tensor]:
    check_decode(q, k, v, lengths)
    check_dtype("k", k, (q.dtype,))
    check_dtype("v", v, (q.dtype,))
    check_shape("k", k, (q.shape[0], None, None, q.shape[2]))
    launch, usual = plan_decode(q, k, v, k.shape[1], lengths, None, check_parts(parts)), q.shape[2] ** -0.5
    return lambda q, k, v, lengths, scale: launch(q, k, v, lengths, None, usual if scale is None else scale)


def reference_attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The same by plain torch, in the dtype of its arguments: give float64 for a yardstick. See attention_decode."""
    import torch

    group = q.shape[1] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bhd,bnhd->bhn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if lengths is not None:
        hidden = torch.arange(k.shape[1], device=k.device) >= lengths[:, None]
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0.0)  # a sequence without keys gets zeros
    return torch.einsum("bhn,bnhd->bhd", weights, v)
