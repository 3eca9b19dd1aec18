# SPDX-License-Identifier: MIT
"""Solutions of puzzles with products, and of two repairs."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["lean_matmul", "naive_matmul", "pair_sums", "skinny_gemv"]


@triton.jit
def naive_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    columns, rows = a + i.to(tl.int64) * sam, b + j.to(tl.int64) * sbn
    for _ in range(K):
        column = tl.load(columns, mask=i < M, other=0.0).to(tl.float32)
        row = tl.load(rows, mask=j < N, other=0.0).to(tl.float32)
        total += column[:, None] * row[None, :]
        columns, rows = columns + sak, rows + sbk  # a pointer has 64 bits: it may go as far as it likes
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None].to(tl.int64) * N + j[None, :], total, mask=inside)


def naive_matmul(a: Any, b: Any) -> Any:
    """Let each program add K outer products of a column of a and a row of b."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    naive_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=32, BN=64)
    return c


@triton.jit
def gemv_kernel(w, x, y, N, K, stride, step, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        tile = w + i[:, None].to(tl.int64) * stride + k[None, :]
        weights = tl.load(tile, mask=(i[:, None] < N) & (k[None, :] < K), other=0.0)
        token = tl.load(x + k * step, mask=k < K, other=0.0)
        total += weights.to(tl.float32) * token.to(tl.float32)[None, :]
    tl.store(y + i, tl.sum(total, 1), mask=i < N)


def skinny_gemv(w: Any, x: Any) -> Any:
    """Give each program eight rows; a lane keeps its own sums, and they are added once, at the end."""
    N, K = w.shape
    y = torch.empty(N, dtype=torch.float32, device=w.device)
    gemv_kernel[(triton.cdiv(N, 8),)](w, x, y, N, K, w.stride(0), x.stride(0), ROWS=8, BLOCK=512)
    return y


@triton.jit
def pairs_kernel(x, y, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(x + j, mask=j < 2 * m, other=0.0)
    even, odd = tl.split(tl.reshape(both, (BLOCK, 2)))
    tl.store(y + i, even + odd, mask=i < m)


def pair_sums(x: Any) -> Any:
    """Load both neighbours in one access, and part them in registers."""
    y = torch.empty(x.numel() // 2, dtype=x.dtype, device=x.device)
    pairs_kernel[(triton.cdiv(y.numel(), 1024),)](x, y, y.numel(), BLOCK=1024)
    return y


@triton.jit
def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None].to(tl.int64) * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None].to(tl.int64) * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    place = c + i[:, None].to(tl.int64) * N + j[None, :]
    tl.store(place, total, mask=(i[:, None] < M) & (j[None, :] < N))


def lean_matmul(a: Any, b: Any) -> Any:
    """Compute a tile of 128 x 128: its sums take 64 registers of each lane instead of 256."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    product_kernel[grid](a, b, c, M, N, K, BM=128, BN=128, BK=32)
    return c
