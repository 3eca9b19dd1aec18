# SPDX-License-Identifier: MIT
r"""Attention, backward, the part that belongs to the queries: dQ of one tile of queries, summed over the keys.

.. math:: dq_i = \lambda \sum_j ds_{ij}\, k_j, \qquad ds_{ij} = p_{ij} (do_i \cdot v_j - \Delta_i)

The scores and probabilities are computed a second time (the keys' kernel had them too): seven products of tiles
instead of five, and in exchange every output is written once, by one program, without atomic additions. ds is also
the gradient of a matrix bias, and stored when one is wanted.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithm 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rocm_guide.kernels.attention.tile import head_start, keep_tile, load_rows, locate, log2_scores, mask_scores
from rocm_guide.kernels.gemm import hint_multiple

__all__ = []

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _key_tiles(
    dq,
    q,
    do,
    tiles,
    vectors,
    strides,
    low,
    high,
    where,
    scale,
    bias,
    d_bias,
    bias_strides,
    slope,
    drop,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Add the keys from ``low`` to ``high`` to dQ."""
    k, v = tiles
    top, delta = vectors
    bh, row0, len_q, len_k = where
    COLUMNS: tl.constexpr = q.shape[1]
    i, j = tl.arange(0, q.shape[0])[:, None], tl.arange(0, BLOCK_N)[None, :]
    for n in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        k_tile = k.load([n, 0]) if TMA else load_rows(k, n, len_k, strides[0], D, BLOCK_N, COLUMNS, MASKED)
        s = tl.dot(q, tl.trans(k_tile), input_precision="ieee")
        if bias is None and slope is None:
            if MASKED:
                s = mask_scores(s, i, j, row0, n, len_q, len_k, CAUSAL)
            p = tl.exp2(s * scale - top[:, None])
        else:
            s = log2_scores(s, scale, i, j, row0, n, len_q, len_k, bias, bias_strides, slope, CAUSAL)
            if MASKED:
                s = mask_scores(s, i, j, row0, n, len_q, len_k, CAUSAL)
            p = tl.exp2(s - top[:, None])
        v_tile = v.load([n, 0]) if TMA else load_rows(v, n, len_k, strides[1], D, BLOCK_N, COLUMNS, MASKED)
        dp = tl.dot(do, tl.trans(v_tile), input_precision="ieee")
        if drop is not None:
            dp = tl.where(keep_tile(s, i, j, row0, n, bh, drop), dp * drop[2], 0.0)
        ds = p * (dp - delta[:, None])
        if d_bias is not None:
            # Contiguous (…, queries, keys); tiles above the diagonal are left as they were, which is 0.
            at = d_bias + (tl.cast(row0, tl.int64) * len_k + n) + (i * len_k + j)
            tl.store(at, ds, mask=(i < len_q - row0) & (j < len_k - n))
        dq = tl.dot(ds.to(k_tile.dtype), k_tile, dq, input_precision="ieee")
    return dq


@triton.jit
def attention_backward_q_kernel(
    tensors,
    dq,
    d_bias,
    extras,
    strides,
    sizes,
    scale,
    drop,
    D: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    UNIT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program per tile of BLOCK_M queries of one head."""
    q, k, v, do, lse, delta = tensors
    bias, slopes, cu, bias_strides = extras
    sequences, heads, group, max_q, max_k = sizes[0], sizes[1], sizes[2], sizes[3] // 2, sizes[4] // 2
    tile, tiles = tl.program_id(0), tl.cdiv(max_q, BLOCK_M)
    if HEADS_FIRST:
        bh, tile_m = tile % (sequences * heads), tile // (sequences * heads)
    else:
        bh, tile_m = tile // tiles, tile % tiles
    if CAUSAL:
        tile_m = tiles - 1 - tile_m
    row0 = tile_m * BLOCK_M
    batch, head, kv_head, q0, k0, len_q, len_k = locate(bh, heads, group, max_q, max_k, cu)
    if row0 < len_q:
        q_tile = load_rows(
            head_start(q, strides[0], batch, head, q0, UNIT),
            row0,
            len_q,
            (hint_multiple(strides[0][2], UNIT), strides[0][3]),
            D,
            BLOCK_M,
            COLUMNS,
            True,
        )
        do_tile = load_rows(
            head_start(do, strides[3], batch, head, q0, UNIT),
            row0,
            len_q,
            (hint_multiple(strides[3][2], UNIT), strides[3][3]),
            D,
            BLOCK_M,
            COLUMNS,
            True,
        )
        k_base = head_start(k, strides[1], batch, kv_head, k0, UNIT)
        v_base = head_start(v, strides[2], batch, kv_head, k0, UNIT)
        if TMA:
            k_desc = tl.make_tensor_descriptor(k_base, [len_k, D], [strides[1][2], 1], [BLOCK_N, COLUMNS])
            v_desc = tl.make_tensor_descriptor(v_base, [len_k, D], [strides[2][2], 1], [BLOCK_N, COLUMNS])
            given = (k_desc, v_desc)
        else:
            given = (k_base, v_base)
        rows = tl.arange(0, BLOCK_M)
        row = batch * strides[4][0] + head * strides[4][1] + q0 + row0
        live = rows < len_q - row0
        # A row beyond the end, or one that saw no key, has p = exp2(s - inf) = 0.
        top = tl.load(lse + row + rows, mask=live, other=float("inf"))
        if not PADDED:
            top *= _LOG2E
            top = tl.where(top == float("-inf"), float("inf"), top)
        slope = slopes
        if slopes is not None:
            slope = tl.load(slopes + bh) * _LOG2E
            if CAUSAL:
                top += slope * rows  # log2_scores leaves this out of every score of the row
        if bias is not None:
            bias += batch * bias_strides[0] + head * bias_strides[1]
        if d_bias is not None:
            d_bias += bh.to(tl.int64) * len_q * len_k
        vectors = (top, tl.load(delta + row + rows, mask=live, other=0.0))
        k_step, v_step = hint_multiple(strides[1][2], UNIT), hint_multiple(strides[2][2], UNIT)
        tile_strides = ((k_step, strides[1][3]), (v_step, strides[2][3]))
        where = (bh, row0, len_q, len_k)
        high, full = len_k, len_k // BLOCK_N * BLOCK_N
        if CAUSAL:
            high = tl.maximum(tl.minimum(len_k, row0 + BLOCK_M + len_k - len_q), 0)
            full = tl.minimum(full, tl.maximum(row0 + 1 + len_k - len_q, 0) // BLOCK_N * BLOCK_N)
        total = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
        total = _key_tiles(total, q_tile, do_tile, given, vectors, tile_strides, 0, full, where, scale * _LOG2E, bias,
                           d_bias, bias_strides, slope, drop, D, BLOCK_N, CAUSAL, False, TMA, STAGES)  # fmt: skip
        total = _key_tiles(total, q_tile, do_tile, given, vectors, tile_strides, full, high, where, scale * _LOG2E,
                           bias, d_bias, bias_strides, slope, drop, D, BLOCK_N, CAUSAL, True, TMA, STAGES)  # fmt: skip
        columns = tl.arange(0, COLUMNS)
        base = head_start(dq, strides[5], batch, head, q0 + row0, UNIT)
        at = rows[:, None] * hint_multiple(strides[5][2], UNIT) + columns[None, :]
        inside = live[:, None] & (columns[None, :] < D)
        tl.store(base + at, (total * scale).to(dq.dtype.element_ty), mask=inside)
