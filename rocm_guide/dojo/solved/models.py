# SPDX-License-Identifier: MIT
"""Solutions of puzzles that are parts of today's models."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["block_scaled_matmul", "grouped_matmul", "linear_cross_entropy", "rope_cache"]


@triton.jit
def block_scaled_kernel(
    a,
    b,
    sa,
    sb,
    c,
    M,
    N,
    K,
    sam,
    sak,
    sbn,
    sbk,
    ssam,
    ssak,
    ssbn,
    ssbk,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    left, right = a + i[:, None].to(tl.int64) * sam, b + j[None, :].to(tl.int64) * sbn
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(left + k[None, :] * sak, mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(right + k[:, None] * sbk, mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        rows = tl.load(sa + i * ssam + start // 128 * ssak, mask=i < M, other=0.0)
        columns = tl.load(sb + j // 128 * ssbn + start // 128 * ssbk, mask=j < N, other=0.0)
        total += tl.dot(x, y) * rows[:, None] * columns[None, :]
    place = c + i[:, None].to(tl.int64) * N + j[None, :]
    tl.store(place, total.to(tl.bfloat16), mask=(i[:, None] < M) & (j[None, :] < N))


def block_scaled_matmul(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    """Multiply the sums of each 128 of K by the scales of their row and their block, before they are added."""
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty(M, N, dtype=torch.bfloat16, device=a.device)
    strides = (*a.stride(), *b.stride(), *sa.stride(), *sb.stride())
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 64))
    block_scaled_kernel[grid](a, b, sa, sb, c, M, N, K, *strides, BM=128, BN=64, BK=128)
    return c


@triton.jit
def grouped_kernel(
    x, w, ends, y, N, K, experts, sxm, sxk, swe, swk, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    # Number its tiles from expert to expert: which expert has this one, and from which row on?
    number, before, start = tl.program_id(1), 0, 0
    expert, first, last = -1, 0, 0
    for e in range(experts):
        end = tl.load(ends + e)
        tiles = tl.cdiv(end - start, BM)
        mine = (number >= before) & (number < before + tiles)
        expert = tl.where(mine, e, expert)
        first = tl.where(mine, start + (number - before) * BM, first)
        last = tl.where(mine, end, last)
        before, start = before + tiles, end
    if expert >= 0:
        i = first + tl.arange(0, BM)
        j = tl.program_id(0) * BN + tl.arange(0, BN)
        left = x + i[:, None].to(tl.int64) * sxm
        right = w + tl.cast(expert, tl.int64) * swe + j[None, :].to(tl.int64) * swn
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(0, K, BK):
            k = step + tl.arange(0, BK)
            tokens = tl.load(left + k[None, :] * sxk, mask=(i[:, None] < last) & (k[None, :] < K), other=0.0)
            far = k[:, None].to(tl.int64) * swk
            weights = tl.load(right + far, mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
            total = tl.dot(tokens, weights, total)
        place = y + i[:, None].to(tl.int64) * N + j[None, :]
        tl.store(place, total.to(tl.float16), mask=(i[:, None] < last) & (j[None, :] < N))


def grouped_matmul(x: Any, w: Any, ends: Any) -> Any:
    """Launch as many tiles as there can be at most: each expert has one that is not full, and nobody asks the GPU."""
    (T, K), (experts, _, N) = x.shape, w.shape
    y = torch.empty(T, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(N, 128), triton.cdiv(T, 64) + experts)
    grouped_kernel[grid](x, w, ends, y, N, K, experts, *x.stride(), *w.stride(), BM=64, BN=128, BK=32)
    return y


@triton.jit
def rope_kernel(
    q,
    k,
    v,
    cos,
    sin,
    slots,
    keys,
    values,
    out,
    qt,
    qh,
    kt,
    kh,
    vt,
    vh,
    ct,
    st,
    keys_slot,
    keys_head,
    values_slot,
    values_head,
    HEADS: tl.constexpr,
    FEW: tl.constexpr,
    HALF: tl.constexpr,
    HB: tl.constexpr,
    FB: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    h, f, d = tl.arange(0, HB)[:, None], tl.arange(0, FB)[:, None], tl.arange(0, HALF)[None, :]
    c, s = tl.load(cos + token * ct + d), tl.load(sin + token * st + d)
    some = h < HEADS
    low = tl.load(q + token * qt + h * qh + d, mask=some, other=0.0).to(tl.float32)
    high = tl.load(q + token * qt + h * qh + d + HALF, mask=some, other=0.0).to(tl.float32)
    place = out + (token * HEADS + h) * 2 * HALF + d
    tl.store(place, (low * c - high * s).to(tl.float16), mask=some)
    tl.store(place + HALF, (high * c + low * s).to(tl.float16), mask=some)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        few = f < FEW
        first = tl.load(k + token * kt + f * kh + d, mask=few, other=0.0).to(tl.float32)
        second = tl.load(k + token * kt + f * kh + d + HALF, mask=few, other=0.0).to(tl.float32)
        key = keys + slot * keys_slot + f * keys_head + d
        tl.store(key, (first * c - second * s).to(tl.float16), mask=few)
        tl.store(key + HALF, (second * c + first * s).to(tl.float16), mask=few)
        value = values + slot * values_slot + f * values_head + d
        tl.store(value, tl.load(v + token * vt + f * vh + d, mask=few, other=0.0), mask=few)
        tl.store(value + HALF, tl.load(v + token * vt + f * vh + d + HALF, mask=few, other=0.0), mask=few)


def rope_cache(q: Any, k: Any, v: Any, cos: Any, sin: Any, slots: Any, keys: Any, values: Any) -> Any:
    """Give each program one token with all of its heads, which share its angles and its slot."""
    tokens, heads, size = q.shape
    few = k.shape[1]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2], cos.stride(0), sin.stride(0))
    strides += (*keys.stride()[:2], *values.stride()[:2])
    sizes = (heads, few, size // 2, triton.next_power_of_2(heads), triton.next_power_of_2(few))
    rope_kernel[(tokens,)](q, k, v, cos, sin, slots, keys, values, out, *strides, *sizes)
    return out


@triton.jit
def scores_kernel(
    x, w, targets, tops, sums, picked, T, V, D, PART, xt, wv, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    target = tl.load(targets + i, mask=i < T, other=-100)
    left = x + i[:, None].to(tl.int64) * xt
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mine = tl.zeros((BM,), tl.float32)
    last = tl.minimum((tl.program_id(1) + 1) * PART, V)
    for word in range(tl.program_id(1) * PART, last, BN):
        j = word + tl.arange(0, BN)
        right = w + j[None, :].to(tl.int64) * wv
        score = tl.zeros((BM, BN), tl.float32)
        for start in range(0, D, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(left + k[None, :], mask=(i[:, None] < T) & (k[None, :] < D), other=0.0)
            b = tl.load(right + k[:, None], mask=(k[:, None] < D) & (j[None, :] < last), other=0.0)
            score = tl.dot(a, b, score)
        score = tl.where(j[None, :] < last, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(score - new[:, None]), 1)
        mine += tl.sum(tl.where(j[None, :] == target[:, None], score, 0.0), 1)
        top = new
    place = tl.program_id(1) * T + i
    tl.store(tops + place, top, mask=i < T)
    tl.store(sums + place, total, mask=i < T)
    tl.store(picked + place, mine, mask=i < T)


@triton.jit
def losses_kernel(targets, tops, sums, picked, losses, T, parts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < T
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mine = tl.zeros((BLOCK,), tl.float32)
    for part in range(parts):
        here = tl.load(tops + part * T + i, mask=inside, other=0.0)
        new = tl.maximum(top, here)
        added = tl.load(sums + part * T + i, mask=inside, other=1.0) * tl.exp(here - new)
        total = total * tl.exp(top - new) + added
        mine += tl.load(picked + part * T + i, mask=inside, other=0.0)
        top = new
    counts = tl.load(targets + i, mask=inside, other=-100) >= 0
    tl.store(losses + i, tl.where(counts, top + tl.log(total) - mine, 0.0), mask=inside)


def linear_cross_entropy(x: Any, w: Any, targets: Any) -> Any:
    """Split the words into parts, each with maximum, sum and the target's score; a second kernel merges them."""
    (T, D), V = x.shape, w.shape[0]
    part = max(triton.cdiv(triton.cdiv(V, 16), 64) * 64, 256)
    parts = triton.cdiv(V, part)
    tops, sums, picked = torch.empty(3, parts, T, dtype=torch.float32, device=x.device)
    losses = torch.empty(T, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(T, 128), parts)
    scores_kernel[grid](
        x, w, targets, tops, sums, picked, T, V, D, part, x.stride(0), w.stride(0), BM=128, BN=64, BK=64
    )
    losses_kernel[(triton.cdiv(T, 256),)](targets, tops, sums, picked, losses, T, parts, BLOCK=256)
    return losses
