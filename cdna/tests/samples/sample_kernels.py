# SPDX-License-Identifier: MIT
"""The Triton kernels behind the committed samples (see make_samples.py)."""

import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + c, (e / tl.sum(e, 0)).to(y_ptr.dtype.element_ty), mask=c < n)


@triton.jit
def gemm(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sam + rk[None, :]
    pb = b + rk[:, None] * sbk + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * sbk
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * scm + rn[None, :], acc.to(c.dtype.element_ty), mask=mask)


@triton.jit
def nested(x, y, n, m, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        row = tl.zeros((BLOCK,), tl.float32)
        for j in range(m):
            row += tl.load(x + (i * m + j) * BLOCK + o)
        total += tl.sqrt(row)
    tl.store(y + o, total)


@triton.jit
def int4_kv_scores(
    q_ptr, k_ptr, pair_ptr, out_ptr, n_tokens, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr
):
    words: tl.constexpr = D // 8
    tokens = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :])
    live = tokens[:, None] < n_tokens
    word = tl.load(k_ptr + tokens[:, None] * words + tl.arange(0, words)[None, :], mask=live, other=0)
    pair = tl.load(pair_ptr + tokens[None, :], mask=tokens[None, :] < n_tokens, other=0)
    scale = tl.trans((pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True))
    shift = tl.trans((pair >> 16).to(tl.int16).to(tl.float16, bitcast=True))
    nibble = (word[:, :, None] >> (tl.arange(0, 8) * 4)[None, None, :]) & 0xF
    k = tl.reshape(nibble, (BLOCK_N, D)).to(tl.float16) * scale + shift
    scores = tl.dot(q, tl.trans(k))
    tl.store(out_ptr + rows[:, None] * n_tokens + tokens[None, :], scores, mask=tokens[None, :] < n_tokens)
