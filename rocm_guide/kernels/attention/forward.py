# SPDX-License-Identifier: MIT
r"""Attention, forward, without ever storing the matrix of scores (FlashAttention-2).

For query i of a head, with scores :math:`s_{ij} = \lambda\, q_i \cdot k_j + b_{ij}` over the keys j that it may see,

.. math:: o_i = \sum_j p_{ij} v_j, \qquad p_{ij} = e^{s_{ij} - L_i}, \qquad L_i = \log \sum_j e^{s_{ij}}

A program holds a tile of queries and walks over the keys in tiles. It keeps the largest score so far m, the sum of
exp(s - m) and the sum of exp(s - m) v; when a tile brings a larger m, both sums shrink by exp(m_old - m_new). Scores
are kept in units of log2, because exp2 is what the hardware computes. Tiles that need no mask (inside the sequence,
left of the diagonal) run in a loop without one.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithm 1; the features are those of the
document's flash-attention.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.attention.tile import head_start, keep_tile, load_rows, locate, log2_scores, mask_scores
from rocm_guide.kernels.gemm import hint_multiple
from rocm_guide.kernels.tracing import traced

if TYPE_CHECKING:
    import torch

__all__ = ["attention_forward"]

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _key_tiles(
    state, q, kv, descriptors, low, high, where, scale, bias, bias_strides, slope, drop,
    D: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    P_BITS: tl.constexpr, MATH: tl.constexpr, TMA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Bring (accumulator, sums, maxima) up to date with the keys from ``low`` to ``high``."""
    acc, total, m = state
    k_base, k_strides, v_base, v_strides = kv
    bh, row0, len_q, len_k = where
    ROWS: tl.constexpr = q.shape[0]
    COLUMNS: tl.constexpr = q.shape[1]
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_N)[None, :]
    for n in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        k = descriptors[0].load([n, 0]) if TMA else load_rows(k_base, n, len_k, k_strides, D, BLOCK_N, COLUMNS, MASKED)
        if k.dtype == tl.int8 and q.dtype != tl.int8:
            k = k.to(q.dtype)
        s = tl.dot(q, tl.trans(k), input_precision="ieee").to(tl.float32)
        if bias is None and slope is None:
            if MASKED:
                s = mask_scores(s, i, j, row0, n, len_q, len_k, CAUSAL)
            m_new = tl.maximum(m, tl.max(s, 1) * scale)
            # The scale rides along in one multiply-add with the subtraction.
            p = tl.exp2(s * scale - (m_new - P_BITS)[:, None])
        else:
            s = log2_scores(s, scale, i, j, row0, n, len_q, len_k, bias, bias_strides, slope, CAUSAL)
            if MASKED:
                s = mask_scores(s, i, j, row0, n, len_q, len_k, CAUSAL)
            m_new = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - (m_new - P_BITS)[:, None])
        if MATH.is_int():
            p = tl.floor(p + 0.5)
        shrink = tl.exp2(m - m_new)
        total = total * shrink + tl.sum(p, 1)
        if drop is not None:
            p = tl.where(keep_tile(s, i, j, row0, n, bh, drop), p, 0.0)
        acc = acc * shrink[:, None]
        v = descriptors[1].load([n, 0]) if TMA else load_rows(v_base, n, len_k, v_strides, D, BLOCK_N, COLUMNS, MASKED)
        if MATH.is_int():
            acc += tl.dot(p.to(MATH), v).to(tl.float32)
        else:
            acc = tl.dot(p.to(MATH), v.to(MATH), acc, input_precision="ieee")
        m = m_new
    return acc, total, m


@triton.jit
def _query_tile(
    tile, tensors, extras, scales, strides, sizes, scale, drop,
    D: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
    P_BITS: tl.constexpr, MATH: tl.constexpr, TMA: tl.constexpr, UNIT: tl.constexpr, HEADS_FIRST: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK_M queries of one head against all keys that it may see."""
    q, k, v, out, lse = tensors
    bias, slopes, cu = extras
    bias_strides = strides[5]  # not in extras: beside a None, Triton 3.6 makes a None of a stride of 1 in a loop
    sequences, heads, group, max_q, max_k = sizes[0], sizes[1], sizes[2], sizes[3] // 2, sizes[4] // 2
    tiles = tl.cdiv(max_q, BLOCK_M)
    if HEADS_FIRST:
        bh, tile_m = tile % (sequences * heads), tile // (sequences * heads)
    else:
        bh, tile_m = tile // tiles, tile % tiles
    if CAUSAL:
        # The last queries see the most keys: they come first, so that the short ones fill the gaps at the end.
        tile_m = tiles - 1 - tile_m
    row0 = tile_m * BLOCK_M
    batch, head, kv_head, q0, k0, len_q, len_k = locate(bh, heads, group, max_q, max_k, cu)
    if row0 < len_q:
        q_base = head_start(q, strides[0], batch, head, q0, UNIT)
        k_base = head_start(k, strides[1], batch, kv_head, k0, UNIT)
        v_base = head_start(v, strides[2], batch, kv_head, k0, UNIT)
        out_base = head_start(out, strides[3], batch, head, q0, UNIT)
        slope = slopes
        if slopes is not None:
            slope = tl.load(slopes + bh) * _LOG2E
        if bias is not None:
            bias += batch * bias_strides[0] + head * bias_strides[1]
        factor = 1.0
        if scales is not None:
            scale *= tl.load(scales[0] + bh) * tl.load(scales[1] + bh // group)
            factor = tl.load(scales[2] + bh // group)
        if drop is not None:
            factor *= drop[2]
        kv = (
            k_base,
            (hint_multiple(strides[1][2], UNIT), strides[1][3]),
            v_base,
            (hint_multiple(strides[2][2], UNIT), strides[2][3]),
        )
        if TMA:
            k_desc = tl.make_tensor_descriptor(k_base, [len_k, D], [strides[1][2], 1], [BLOCK_N, COLUMNS])
            v_desc = tl.make_tensor_descriptor(v_base, [len_k, D], [strides[2][2], 1], [BLOCK_N, COLUMNS])
            descriptors = (k_desc, v_desc)
        else:
            descriptors = (k_base, v_base)
        q_strides = (hint_multiple(strides[0][2], UNIT), strides[0][3])
        queries = load_rows(q_base, row0, len_q, q_strides, D, BLOCK_M, COLUMNS, True)
        # Finite, so that a row that sees no key never meets inf - inf; no real score is that small.
        m = tl.full([BLOCK_M], -1e30, tl.float32)
        state = (tl.zeros([BLOCK_M, COLUMNS], tl.float32), tl.zeros([BLOCK_M], tl.float32), m)
        high, full = len_k, len_k // BLOCK_N * BLOCK_N
        if CAUSAL:
            high = tl.maximum(tl.minimum(len_k, row0 + BLOCK_M + len_k - len_q), 0)
            full = tl.minimum(full, tl.maximum(row0 + 1 + len_k - len_q, 0) // BLOCK_N * BLOCK_N)
        where = (bh, row0, len_q, len_k)
        scale *= _LOG2E
        state = _key_tiles(state, queries, kv, descriptors, 0, full, where, scale, bias, bias_strides, slope, drop,
                           D, BLOCK_N, CAUSAL, False, P_BITS, MATH, TMA, STAGES)  # fmt: skip
        state = _key_tiles(state, queries, kv, descriptors, full, high, where, scale, bias, bias_strides, slope, drop,
                           D, BLOCK_N, CAUSAL, True, P_BITS, MATH, TMA, STAGES)  # fmt: skip
        acc, total, m = state
        # A row that saw no key gives 0, and the logarithm of its empty sum is -inf.
        some = total > 0.0
        total = tl.where(some, total, 1.0)
        rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, COLUMNS)
        step = hint_multiple(strides[3][2], UNIT)
        at = row0.to(tl.int64) * step + (rows[:, None] * step + columns[None, :] * strides[3][3])
        inside = (rows[:, None] < len_q - row0) & (columns[None, :] < D)
        tl.store(out_base + at, (acc * (factor / total)[:, None]).to(out.dtype.element_ty), mask=inside)
        top = m + tl.log2(total) - P_BITS
        if slope is not None and CAUSAL:
            top -= slope * rows  # the part of ALiBi that log2_scores left out, the same for a whole row
        first = batch * strides[4][0] + head * strides[4][1] + q0 + row0
        tl.store(lse + first + rows, tl.where(some, top * _LN2, float("-inf")), mask=rows < len_q - row0)


@triton.jit
def attention_forward_kernel(
    tensors,
    extras,
    scales,
    strides,
    sizes,
    scale,
    drop,
    counter,
    D: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    P_BITS: tl.constexpr,
    MATH: tl.constexpr,
    TMA: tl.constexpr,
    UNIT: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    STAGES: tl.constexpr,
    SCHEDULE: tl.constexpr,
):
    """One program per tile ("grid"), or as many programs as fit the GPU, which take the tiles in turn ("fixed") or
    from a common counter as they get free ("dynamic")."""
    tile = tl.program_id(0)
    if SCHEDULE == "grid":
        _query_tile(tile, tensors, extras, scales, strides, sizes, scale, drop,
                    D, COLUMNS, BLOCK_M, BLOCK_N, CAUSAL, P_BITS, MATH, TMA, UNIT, HEADS_FIRST, STAGES)  # fmt: skip
    else:
        count = tl.cdiv(sizes[3] // 2, BLOCK_M) * sizes[0] * sizes[1]
        if SCHEDULE == "dynamic":
            tile = tl.atomic_add(counter, 1)
        while tile < count:
            _query_tile(tile, tensors, extras, scales, strides, sizes, scale, drop,
                        D, COLUMNS, BLOCK_M, BLOCK_N, CAUSAL, P_BITS, MATH, TMA, UNIT, HEADS_FIRST, STAGES)  # fmt: skip
            if SCHEDULE == "dynamic":
                tile = tl.atomic_add(counter, 1)
            else:
                tile += tl.num_programs(0)


def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    schedule: str = "grid",
    config: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the layout and type of ``q``, and the log-sum-exp of every row in fp32.

    Args:
        q: (batch, heads, queries, D); ``layout="bshd"``: (batch, queries, heads, D); ``"thd"``, packed sequences of
            different lengths: (all queries, heads, D). fp16, bf16 or fp32, D from 1 to 256.
        k, v: the same with keys; the number of heads may be a divisor (GQA, MQA). ``v`` may be a transposed view of a
            tensor (…, D, keys), which is how the document's transV variants keep it.
        schedule: a program per tile ("grid"), or persistent: tiles in turn ("fixed") or from a counter ("dynamic").
        config: another entry of FORWARD_CONFIGS.
        options: ``layout``; ``scale`` (D ** -0.5); ``causal``, aligned to the bottom right; ``bias``, broadcast to
            (batch, heads, queries, keys) and added to the scores; ``alibi_slopes`` (heads,) or (batch, heads) in fp32:
            minus slope times distance; ``dropout`` with its ``seed``; ``cu_seqlens_q``, ``cu_seqlens_k``,
            ``max_seqlen_q``, ``max_seqlen_k`` for "thd": looked up if None, for which the CPU waits. If given, nothing
            on the GPU is checked, and what lies beyond a ``max_seqlen`` that is too small is not computed.

    Returns:
        output, and log-sum-exp (batch, heads, queries), for "thd" (heads, queries). A row all of whose keys are masked
        gives 0 and -inf.

    Raises:
        KernelError: arguments that do not fit together; nothing is launched.

    Example, in the interpreter or on a GPU: ``out, lse = attention_forward(q, k, v, causal=True)``.
    """
    if traced():
        return traced_attention(q, k, v, **options)
    from rocm_guide.kernels.attention.forward_launch import run_forward

    bias = options.pop("bias", None)
    return run_forward(q, k, v, bias, {"schedule": schedule, "config": config, **options})


def traced_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    layout: str = "bhsd",
    scale: float | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    seed: int = 0,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator of a traced call, differentiable."""
    import torch

    masks, longest = (bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    return torch.ops.rocm_guide.attention_forward(q, k, v, *masks, layout, scale, causal, dropout, seed, *longest)
