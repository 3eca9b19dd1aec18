# SPDX-License-Identifier: MIT
r"""Attention, forward and backward, without ever storing the matrix of scores (FlashAttention-2).

For query i of a head, with scores :math:`s_{ij} = \lambda\, q_i \cdot k_j + b_{ij}` over the keys j that it may see,

.. math:: o_i = \sum_j p_{ij} v_j, \qquad p_{ij} = e^{s_{ij} - L_i}, \qquad L_i = \log \sum_j e^{s_{ij}}

Forward, a program holds a tile of queries and walks over the keys in tiles. It keeps the largest score so far m, the
sum of exp(s - m) and the sum of exp(s - m) v; when a tile brings a larger m, both sums shrink by exp(m_old - m_new).
Scores are in units of log2, because exp2 is what the hardware computes. Tiles that need no mask (inside the sequence,
left of the diagonal) run in a loop without one.

Backward, the probabilities are computed anew from L. With :math:`\Delta_i = \sum_d do_{id}\, o_{id}`,

.. math:: dv_j = \sum_i p_{ij}\, do_i, \qquad ds_{ij} = p_{ij} (do_i \cdot v_j - \Delta_i), \qquad
          dk_j = \lambda \sum_i ds_{ij}\, q_i, \qquad dq_i = \lambda \sum_j ds_{ij}\, k_j

One kernel finds dK and dV, one dQ: seven products of tiles instead of five, and in exchange every output is written
once, by one program, without atomic additions, so the result is the same every time.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithms 1 and 2; the features are those of the
document's flash-attention.py. The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["Attention", "Tile", "attention", "attention_backward", "attention_forward", "reference_attention"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def hint_multiple(x, UNIT: tl.constexpr):
    """Return ``x``, a multiple of UNIT, so that Triton, which knows of multiples of 16 by itself, sees that it is."""
    return x // UNIT * UNIT if UNIT > 1 else x


@triton.jit
def locate(bh, heads, group, len_q, len_k, cu_q, cu_k):
    """Return batch, head, KV head, first query, first key (int64), queries and keys of (sequence, head) ``bh``."""
    sequence = bh // heads
    head = (bh % heads).to(tl.int64)
    batch = sequence.to(tl.int64)
    q0 = batch * 0
    k0 = batch * 0
    if cu_q is not None:
        first_q, first_k = tl.load(cu_q + sequence), tl.load(cu_k + sequence)
        len_q = tl.load(cu_q + sequence + 1) - first_q
        len_k = tl.load(cu_k + sequence + 1) - first_k
        q0, k0 = first_q.to(tl.int64), first_k.to(tl.int64)
        batch = batch * 0  # packed sequences are one batch
    return batch, head, head // group, q0, k0, len_q, len_k


@triton.jit
def head_start(x, strides, batch, head, row, UNIT: tl.constexpr):
    """Return a pointer to one row of one head; all strides are multiples of UNIT."""
    return x + hint_multiple(batch * strides[0] + head * strides[1] + row * strides[2], UNIT)


@triton.jit
def load_rows(
    base,
    start,
    length,
    step,
    one,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return rows ``start`` to ``start + ROWS`` of a (length, D) matrix as a (ROWS, COLUMNS) tile; zero outside.

    The start moves a scalar 64-bit base; offsets inside the tile are 32-bit and the same in every round of a loop.
    """
    rows, columns, step = tl.arange(0, ROWS), tl.arange(0, COLUMNS), hint_multiple(step, UNIT)
    at = base + tl.cast(start, tl.int64) * step + (rows[:, None] * step + columns[None, :] * one)
    if MASKED:
        if D >= COLUMNS:
            return tl.load(at, mask=rows[:, None] < length - start, other=0.0)
        return tl.load(at, mask=(rows[:, None] < length - start) & (columns[None, :] < D), other=0.0)
    if D >= COLUMNS:
        return tl.load(at)
    return tl.load(at, mask=columns[None, :] < D, other=0.0)


@triton.jit
def load_parts(
    base,
    start,
    length,
    step,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    UNIT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return rows of queries or keys as a tile as wide as the values', and if they are wider, a second: REST columns.

    Heads of 192 with values of 128, as in MLA, are then no tiles of 256, a quarter of which are zeros.
    """
    first = load_rows(base, start, length, step, 1, D, ROWS, COLUMNS, UNIT, MASKED)
    at, width = base + COLUMNS, D - COLUMNS
    return (first, load_rows(at, start, length, step, 1, width, ROWS, REST, UNIT, MASKED)) if REST else (first,)


@triton.jit
def multiply(a, b):
    """Return the products of the rows of ``a`` and ``b``, each in the same parts."""
    s = tl.dot(a[0], tl.trans(b[0]), input_precision="ieee")
    if len(a) == 2:
        s = tl.dot(a[1], tl.trans(b[1]), s, input_precision="ieee")
    return s


@triton.jit
def store_rest(base, x, row, length, step, D: tl.constexpr, UNIT: tl.constexpr):
    """Store a tile's first D columns beside what :func:`load_parts` takes as the first part; ``row`` is (rows, 1)."""
    column = tl.arange(0, x.shape[1])[None, :]
    at = base + row * hint_multiple(step, UNIT) + column
    tl.store(at, x.to(base.dtype.element_ty), mask=(row < length) & (column < D))


@triton.jit
def mask_scores(s, i, j, row0, column0, len_q, len_k, CAUSAL: tl.constexpr):
    """Return the scores with -inf where no key is, and above the diagonal.

    ``i`` and ``j`` are the indices of queries and keys inside the tile, shaped to broadcast to ``s``, which may be
    turned either way. Causal is aligned to the bottom right: query i sees key j when j <= i + len_k - len_q.
    """
    if CAUSAL:
        last = tl.minimum(i + (row0 + len_k - len_q), len_k - 1)
        return tl.where(j + column0 <= last, s, float("-inf"))
    return tl.where(j < len_k - column0, s, float("-inf"))


@triton.jit
def log2_scores(
    s,
    scale,
    i,
    j,
    row0,
    column0,
    len_q,
    len_k,
    bias,
    bias_row,
    bias_one,
    slope,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return the scores of a tile in units of log2 from its products, with matrix bias, ALiBi and mask.

    ``bias`` is None or points to this head's matrix; ``slope`` is None or ALiBi's times log2(e).
    """
    s = s * scale
    if slope is not None:
        if CAUSAL:
            # Below the diagonal the distance is i - j. What depends on i alone is the same for a whole row, so softmax
            # does not see it: one number per column is enough, relative to the tile's first row.
            s += slope * (j + (column0 - row0 - (len_k - len_q))).to(tl.float32)
        else:
            s -= slope * tl.abs(j - i + (column0 - row0 - (len_k - len_q))).to(tl.float32)
    if bias is not None:
        first = bias + (tl.cast(row0, tl.int64) * bias_row + tl.cast(column0, tl.int64) * bias_one)
        inside = (i < len_q - row0) & (j < len_k - column0)
        s += tl.load(first + (i * bias_row + j * bias_one), mask=inside, other=0.0).to(tl.float32) * LOG2E
    if MASKED:
        s = mask_scores(s, i, j, row0, column0, len_q, len_k, CAUSAL)
    return s


@triton.jit
def keep_tile(s, i, j, row0, column0, bh, drop_below, seed):
    """Return which probabilities of a tile dropout keeps: 24 bits of Philox (seed, key, query, head) and a threshold.

    They depend on the position and on nothing else, so the backward pass asks again instead of storing a mask, and
    the answer is the same for every tile size. ``s`` gives the shape. Seven rounds pass all statistical tests of the
    paper that introduced Philox (ten are its default), and take a third fewer registers for their keys.
    """
    zero = tl.zeros(s.shape, tl.uint32)
    rows, columns = zero + (i + row0).to(tl.uint32), zero + (j + column0).to(tl.uint32)
    bits, _, _, _ = tl.philox(seed, columns, rows, zero + bh.to(tl.uint32), zero, 7)
    return (bits >> 8).to(tl.int32) >= drop_below


@triton.jit
def narrow(p, dtype: tl.constexpr, BY_HAND: tl.constexpr):
    """Return ``p`` in the type of the values. BY_HAND rounds to bf16 with an addition and a shift: two instructions.

    CDNA 3 cannot convert to bf16, and the compiler's five also look for NaN and for ties. Here a tie is rounded up. A
    row with a NaN has one in its sum too, which divides it in the end.
    """
    if BY_HAND:
        bits = p.to(tl.uint32, bitcast=True) + 0x8000
        return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return p.to(dtype)


@triton.jit
def _query_tile(
    tile, q, k, v, out, lse, of_q, of_k, of_v, of_out, of_bias, extras, sizes, scale, drop,
    D: tl.constexpr, VALUES: tl.constexpr, COLUMNS: tl.constexpr, REST: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, UNIT: tl.constexpr, STAGES: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Attend with one tile of BLOCK_M queries of one head to all keys that it may see."""
    bias, slopes, cu_q, cu_k = extras
    rows, sequences, heads, group, max_q, max_k = sizes
    # Neighbours belong to different heads: MI300X deals workgroups out to its 8 XCDs in turn, each with its own L2.
    bh, tile_m = tile % (sequences * heads), tile // (sequences * heads)
    if CAUSAL:
        # The last queries see the most keys: they come first, so that the short ones fill the gaps at the end.
        tile_m = tl.cdiv(max_q, BLOCK_M) - 1 - tile_m
    row0 = tile_m * BLOCK_M
    batch, head, kv_head, q0, k0, len_q, len_k = locate(bh, heads, group, max_q, max_k, cu_q, cu_k)
    if row0 < len_q:
        k += hint_multiple(batch * of_k[0] + kv_head * of_k[1] + k0 * of_k[2], UNIT)
        v += hint_multiple(batch * of_v[0] + kv_head * of_v[1] + k0 * of_v[2], UNIT)
        slope = slopes
        if slopes is not None:
            slope = tl.load(slopes + bh // heads * of_bias[4] + bh % heads) * LOG2E
        if bias is not None:
            bias += batch * of_bias[0] + head * of_bias[1]
        scale *= LOG2E
        q_base = head_start(q, of_q, batch, head, q0, UNIT)
        queries = load_parts(q_base, row0, len_q, of_q[2], D, BLOCK_M, COLUMNS, REST, UNIT, True)
        # Finite, so that a row that sees no key never meets inf - inf; no real score is that small.
        m, total = tl.full([BLOCK_M], -1e30, tl.float32), tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
        i, j = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
        high, full = len_k, len_k // BLOCK_N * BLOCK_N
        if CAUSAL:
            high = tl.maximum(tl.minimum(len_k, row0 + BLOCK_M + len_k - len_q), 0)
            full = tl.minimum(full, tl.maximum(row0 + 1 + len_k - len_q, 0) // BLOCK_N * BLOCK_N)
        for MASKED in tl.static_range(2):  # first the tiles without a mask, then those with one
            for n in tl.range(full if MASKED else 0, high if MASKED else full, BLOCK_N, num_stages=STAGES):
                keys = load_parts(k, n, len_k, of_k[2], D, BLOCK_N, COLUMNS, REST, UNIT, MASKED)
                s = multiply(queries, keys)
                if bias is None and slope is None:
                    if MASKED:
                        s = mask_scores(s, i, j, row0, n, len_q, len_k, CAUSAL)
                    m_new = tl.maximum(m, tl.max(s, 1) * scale)
                    # The scale rides along in one multiply-add with the subtraction.
                    p = tl.exp2(s * scale - m_new[:, None])
                else:
                    s = log2_scores(
                        s, scale, i, j, row0, n, len_q, len_k, bias, of_bias[2], of_bias[3], slope, CAUSAL, MASKED
                    )
                    m_new = tl.maximum(m, tl.max(s, 1))
                    p = tl.exp2(s - m_new[:, None])
                shrink = tl.exp2(m - m_new)
                total = total * shrink + tl.sum(p, 1)
                if drop is not None:
                    p = tl.where(keep_tile(s, i, j, row0, n, bh, drop[0], drop[1]), p, 0.0)
                acc = acc * shrink[:, None]
                values = load_rows(v, n, len_k, of_v[2], of_v[3], VALUES, BLOCK_N, COLUMNS, UNIT, MASKED)
                acc = tl.dot(narrow(p, values.dtype, BY_HAND), values, acc, input_precision="ieee")
                m = m_new
        # A row that saw no key gives 0, and the logarithm of its empty sum is -inf.
        some = total > 0.0
        total = tl.where(some, total, 1.0)
        factor = 1.0 if drop is None else drop[2]
        row, column, step = tl.arange(0, BLOCK_M), tl.arange(0, COLUMNS), hint_multiple(of_out[2], UNIT)
        at = row0.to(tl.int64) * step + (row[:, None] * step + column[None, :])
        inside = (row[:, None] < len_q - row0) & (column[None, :] < VALUES)
        base = head_start(out, of_out, batch, head, q0, UNIT)
        tl.store(base + at, (acc * (factor / total)[:, None]).to(out.dtype.element_ty), mask=inside)
        top = m + tl.log2(total)
        if slope is not None and CAUSAL:
            top -= slope * row  # the part of ALiBi that log2_scores left out, the same for a whole row
        lse += (batch * heads + head) * rows + q0 + row0
        tl.store(lse + row, tl.where(some, top / LOG2E, float("-inf")), mask=row < len_q - row0)


@triton.jit
def attention_forward_kernel(
    q, k, v, out, lse, counter, o_batch, o_head, o_row, bias, slopes, cu_q, cu_k,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, v_one,
    bias_batch, bias_head, bias_row, bias_one, slope_batch,
    rows, sequences, heads, group, twice_q, twice_k, scale, drop_below, seed, drop_factor,
    D: tl.constexpr, VALUES: tl.constexpr, COLUMNS: tl.constexpr, REST: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, UNIT: tl.constexpr, STAGES: tl.constexpr, BY_HAND: tl.constexpr,
    SCHEDULE: tl.constexpr,
):  # fmt: skip
    """One program per tile ("grid"), or as many programs as fit the GPU, which take the tiles in turn ("fixed") or
    from a common counter as they get free ("dynamic")."""
    of_q, of_k, of_v = (q_batch, q_head, q_row), (k_batch, k_head, k_row), (v_batch, v_head, v_row, v_one)
    of_out, of_bias = (o_batch, o_head, o_row), (bias_batch, bias_head, bias_row, bias_one, slope_batch)
    extras, sizes = (bias, slopes, cu_q, cu_k), (rows, sequences, heads, group, twice_q // 2, twice_k // 2)
    drop = drop_below if drop_below is None else (drop_below, seed, drop_factor)
    tile = tl.program_id(0)
    if SCHEDULE == "grid":
        _query_tile(
            tile,
            q,
            k,
            v,
            out,
            lse,
            of_q,
            of_k,
            of_v,
            of_out,
            of_bias,
            extras,
            sizes,
            scale,
            drop,
            D,
            VALUES,
            COLUMNS,
            REST,
            BLOCK_M,
            BLOCK_N,
            CAUSAL,
            UNIT,
            STAGES,
            BY_HAND,
        )
    else:
        if SCHEDULE == "dynamic":
            tile = tl.atomic_add(counter, 1)
        while tile < tl.cdiv(twice_q // 2, BLOCK_M) * sequences * heads:
            _query_tile(
                tile,
                q,
                k,
                v,
                out,
                lse,
                of_q,
                of_k,
                of_v,
                of_out,
                of_bias,
                extras,
                sizes,
                scale,
                drop,
                D,
                VALUES,
                COLUMNS,
                REST,
                BLOCK_M,
                BLOCK_N,
                CAUSAL,
                UNIT,
                STAGES,
                BY_HAND,
            )
            if SCHEDULE == "dynamic":
                tile = tl.atomic_add(counter, 1)
            else:
                tile += tl.num_programs(0)


@triton.jit
def attention_delta_kernel(
    out,
    do,
    delta,
    o_batch,
    o_head,
    o_row,
    do_batch,
    do_head,
    do_row,
    heads,
    rows,
    D: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):
    """Find delta = (out * do) summed over the head, in fp32, for BLOCK rows of one head."""
    tiles = tl.cdiv(rows, BLOCK)  # one axis: the second one of a grid ends at 65,535
    bh, start = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * BLOCK
    batch, head, i = bh // heads, bh % heads, start + tl.arange(0, BLOCK)
    out = head_start(out, (o_batch, o_head, o_row), batch, head, 0, UNIT)
    do = head_start(do, (do_batch, do_head, do_row), batch, head, 0, UNIT)
    product = load_rows(out, start, rows, o_row, 1, D, BLOCK, COLUMNS, UNIT, True).to(tl.float32)
    product *= load_rows(do, start, rows, do_row, 1, D, BLOCK, COLUMNS, UNIT, True).to(tl.float32)
    tl.store(delta + bh * rows + i, tl.sum(product, 1), mask=i < rows)


@triton.jit
def attention_backward_kv_kernel(
    q, k, v, do, lse, delta, dk, dv, do_batch, do_head, do_row, dk_batch, dk_head, dk_row, bias, slopes, cu_q, cu_k,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, v_one,
    bias_batch, bias_head, bias_row, bias_one, slope_batch,
    rows, sequences, heads, group, twice_q, twice_k, scale, drop_below, seed, drop_factor,
    D: tl.constexpr, VALUES: tl.constexpr, COLUMNS: tl.constexpr, REST: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, UNIT: tl.constexpr, STAGES: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Find dK and dV of BLOCK_N keys of one KV head; the query heads that share it are summed in this program."""
    kv_heads = heads // group
    pair, tile_n = tl.program_id(0) % (sequences * kv_heads), tl.program_id(0) // (sequences * kv_heads)
    column0 = tile_n * BLOCK_N
    batch, kv_head, _, q0, k0, len_q, len_k = locate(pair, kv_heads, 1, twice_q // 2, twice_k // 2, cu_q, cu_k)
    if column0 < len_k:
        k = head_start(k, (k_batch, k_head, k_row), batch, kv_head, k0, UNIT)
        v = head_start(v, (v_batch, v_head, v_row), batch, kv_head, k0, UNIT)
        keys = load_parts(k, column0, len_k, k_row, D, BLOCK_N, COLUMNS, REST, UNIT, True)
        values = load_rows(v, column0, len_k, v_row, v_one, VALUES, BLOCK_N, COLUMNS, UNIT, True)
        d_keys, d_values = tl.zeros([BLOCK_N, COLUMNS], tl.float32), tl.zeros([BLOCK_N, COLUMNS], tl.float32)
        d_rest = tl.zeros([BLOCK_N, REST], tl.float32) if REST else None
        # Everything is held transposed, keys by queries: then p and ds are left operands as they come.
        row, i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_M)[None, :], tl.arange(0, BLOCK_N)[:, None]
        low, middle = 0, 0
        if CAUSAL:
            # The first query that sees this tile's first key, and the first that sees all of it.
            low = tl.maximum(column0 - (len_k - len_q), 0) // BLOCK_M * BLOCK_M
            middle = tl.maximum(tl.minimum(column0 + BLOCK_N, len_k) - 1 - (len_k - len_q), 0)
            middle = tl.maximum(low, tl.cdiv(middle, BLOCK_M) * BLOCK_M)
        for member in range(group):
            head = kv_head * group + member
            bh = pair // kv_heads * heads + head
            q_base = head_start(q, (q_batch, q_head, q_row), batch, head, q0, UNIT)
            do_base = head_start(do, (do_batch, do_head, do_row), batch, head, q0, UNIT)
            first = (batch * heads + head) * rows + q0
            slope, head_bias = slopes, bias
            if slopes is not None:
                slope = tl.load(slopes + pair // kv_heads * slope_batch + head) * LOG2E
            if bias is not None:
                head_bias = bias + (batch * bias_batch + head * bias_head)
            for FULL in tl.static_range(0 if CAUSAL else 1, 2):
                for m in tl.range(middle if FULL else low, len_q if FULL else middle, BLOCK_M, num_stages=STAGES):
                    queries = load_parts(q_base, m, len_q, q_row, D, BLOCK_M, COLUMNS, REST, UNIT, True)
                    # A row beyond the end, or one that saw no key, has p = exp2(s - inf) = 0.
                    top = tl.load(lse + first + m + row, mask=row < len_q - m, other=float("inf")) * LOG2E
                    top = tl.where(top == float("-inf"), float("inf"), top)
                    s = multiply(keys, queries)
                    s = log2_scores(
                        s,
                        scale * LOG2E,
                        i,
                        j,
                        m,
                        column0,
                        len_q,
                        len_k,
                        head_bias,
                        bias_row,
                        bias_one,
                        slope,
                        CAUSAL,
                        not FULL,
                    )
                    if slope is not None and CAUSAL:
                        top += slope * row  # log2_scores leaves this out of every score of the row
                    p = tl.exp2(s - top[None, :])
                    d_out = load_rows(do_base, m, len_q, do_row, 1, VALUES, BLOCK_M, COLUMNS, UNIT, True)
                    dp = tl.dot(values, tl.trans(d_out), input_precision="ieee")
                    kept = p
                    if drop_below is not None:
                        keep = keep_tile(s, i, j, m, column0, bh, drop_below, seed)
                        kept = tl.where(keep, p * drop_factor, 0.0)
                        dp = tl.where(keep, dp * drop_factor, 0.0)
                    d_values = tl.dot(narrow(kept, d_out.dtype, BY_HAND), d_out, d_values, input_precision="ieee")
                    ds = p * (dp - tl.load(delta + first + m + row, mask=row < len_q - m, other=0.0)[None, :])
                    ds = narrow(ds, d_out.dtype, BY_HAND)
                    d_keys = tl.dot(ds, queries[0], d_keys, input_precision="ieee")
                    if REST:
                        d_rest = tl.dot(ds, queries[1], d_rest, input_precision="ieee")
        column = tl.arange(0, COLUMNS)[None, :]
        at, inside = j * hint_multiple(dk_row, UNIT) + column, (j < len_k - column0) & (column < D)
        dk = head_start(dk, (dk_batch, dk_head, dk_row), batch, kv_head, k0 + column0, UNIT)
        if REST:
            store_rest(dk + COLUMNS, d_rest * scale, j, len_k - column0, dk_row, D - COLUMNS, UNIT)
        dv_at, dv_inside = at, inside
        if VALUES != D:  # dk and dv are contiguous, both
            dk_batch, dk_head, dk_row = dk_batch // D * VALUES, dk_head // D * VALUES, dk_row // D * VALUES
            dv_at, dv_inside = j * hint_multiple(dk_row, UNIT) + column, (j < len_k - column0) & (column < VALUES)
        dv = head_start(dv, (dk_batch, dk_head, dk_row), batch, kv_head, k0 + column0, UNIT)
        tl.store(dk + at, (d_keys * scale).to(dk.dtype.element_ty), mask=inside)
        tl.store(dv + dv_at, d_values.to(dv.dtype.element_ty), mask=dv_inside)


@triton.jit
def attention_backward_q_kernel(
    q, k, v, do, lse, delta, dq, d_bias, do_batch, do_head, do_row, dq_batch, dq_head, dq_row, bias, slopes, cu_q, cu_k,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, v_one,
    bias_batch, bias_head, bias_row, bias_one, slope_batch,
    rows, sequences, heads, group, twice_q, twice_k, scale, drop_below, seed, drop_factor,
    D: tl.constexpr, VALUES: tl.constexpr, COLUMNS: tl.constexpr, REST: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, UNIT: tl.constexpr, STAGES: tl.constexpr, BY_HAND: tl.constexpr,
):  # fmt: skip
    """Find dQ of BLOCK_M queries of one head, and with ``d_bias`` what they give to a matrix bias, which is ds."""
    bh, tile_m = tl.program_id(0) % (sequences * heads), tl.program_id(0) // (sequences * heads)
    if CAUSAL:
        tile_m = tl.cdiv(twice_q // 2, BLOCK_M) - 1 - tile_m
    row0 = tile_m * BLOCK_M
    batch, head, kv_head, q0, k0, len_q, len_k = locate(bh, heads, group, twice_q // 2, twice_k // 2, cu_q, cu_k)
    if row0 < len_q:
        q = head_start(q, (q_batch, q_head, q_row), batch, head, q0, UNIT)
        do = head_start(do, (do_batch, do_head, do_row), batch, head, q0, UNIT)
        k = head_start(k, (k_batch, k_head, k_row), batch, kv_head, k0, UNIT)
        v = head_start(v, (v_batch, v_head, v_row), batch, kv_head, k0, UNIT)
        queries = load_parts(q, row0, len_q, q_row, D, BLOCK_M, COLUMNS, REST, UNIT, True)
        d_out = load_rows(do, row0, len_q, do_row, 1, VALUES, BLOCK_M, COLUMNS, UNIT, True)
        row, i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
        first = (batch * heads + head) * rows + q0 + row0
        # A row beyond the end, or one that saw no key, has p = exp2(s - inf) = 0.
        top = tl.load(lse + first + row, mask=row < len_q - row0, other=float("inf")) * LOG2E
        top = tl.where(top == float("-inf"), float("inf"), top)
        slope = slopes
        if slopes is not None:
            slope = tl.load(slopes + bh // heads * slope_batch + bh % heads) * LOG2E
            if CAUSAL:
                top += slope * row  # log2_scores leaves this out of every score of the row
        if bias is not None:
            bias += batch * bias_batch + head * bias_head
        if d_bias is not None:  # contiguous (…, queries, keys)
            d_bias += bh.to(tl.int64) * len_q * len_k + tl.cast(row0, tl.int64) * len_k
        row_delta = tl.load(delta + first + row, mask=row < len_q - row0, other=0.0)
        high, full = len_k, len_k // BLOCK_N * BLOCK_N
        if CAUSAL:
            high = tl.maximum(tl.minimum(len_k, row0 + BLOCK_M + len_k - len_q), 0)
            full = tl.minimum(full, tl.maximum(row0 + 1 + len_k - len_q, 0) // BLOCK_N * BLOCK_N)
        total = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
        d_rest = tl.zeros([BLOCK_M, REST], tl.float32) if REST else None
        for MASKED in tl.static_range(2):
            for n in tl.range(full if MASKED else 0, high if MASKED else full, BLOCK_N, num_stages=STAGES):
                keys = load_parts(k, n, len_k, k_row, D, BLOCK_N, COLUMNS, REST, UNIT, MASKED)
                s = multiply(queries, keys)
                s = log2_scores(
                    s, scale * LOG2E, i, j, row0, n, len_q, len_k, bias, bias_row, bias_one, slope, CAUSAL, MASKED
                )
                p = tl.exp2(s - top[:, None])
                values = load_rows(v, n, len_k, v_row, v_one, VALUES, BLOCK_N, COLUMNS, UNIT, MASKED)
                dp = tl.dot(d_out, tl.trans(values), input_precision="ieee")
                if drop_below is not None:
                    dp = tl.where(keep_tile(s, i, j, row0, n, bh, drop_below, seed), dp * drop_factor, 0.0)
                ds = p * (dp - row_delta[:, None])
                if d_bias is not None:  # tiles above the diagonal are left as they were, which is 0
                    tl.store(d_bias + n + (i * len_k + j), ds, mask=(i < len_q - row0) & (j < len_k - n))
                ds = narrow(ds, values.dtype, BY_HAND)
                total = tl.dot(ds, keys[0], total, input_precision="ieee")
                if REST:
                    d_rest = tl.dot(ds, keys[1], d_rest, input_precision="ieee")
        column = tl.arange(0, COLUMNS)[None, :]
        dq = head_start(dq, (dq_batch, dq_head, dq_row), batch, head, q0 + row0, UNIT)
        at, inside = i * hint_multiple(dq_row, UNIT) + column, (i < len_q - row0) & (column < D)
        tl.store(dq + at, (total * scale).to(dq.dtype.element_ty), mask=inside)
        if REST:
            store_rest(dq + COLUMNS, d_rest * scale, i, len_q - row0, dq_row, D - COLUMNS, UNIT)


class Tile(NamedTuple):
    """A launch: queries and keys of a tile, and the compiler's options."""

    m: int
    n: int
    warps: int
    stages: int = 1
    mfma: int = 16  #: AMD: rows of a matrix instruction; the accumulator of 16 takes a quarter of the registers of 32's
    by_hand: bool = False  #: round to bf16 with an addition and a shift, where the GPU cannot convert


#: By architecture and widest head: the tile forward, the same with a matrix bias or dropout, which need registers too,
#: for dK and dV, the same with one of them, and for dQ, also beside ALiBi. gfx942 was chosen by what it compiles to (no
#: spills, two waves or more on a SIMD, 128-bit loads), and by a model (benchmarks/kernels/peers_mi300x.py); sm_90 by
#: measurement (NVIDIA H100, most of it with loads by its TMA, which are gone). Other GPUs take gfx942's.
TILES: dict[str, dict[int, tuple[Tile, ...]]] = {
    "gfx942": {
        64: (
            Tile(128, 64, 4, by_hand=True),
            Tile(128, 32, 4),
            Tile(64, 64, 4),
            Tile(64, 64, 4),
            Tile(64, 64, 4, by_hand=True),
        ),
        128: (
            Tile(128, 32, 4, mfma=32, by_hand=True),
            Tile(128, 32, 4),
            Tile(32, 64, 4, by_hand=True),
            Tile(16, 64, 4, by_hand=True),
            Tile(64, 64, 4, by_hand=True),
            Tile(64, 32, 4),
        ),
        192: (
            Tile(64, 64, 4, by_hand=True),
            Tile(64, 32, 4),
            Tile(64, 64, 4, by_hand=True),  # one wave: 400 registers, none spilled, and 18 % less time than with two
            Tile(16, 32, 4),
            Tile(64, 32, 4, by_hand=True),
            Tile(64, 16, 4),
        ),
        256: (
            Tile(64, 32, 4, by_hand=True),
            Tile(64, 32, 4),
            Tile(16, 32, 4),
            Tile(16, 32, 4),
            Tile(64, 32, 4, by_hand=True),
            Tile(64, 16, 4),
        ),
    },
    "sm_90": {
        64: (Tile(64, 128, 4, 2), Tile(64, 128, 4, 2), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(128, 64, 8, 3)),
        128: (Tile(128, 64, 8, 2), Tile(128, 64, 8, 2), Tile(64, 64, 4, 2), Tile(32, 64, 4, 2), Tile(64, 64, 4, 2)),
        256: (Tile(128, 64, 8, 2), Tile(128, 32, 8, 2), Tile(32, 64, 8, 2), Tile(32, 64, 8, 2), Tile(64, 32, 4)),
    },
    "interpreter": {256: (Tile(16, 16, 4),) * 5},
}


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for (``gfx942``, ``sm_90``, ``interpreter``), or raise ValueError."""
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def check(name: str, t: Any, shape: tuple[int | None, ...], x: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check that ``t`` has this shape (None: any size), one of these types, and lies where ``x`` does: ValueError."""
    if not isinstance(t, torch.Tensor):
        raise ValueError(f"{name} is {t!r:.40}: give a tensor")
    if t.dtype not in dtypes:
        raise ValueError(f"{name} is {t.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if t.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, t.shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(t.shape)}: give {shape}".replace("None", "any"))
    if t.device != x.device:
        raise ValueError(f"{name} is on {t.device}, q on {x.device}: put them on one device")


def heads_second(x: torch.Tensor, layout: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the strides of ``x`` seen as (batch, heads, rows, D); packed sequences are one batch."""
    shape, strides = ((1, *x.shape), (0, *x.stride())) if layout == "thd" else (tuple(x.shape), x.stride())
    order = (0, 1, 2, 3) if layout == "bhsd" else (0, 2, 1, 3)
    return tuple(shape[i] for i in order), tuple(strides[i] for i in order)


def longest(name: str, cu: torch.Tensor, rows: int, given: int | None) -> int:
    """Return the length of the longest sequence. Where it is given, starts on a GPU are not read: no waiting for it."""
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= rows):
        raise ValueError(f"max_seqlen_{name}={given!r}: give the length of the longest sequence, at most {rows}")
    if given is not None and cu.device.type != "cpu":
        return given
    first, last, least, most = map(int, torch.stack([cu[0], cu[-1], *cu.diff().aminmax()]).tolist())
    if first < 0 or least < 0 or last > rows:
        raise ValueError(f"cu_seqlens_{name} runs from {first} to {last}: give starts that never fall, up to {rows}")
    if given is not None and given < most:
        raise ValueError(f"max_seqlen_{name}={given}: the longest sequence has {most}")
    return most if given is None else given


def is_aligned(x: torch.Tensor) -> bool:
    """Return whether every row of ``x`` can be loaded 128 bits at a time."""
    steps = all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])
    return steps and x.stride(-1) == 1 and x.stride(-2) > 0 and x.data_ptr() % 16 == 0


class Problem(NamedTuple):
    """What is known of a call once it is checked."""

    shape: tuple[int, ...]  #: batch, heads, queries, D, D of the values
    sizes: tuple[int, ...]  #: sequences, heads, query heads per KV head, most queries, most keys
    arguments: tuple[Any, ...]  #: what all large kernels end with, from bias to drop_factor
    unit: int  #: elements that 128 bits hold, if all rows start at multiples of them, else 1
    heavy: bool  #: there is a matrix bias or dropout

    def pick(self, part: int, arch: str, dtype: torch.dtype) -> Tile:
        """Return the tile of the forward pass (0), of dK and dV (2) or of dQ (4)."""
        if dtype == torch.float32 and arch != "interpreter":  # twice the room, and no 16-bit matrix unit
            return Tile(32, 32, 4)
        rows = TILES.get(arch, TILES["gfx942"])
        row = rows[min(n for n in rows if n >= sum(self.blocks()))]
        # The largest tile for dQ leaves no register for ALiBi, and is for the GPU that it was chosen for.
        more = self.heavy or (part == 4 and (arch not in TILES or self.arguments[1] is not None))
        return row[min(part + more, len(row) - 1)]

    def blocks(self) -> tuple[int, int]:
        """Return the columns of the tiles of q, k and v, and of second ones of q and k if these are much wider than v.

        Much is where two powers of two, 16 at least, are no more than the one that holds all.
        """
        d, values = self.shape[3:]
        whole, first = (max(16, triton.next_power_of_2(n)) for n in (max(d, values), values))
        rest = max(16, triton.next_power_of_2(d - first))
        return (first, rest) if first + rest <= whole else (whole, 0)

    def constants(self, tile: Tile, arch: str, causal: bool) -> dict[str, Any]:
        """Return the constants and compile options of a large kernel; a matrix unit takes 16 rows at least."""
        limits = {"m": (16, 512), "n": (16, 512), "warps": (1, 32), "mfma": (16, 32)}
        for name, (low, high) in limits.items():
            value = getattr(tile, name)
            if not (isinstance(value, int) and low <= value <= high and value & (value - 1) == 0):
                raise ValueError(f"tile has {name}={value!r}: give a power of two from {low} to {high}")
        (d, values), (columns, rest) = self.shape[3:], self.blocks()
        found = {
            "D": d,
            "VALUES": values,
            "COLUMNS": columns,
            "REST": rest,
            "CAUSAL": bool(causal),
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "STAGES": tile.stages,
            "num_stages": tile.stages,
        }
        amd = {"matrix_instr_nonkdim": tile.mfma} if arch.startswith("gfx") else {}
        return found | {"num_warps": tile.warps} | amd


OPTIONS = ("bias", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "layout", "scale", "causal", "dropout", "seed",
           "max_seqlen_q", "max_seqlen_k")  # fmt: skip


def check_problem(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layout: str = "bhsd",
    scale: float | None = None,
    causal: bool = False,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
) -> Problem:
    """Check all that can be checked without waiting for the GPU; arguments as in :func:`attention_forward`."""
    if layout not in ("bhsd", "bshd", "thd"):
        raise ValueError(f"layout={layout!r}: give one of bhsd, bshd, thd")
    packed, d = layout == "thd", q.shape[-1] if isinstance(q, torch.Tensor) and q.ndim else 0
    check("q", q, (None, None, d) if packed else (None, None, None, d), q, FLOATS)
    check("k", k, (None, None, d) if packed else (q.shape[0], None, None, d), q, (q.dtype,))
    check("v", v, (*k.shape[:-1], None), q, (q.dtype,))
    (batch, heads, len_q, _), of_q = heads_second(q, layout)
    ((_, kv_heads, len_k, _), of_k), of_v = heads_second(k, layout), heads_second(v, layout)[1]
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{heads} query heads and {kv_heads} KV heads: the first must be a multiple of the second")
    for name, size in (("q", d), ("v", v.shape[-1])):
        if not 1 <= size <= 256:
            raise ValueError(f"{name} has head size {size}: give 1 to 256")
    for name, x in (("q", q), ("k", k)):
        if d > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} has stride {x.stride(-1)} along the head size: call .contiguous()")
    if 1 not in of_v[2:] and v.numel() > 1:
        raise ValueError("v: neighbours along the head size or along the keys must be neighbours in memory")
    sequences, max_q, max_k, starts = batch, len_q, len_k, (cu_seqlens_q, cu_seqlens_k)
    if packed:
        if cu_seqlens_q is None or cu_seqlens_k is None:
            raise ValueError("layout 'thd' needs cu_seqlens_q and cu_seqlens_k: int32 starts, the last one the total")
        check("cu_seqlens_q", cu_seqlens_q, (None,), q, (torch.int32,))
        if cu_seqlens_q.shape[0] < 2:
            raise ValueError(f"cu_seqlens_q has {cu_seqlens_q.shape[0]} entries: give all starts and the total")
        check("cu_seqlens_k", cu_seqlens_k, tuple(cu_seqlens_q.shape), q, (torch.int32,))
        max_q, max_k = longest("q", cu_seqlens_q, len_q, max_seqlen_q), longest("k", cu_seqlens_k, len_k, max_seqlen_k)
        sequences, starts = len(cu_seqlens_q) - 1, (cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous())
    of_bias: tuple[int, ...] = (0, 0, 0, 0)
    if bias is not None:
        if packed:
            raise ValueError("bias with packed sequences: pad them, or use alibi_slopes")
        check("bias", bias, (None,) * getattr(bias, "ndim", 0), q, FLOATS)
        shape, more = (batch, heads, len_q, len_k), (1,) * (4 - bias.ndim)
        have = tuple(zip(shape, (*more, *bias.shape), (*more, *bias.stride()), strict=False))
        if bias.ndim > 4 or any(own not in (1, size) for size, own, _ in have):
            raise ValueError(f"bias has shape {tuple(bias.shape)}: give one that broadcasts to {shape}")
        of_bias = tuple(0 if own == 1 else step for _, own, step in have)
    of_slopes = heads if getattr(alibi_slopes, "ndim", 1) == 2 else 0
    if alibi_slopes is not None:
        check("alibi_slopes", alibi_slopes, (sequences, heads) if of_slopes else (heads,), q, (torch.float32,))
        alibi_slopes = alibi_slopes.contiguous()
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < 3.4e38):
        raise ValueError(f"scale={scale!r}: give a positive number")
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"dropout={dropout!r}: give a probability from 0 up to, not including, 1")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63):
        raise ValueError(f"seed={seed!r}: give an integer from 0 to 2**63 - 1")
    # Kept is what has 24 random bits that reach a threshold.
    threshold = round(float(dropout) * 2**24)
    drop = (threshold, seed or 0, 1.0 / (1.0 - threshold / 2**24)) if threshold else (None, None, None)
    sizes = (sequences, heads, heads // kv_heads, max_q, max_k)
    strides = (*of_q[:3], *of_k[:3], *of_v, *of_bias, of_slopes)
    # Triton compiles an argument of 1 in as a constant; 3.6 fails for sm_90 with a length that is one. No twofold is 1.
    numbers = (len_q, *sizes[:3], 2 * max_q, 2 * max_k, float(d**-0.5 if scale is None else scale), *drop)
    arguments = (bias, alibi_slopes, *(starts if packed else (None, None)), *strides, *numbers)
    whole = all(size * q.element_size() % 16 == 0 for size in (d, v.shape[-1]))
    unit = 16 // q.element_size() if whole and all(map(is_aligned, (q, k, v))) else 1
    return Problem((batch, heads, len_q, d, v.shape[-1]), sizes, arguments, unit, bias is not None or threshold > 0)


def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    schedule: str = "grid",
    tile: Tile | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output in the layout and type of ``q``, and the log-sum-exp of every row in fp32; without autograd.

    Args:
        q: (batch, heads, queries, D); ``layout="bshd"``: (batch, queries, heads, D); ``"thd"``, packed sequences of
            different lengths: (all queries, heads, D). fp16, bf16 or fp32, D from 1 to 256.
        k, v: the same with keys; the number of heads may be a divisor (GQA, MQA). ``v`` may have another D, as in MLA,
            where it is narrower; so has the output. It may be a transposed view of a tensor (…, D, keys), which is how
            the document's transV variants keep it.
        schedule: a program per tile ("grid"), or persistent: tiles in turn ("fixed") or from a counter ("dynamic").
        tile: a launch of your own instead of the table's.
        options: ``layout``; ``scale`` (D ** -0.5); ``causal``, aligned to the bottom right; ``bias``, broadcast to
            (batch, heads, queries, keys) and added to the scores; ``alibi_slopes`` (heads,) or (batch, heads) in fp32:
            minus slope times distance; ``dropout`` with its ``seed``; ``cu_seqlens_q``, ``cu_seqlens_k``,
            ``max_seqlen_q``, ``max_seqlen_k`` for "thd": looked up if None, for which the CPU waits. If given, nothing
            on the GPU is checked, and what lies beyond a ``max_seqlen`` that is too small is not computed.

    Returns:
        output, and log-sum-exp (batch, heads, queries), for "thd" (heads, queries). A row all of whose keys are masked
        gives 0 and -inf.

    Raises:
        ValueError: arguments that do not fit together; nothing is launched.
    """
    problem = check_problem(q, k, v, **options)
    if schedule not in ("grid", "fixed", "dynamic"):
        raise ValueError(f"schedule={schedule!r}: give 'grid', 'fixed' or 'dynamic'")
    arch, layout = architecture(q), options.get("layout", "bhsd")
    tile = tile or problem.pick(0, arch, q.dtype)
    constants = problem.constants(tile, arch, options.get("causal", False))
    (batch, heads, rows, *_), (sequences, _, _, max_q, _) = problem.shape, problem.sizes
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, rows)[layout == "thd" :], dtype=torch.float32, device=q.device)
    programs = triton.cdiv(max_q, tile.m) * sequences * heads
    if schedule != "grid":
        units = torch.cuda.get_device_properties(q.device).multi_processor_count if q.device.type == "cuda" else 2
        programs = min(programs, units)
    counter = torch.zeros(1, dtype=torch.int32, device=q.device) if schedule == "dynamic" else None
    if programs:
        given = (q, k, v, out, lse, counter, *heads_second(out, layout)[1][:3], *problem.arguments)
        constants["BY_HAND"] = tile.by_hand and q.dtype == torch.bfloat16
        attention_forward_kernel[(programs,)](*given, UNIT=problem.unit, SCHEDULE=schedule, **constants)
    return out, lse


def attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    bias_gradient: bool = False,
    tiles: tuple[Tile, Tile] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the gradients of q, k and v, and with ``bias_gradient`` (batch, heads, queries, keys) in fp32, or None.

    Args:
        do: gradient of the output, in its layout.
        q, k, v, options: as they were given to :func:`attention_forward`, ``dropout`` and ``seed`` included.
        out, lse: what it returned.
        tiles: launches of your own for dK and dV, and for dQ.

    Raises:
        ValueError: arguments that do not fit together; nothing is launched.
    """
    problem, layout = check_problem(q, k, v, **options), options.get("layout", "bhsd")
    (batch, heads, rows, _, values), (sequences, _, group, max_q, max_k) = problem.shape, problem.sizes
    check("out", out, (*q.shape[:-1], values), q, (q.dtype,))
    check("lse", lse, (batch, heads, rows)[layout == "thd" :], q, (torch.float32,))
    check("do", do, tuple(out.shape), q, (*FLOATS, torch.float64))
    if bias_gradient and options.get("bias") is None:
        raise ValueError("bias_gradient without a bias: pass the bias too")
    arch, causal, lse, do = architecture(q), options.get("causal", False), lse.contiguous(), do.to(q.dtype)
    out, do = (x if x.stride(-1) == 1 else x.contiguous() for x in (out, do))
    kv_tile, q_tile = tiles or (problem.pick(part, arch, q.dtype) for part in (2, 4))
    by_hand = arch == "gfx942" and q.dtype == torch.bfloat16
    for_kv, for_q = (
        problem.constants(tile, arch, causal) | {"BY_HAND": by_hand and tile.by_hand} for tile in (kv_tile, q_tile)
    )
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    # Zeros: the kernel does not visit what causal hides.
    d_bias = q.new_zeros((batch, heads, max_q, max_k), dtype=torch.float32) if bias_gradient else None
    if not (q.numel() and k.numel()):
        return dq.zero_(), dk.zero_(), dv.zero_(), d_bias
    unit = problem.unit if is_aligned(out) and is_aligned(do) else 1
    delta = torch.empty(lse.shape, dtype=torch.float32, device=q.device)
    of_out, of_do, of_dq, of_dk = (heads_second(x, layout)[1][:3] for x in (out, do, dq, dk))
    attention_delta_kernel[(triton.cdiv(rows, 64) * batch * heads,)](
        out, do, delta, *of_out, *of_do, heads, rows, D=values, COLUMNS=for_q["COLUMNS"], BLOCK=64, UNIT=unit
    )
    given = (q, k, v, do, lse, delta)
    attention_backward_kv_kernel[(triton.cdiv(max_k, kv_tile.n) * sequences * (heads // group),)](
        *given, dk, dv, *of_do, *of_dk, *problem.arguments, UNIT=unit, **for_kv
    )
    attention_backward_q_kernel[(triton.cdiv(max_q, q_tile.m) * sequences * heads,)](
        *given, dq, d_bias, *of_do, *of_dq, *problem.arguments, UNIT=unit, **for_q
    )
    return dq, dk, dv, d_bias


class Attention(torch.autograd.Function):
    """Keeps q, k, v, the output and one number per row, never a matrix of scores. Call :func:`attention`."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> Any:
        """Return the output, and with ``return_lse`` the log-sum-exp; ``given`` are the values of :data:`OPTIONS`."""
        if ctx.needs_input_grad[4]:
            raise ValueError("alibi_slopes require a gradient, which is not computed: pass alibi_slopes.detach()")
        *values, return_lse = given
        out, lse = attention_forward(q, k, v, **dict(zip(OPTIONS, values, strict=True)))
        ctx.save_for_backward(q, k, v, out, lse, *values[:4])
        for name, value in zip(OPTIONS[4:], values[4:], strict=True):
            setattr(ctx, name, value)
        if return_lse:
            ctx.mark_non_differentiable(lse)
        return (out, lse) if return_lse else out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, do: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Return the gradients of q, k, v and bias."""
        q, k, v, out, lse, *tensors = ctx.saved_tensors
        options = dict(zip(OPTIONS, (*tensors, *(getattr(ctx, name) for name in OPTIONS[4:])), strict=True))
        wanted = tensors[0] is not None and ctx.needs_input_grad[3]
        *gradients, d_bias = attention_backward(do, q, k, v, out, lse, bias_gradient=wanted, **options)
        if d_bias is not None:
            d_bias = d_bias.sum_to_size(tensors[0].shape).to(tensors[0].dtype)  # what was broadcast is summed
        return *gradients, d_bias, *(None,) * 11


def attention(
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
    """Return attention, differentiable by ``q``, ``k``, ``v`` and ``bias``; see :func:`attention_forward`.

    Args:
        dropout, seed: with a seed the same elements are dropped in every call; without one it is drawn from torch's
            CPU generator, so that ``torch.manual_seed`` reproduces a run.
        return_lse: return (output, log-sum-exp); no gradient flows through the latter.

    Raises:
        ValueError: see :func:`attention_forward`; or ``alibi_slopes`` that ask for a gradient.
    """
    seed = int(torch.randint(1 << 62, ())) if dropout and seed is None else seed
    options = (layout, scale, causal, dropout, seed, max_seqlen_q, max_seqlen_k, return_lse)
    return Attention.apply(q, k, v, bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k, *options)


def philox_keep(seed: int, bh: int, rows: int, columns: int, threshold: int) -> torch.Tensor:
    """Return which elements of a (rows, columns) matrix dropout keeps: Philox 4x32 with seven rounds, in int64.

    Args:
        bh: number of the (sequence, head) pair, the third counter; columns and rows are the first two.
        threshold: an element is kept when the top 24 of its 32 random bits reach it.

    Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    >>> philox_keep(7, 0, 1000, 10, 1 << 22).float().mean().item()  # a quarter is dropped
    0.7569000124931335
    """
    mask = 0xFFFFFFFF
    c0 = torch.arange(columns)[None, :].expand(rows, columns)
    c1 = torch.arange(rows)[:, None].expand(rows, columns)
    c2, c3 = torch.full_like(c0, bh), torch.zeros_like(c0)
    k0, k1 = seed & mask, seed >> 32

    def product(a: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # 32 x 32 bits overflow int64's sign: the factor is split into halves of 16.
        low, high = (a & 0xFFFF) * x, (a >> 16) * x
        high = high + (low >> 16)
        return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)

    for _ in range(7):
        (h0, l0), (h1, l1) = product(0xD2511F53, c0), product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return (c0 >> 8) >= threshold


def reference_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the kernels compute, (batch, heads, queries, D) and (batch, heads, queries), with all scores stored.

    q, k, v are (batch, heads, rows, D) with fewer KV heads and another D of v allowed; give float64 for a yardstick.
    Differentiable. A row whose keys are all masked gives 0 and -inf.

    >>> x = torch.eye(2, dtype=torch.float64)[None, None]
    >>> out, lse = reference_attention(x, x, x, causal=True)
    >>> out[0, 0, 0].tolist(), round(lse[0, 0, 0].item(), 4)  # the first query sees the first key only
    ([1.0, 0.0], 0.7071)
    """
    batch, heads, len_q, d = q.shape
    len_k, group = k.shape[2], heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * (d**-0.5 if scale is None else scale)
    i, j = torch.arange(len_q, device=q.device)[:, None], torch.arange(len_k, device=q.device)[None, :]
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(s.dtype).expand(batch, heads)[..., None, None]
        s = s - slopes * (i + len_k - len_q - j).abs()
    if bias is not None:
        s = s + bias.to(s.dtype)
    if causal:
        s = s.masked_fill(j > i + len_k - len_q, float("-inf"))
    # A row without keys would give exp(-inf - -inf) = NaN, in the gradient too: it is shifted by 0 instead.
    top = s.amax(-1, keepdim=True).detach() if len_k else s.new_zeros(*s.shape[:-1], 1)
    p = torch.exp(s - torch.where(top.isfinite(), top, 0.0))
    total = p.sum(-1, keepdim=True)
    lse = (top + total.log())[..., 0] if len_k else s.new_full(s.shape[:-1], float("-inf"))
    p = p / torch.where(total > 0, total, 1.0)
    if dropout:
        threshold = round(dropout * 2**24)
        masks = [philox_keep(seed, n, len_q, len_k, threshold) for n in range(batch * heads)]
        keep = torch.stack(masks).view(batch, heads, len_q, len_k).to(p.device)
        p = p * keep / (1.0 - threshold / 2**24)
    return p @ v, lse
