# SPDX-License-Identifier: MIT
"""Small Triton kernels to read, measure and repair: a copy, int4 keys, an unhinted GEMM."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["int4_scores_gathered", "int4_scores_planar", "int4_scores_reshaped"]


@triton.jit
def stream_copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Copy ``y = x``, one wide load and store for each step."""
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offset = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + offset, tl.load(x_ptr + offset, mask=offset < n), mask=offset < n)


@triton.jit
def int4_scores_reshaped(q_ptr, k_ptr, pair_ptr, out_ptr, n, M: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """Compute scores ``q @ k.T`` with int4 keys: load the packed words, unpack them with a reshape, transpose,
    multiply.

    q is (M, D) fp16; k is (n, D / 8) int32 whose nibble j of word w is dimension 8 w + j; pair is (n,) int32 with a
    scale (low half) and a shift (high half) in fp16: key = nibble * scale + shift. out is (M, n) fp32.
    """
    words: tl.constexpr = D // 8
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, M)
    q = tl.load(q_ptr + rows[:, None] * D + tl.arange(0, D)[None, :])
    live = tokens[:, None] < n
    word = tl.load(k_ptr + tokens[:, None] * words + tl.arange(0, words)[None, :], mask=live, other=0)
    pair = tl.load(pair_ptr + tokens[None, :], mask=tokens[None, :] < n, other=0)
    pair = tl.trans(pair)
    # An int32 holds two fp16 numbers: the low half is the scale, the high half the shift.
    scale = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    nibble = (word[:, :, None] >> (tl.arange(0, 8) * 4)[None, None, :]) & 0xF
    key = tl.reshape(nibble, (BLOCK, D)).to(tl.float16) * scale + shift
    scores = tl.dot(q, tl.trans(key))
    tl.store(out_ptr + rows[:, None] * n + tokens[None, :], scores, mask=tokens[None, :] < n)


@triton.jit
def int4_scores_gathered(q_ptr, k_ptr, pair_ptr, out_ptr, n, M: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """Compute the scores without a reshape: every dimension loads its own word (eight lanes the same one)."""
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, M)
    dims = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :])
    live = tokens[:, None] < n
    word = tl.load(k_ptr + tokens[:, None] * (D // 8) + (dims // 8)[None, :], mask=live, other=0)
    pair = tl.load(pair_ptr + tokens[:, None], mask=live, other=0)
    # An int32 holds two fp16 numbers: the low half is the scale, the high half the shift.
    scale = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    nibble = (word >> ((dims % 8) * 4)[None, :]) & 0xF
    key = nibble.to(tl.float16) * scale + shift
    scores = tl.dot(q, tl.trans(key))
    tl.store(out_ptr + rows[:, None] * n + tokens[None, :], scores, mask=tokens[None, :] < n)


@triton.jit
def int4_scores_planar(q_ptr, k_ptr, pair_ptr, out_ptr, n, M: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """Compute the scores with another packing: nibble j of word w is dimension j * (D / 8) + w.

    Each of the eight planes is then a ready tile of keys, and the product is a sum of eight smaller ones.
    """
    words: tl.constexpr = D // 8
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, M)
    part = tl.arange(0, words)
    live = tokens[None, :] < n
    word = tl.load(k_ptr + tokens[None, :] * words + part[:, None], mask=live, other=0)
    pair = tl.load(pair_ptr + tokens[None, :], mask=live, other=0)
    # An int32 holds two fp16 numbers: the low half is the scale, the high half the shift.
    scale = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    scores = tl.zeros((M, BLOCK), tl.float32)
    for plane in tl.static_range(8):
        q = tl.load(q_ptr + rows[:, None] * D + plane * words + part[None, :])
        key = ((word >> (plane * 4)) & 0xF).to(tl.float16) * scale + shift
        scores = tl.dot(q, key, scores)
    tl.store(out_ptr + rows[:, None] * n + tokens[None, :], scores, mask=live)


@triton.jit
def tile_matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Compute ``c = a @ b`` for contiguous (M, K) and (K, N) fp16, one tile per program; K must be a multiple of BK."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + (rm % M)[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + (rn % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * N
    c = c_ptr + rm[:, None].to(tl.int64) * N + rn[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))
