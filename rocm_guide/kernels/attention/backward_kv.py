# SPDX-License-Identifier: MIT
r"""Attention, backward, the part that belongs to the keys: dK and dV of one tile of keys, summed over the queries.

With the probabilities recomputed from the stored log-sum-exp, :math:`p_{ij} = e^{s_{ij} - L_i}`, and
:math:`\Delta_i = \sum_d do_{id}\, o_{id}`,

.. math:: dv_j = \sum_i p_{ij}\, do_i, \qquad ds_{ij} = p_{ij} (do_i \cdot v_j - \Delta_i), \qquad
          dk_j = \lambda \sum_i ds_{ij}\, q_i

Everything is held transposed, keys by queries: then p and ds are left operands as they come. All query heads that
share a KV head are summed by the same program, so GQA needs no atomic additions and the result is reproducible.

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
def _query_tiles(
    state,
    k,
    v,
    tiles,
    vectors,
    strides,
    low,
    high,
    where,
    scale,
    bias,
    bias_strides,
    slope,
    drop,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    TMA: tl.constexpr,
    PADDED: tl.constexpr,
    ONE_LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Add the queries from ``low`` to ``high`` of one head to (dK, dV)."""
    dk, dv = state
    q, do = tiles
    lse, delta = vectors
    bh, column0, len_q, len_k = where
    COLUMNS: tl.constexpr = k.shape[1]
    i, j = tl.arange(0, BLOCK_M)[None, :], tl.arange(0, k.shape[0])[:, None]
    rows = tl.arange(0, BLOCK_M)
    for m in tl.range(low, high, BLOCK_M, num_stages=STAGES):
        q_tile = q.load([m, 0]) if TMA else load_rows(q, m, len_q, strides[0], D, BLOCK_M, COLUMNS, True)
        # A row beyond the end, or one that saw no key, has p = exp2(s - inf) = 0.
        if PADDED:
            top = tl.load(lse + m + rows)
        else:
            live = rows < len_q - m
            top = tl.load(lse + m + rows, mask=live, other=float("inf")) * _LOG2E
            top = tl.where(top == float("-inf"), float("inf"), top)
        s = tl.dot(k, tl.trans(q_tile), input_precision="ieee")
        if bias is None and slope is None:
            if MASKED and ONE_LOOP:  # the same for all keys that exist, with fewer registers
                s = tl.where(j + (column0 - m - (len_k - len_q)) <= i, s, float("-inf"))
            elif MASKED:
                s = mask_scores(s, i, j, m, column0, len_q, len_k, CAUSAL)
            p = tl.exp2(s * scale - top[None, :])
        else:
            s = log2_scores(s, scale, i, j, m, column0, len_q, len_k, bias, bias_strides, slope, CAUSAL)
            if slope is not None and CAUSAL:
                top += slope * rows  # log2_scores leaves this out of every score of the row
            if MASKED:
                s = mask_scores(s, i, j, m, column0, len_q, len_k, CAUSAL)
            p = tl.exp2(s - top[None, :])
        do_tile = do.load([m, 0]) if TMA else load_rows(do, m, len_q, strides[1], D, BLOCK_M, COLUMNS, True)
        dp = tl.dot(v, tl.trans(do_tile), input_precision="ieee")
        kept = p
        if drop is not None:
            keep = keep_tile(s, i, j, m, column0, bh, drop)
            kept = tl.where(keep, p * drop[2], 0.0)
            dp = tl.where(keep, dp * drop[2], 0.0)
        dv = tl.dot(kept.to(do_tile.dtype), do_tile, dv, input_precision="ieee")
        row_delta = tl.load(delta + m + rows) if PADDED else tl.load(delta + m + rows, mask=live, other=0.0)
        ds = p * (dp - row_delta[None, :])
        dk = tl.dot(ds.to(q_tile.dtype), q_tile, dk, input_precision="ieee")
    return dk, dv


@triton.jit
def attention_backward_kv_kernel(
    tensors,
    gradients,
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
    ONE_LOOP: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    UNIT: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program per tile of BLOCK_N keys of one KV head."""
    q, k, v, do, lse, delta = tensors
    bias, slopes, cu, bias_strides = extras
    sequences, heads, group, max_q, max_k = sizes[0], sizes[1], sizes[2], sizes[3] // 2, sizes[4] // 2
    kv_heads = heads // group
    tile, tiles = tl.program_id(0), tl.cdiv(max_k, BLOCK_N)
    if HEADS_FIRST:
        pair, tile_n = tile % (sequences * kv_heads), tile // (sequences * kv_heads)
    else:
        pair, tile_n = tile // tiles, tile % tiles
    column0 = tile_n * BLOCK_N
    batch, kv_head, _, q0, k0, len_q, len_k = locate(pair, kv_heads, 1, max_q, max_k, cu)
    if column0 < len_k:
        k_tile = load_rows(
            head_start(k, strides[1], batch, kv_head, k0, UNIT),
            column0,
            len_k,
            (hint_multiple(strides[1][2], UNIT), strides[1][3]),
            D,
            BLOCK_N,
            COLUMNS,
            True,
        )
        v_tile = load_rows(
            head_start(v, strides[2], batch, kv_head, k0, UNIT),
            column0,
            len_k,
            (hint_multiple(strides[2][2], UNIT), strides[2][3]),
            D,
            BLOCK_N,
            COLUMNS,
            True,
        )
        state = (tl.zeros([BLOCK_N, COLUMNS], tl.float32), tl.zeros([BLOCK_N, COLUMNS], tl.float32))
        q_step, do_step = hint_multiple(strides[0][2], UNIT), hint_multiple(strides[3][2], UNIT)
        tile_strides = ((q_step, strides[0][3]), (do_step, strides[3][3]))
        # Causal: a loop with a mask, then one without. Between two loops Hopper's products wait for one another
        # ("wgmma instructions are serialized"), so there the masked one goes to the end.
        low, middle = 0, 0
        if CAUSAL:
            # The first query that sees this tile's first key, and the first that sees all of it.
            low = tl.maximum(column0 - (len_k - len_q), 0) // BLOCK_M * BLOCK_M
            middle = tl.maximum(tl.minimum(column0 + BLOCK_N, len_k) - 1 - (len_k - len_q), 0)
            middle = tl.maximum(low, tl.cdiv(middle, BLOCK_M) * BLOCK_M)
        for member in range(group):
            head = kv_head * group + member
            bh = pair // kv_heads * heads + head
            q_base = head_start(q, strides[0], batch, head, q0, UNIT)
            do_base = head_start(do, strides[3], batch, head, q0, UNIT)
            row = batch * strides[4][0] + head * strides[4][1] + q0
            slope, head_bias = slopes, bias
            if slopes is not None:
                slope = tl.load(slopes + bh) * _LOG2E
            if bias is not None:
                head_bias = bias + (batch * bias_strides[0] + head * bias_strides[1])
            if TMA:
                q_desc = tl.make_tensor_descriptor(q_base, [len_q, D], [strides[0][2], 1], [BLOCK_M, COLUMNS])
                do_desc = tl.make_tensor_descriptor(do_base, [len_q, D], [strides[3][2], 1], [BLOCK_M, COLUMNS])
                given = (q_desc, do_desc)
            else:
                given = (q_base, do_base)
            where = (bh, column0, len_q, len_k)
            vectors = (lse + row, delta + row)
            if CAUSAL and not ONE_LOOP:
                state = _query_tiles(
                    state,
                    k_tile,
                    v_tile,
                    given,
                    vectors,
                    tile_strides,
                    low,
                    middle,
                    where,
                    scale * _LOG2E,
                    head_bias,
                    bias_strides,
                    slope,
                    drop,
                    D,
                    BLOCK_M,
                    CAUSAL,
                    True,
                    TMA,
                    PADDED,
                    ONE_LOOP,
                    STAGES,
                )
            state = _query_tiles(
                state,
                k_tile,
                v_tile,
                given,
                vectors,
                tile_strides,
                low if ONE_LOOP else middle,
                len_q,
                where,
                scale * _LOG2E,
                head_bias,
                bias_strides,
                slope,
                drop,
                D,
                BLOCK_M,
                CAUSAL,
                CAUSAL and ONE_LOOP,
                TMA,
                PADDED,
                ONE_LOOP,
                STAGES,
            )
        dk, dv = state
        rows, columns = tl.arange(0, BLOCK_N)[:, None], tl.arange(0, COLUMNS)[None, :]
        inside = (rows < len_k - column0) & (columns < D)
        dk_base = head_start(gradients[0], strides[5], batch, kv_head, k0 + column0, UNIT)
        dv_base = head_start(gradients[1], strides[6], batch, kv_head, k0 + column0, UNIT)
        dk_at = rows * hint_multiple(strides[5][2], UNIT) + columns
        dv_at = rows * hint_multiple(strides[6][2], UNIT) + columns
        tl.store(dk_base + dk_at, (dk * scale).to(gradients[0].dtype.element_ty), mask=inside)
        tl.store(dv_base + dv_at, dv.to(gradients[1].dtype.element_ty), mask=inside)
