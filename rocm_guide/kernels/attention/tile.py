# SPDX-License-Identifier: MIT
"""What the attention kernels share: loading a tile, masking and biasing a tile of scores, and dropout's random bits."""

from __future__ import annotations

import triton
import triton.language as tl

from rocm_guide.kernels.gemm import hint_multiple

__all__ = ["load_rows"]


@triton.jit
def locate(bh, heads, group, len_q, len_k, cu):
    """Of (sequence, head) number ``bh``: batch, head, KV head, first query, first key (int64), queries, keys."""
    sequence = bh // heads
    head = (bh % heads).to(tl.int64)
    batch = sequence.to(tl.int64)
    q0 = batch * 0
    k0 = batch * 0
    if cu is not None:
        first_q, first_k = tl.load(cu[0] + sequence), tl.load(cu[1] + sequence)
        len_q = tl.load(cu[0] + sequence + 1) - first_q
        len_k = tl.load(cu[1] + sequence + 1) - first_k
        q0, k0 = first_q.to(tl.int64), first_k.to(tl.int64)
        batch = batch * 0  # packed sequences are one batch
    return batch, head, head // group, q0, k0, len_q, len_k


@triton.jit
def head_start(x, strides, batch, head, row, UNIT: tl.constexpr = 1):
    """Pointer to one row of one head; all strides are multiples of UNIT."""
    return x + hint_multiple(batch * strides[0] + head * strides[1] + row * strides[2], UNIT)


@triton.jit
def load_rows(
    base,
    start,
    length,
    strides,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Rows ``start`` to ``start + ROWS`` of a (length, D) matrix as a (ROWS, COLUMNS) tile; zero outside.

    The start moves a scalar 64-bit base; offsets inside the tile are 32-bit and the same in every round of a loop.
    """
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    at = rows[:, None] * strides[0] + columns[None, :] * strides[1]
    ptr = base + tl.cast(start, tl.int64) * strides[0] + at
    if MASKED:
        if D == COLUMNS:
            return tl.load(ptr, mask=rows[:, None] < length - start, other=0.0)
        return tl.load(ptr, mask=(rows[:, None] < length - start) & (columns[None, :] < D), other=0.0)
    if D == COLUMNS:
        return tl.load(ptr)
    return tl.load(ptr, mask=columns[None, :] < D, other=0.0)


@triton.jit
def mask_scores(s, i, j, row0, column0, len_q, len_k, CAUSAL: tl.constexpr):
    """-inf where no key is, and above the diagonal.

    ``i`` and ``j`` are the indices of queries and keys inside the tile, shaped to broadcast to ``s``, which may be
    turned either way. Causal is aligned to the bottom right: query i sees key j when j <= i + len_k - len_q.
    """
    if CAUSAL:
        last = tl.minimum(i + (row0 + len_k - len_q), len_k - 1)
        return tl.where(j + column0 <= last, s, float("-inf"))
    return tl.where(j < len_k - column0, s, float("-inf"))


@triton.jit
def log2_scores(s, scale, i, j, row0, column0, len_q, len_k, bias, bias_strides, slope, CAUSAL: tl.constexpr):
    """Raw products of a tile -> scores in units of log2, with matrix bias and ALiBi.

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
        first = bias + (tl.cast(row0, tl.int64) * bias_strides[2] + tl.cast(column0, tl.int64) * bias_strides[3])
        at = i * bias_strides[2] + j * bias_strides[3]
        inside = (i < len_q - row0) & (j < len_k - column0)
        s += tl.load(first + at, mask=inside, other=0.0).to(tl.float32) * 1.4426950408889634
    return s


@triton.jit
def keep_tile(s, i, j, row0, column0, bh, drop):
    """Which probabilities of a tile dropout keeps: Philox bits of (seed, key, query, head), 24 against a threshold.

    They depend on the position and on nothing else, so the backward pass asks again instead of storing a mask, and
    the answer is the same for every tile size. ``s`` gives the shape. Seven rounds pass all statistical tests of the
    paper that introduced Philox (ten are its default), and take a third fewer registers for their keys.
    """
    zero = tl.zeros(s.shape, tl.uint32)
    rows, columns = zero + (i + row0).to(tl.uint32), zero + (j + column0).to(tl.uint32)
    bits, _, _, _ = tl.philox(drop[1], columns, rows, zero + bh.to(tl.uint32), zero, 7)
    return (bits >> 8).to(tl.int32) >= drop[0]
