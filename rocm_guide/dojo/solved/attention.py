# SPDX-License-Identifier: MIT
"""Solutions of puzzles with attention."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["causal_attention", "decode", "paged_decode"]


@triton.jit
def causal_kernel(
    q, k, v, out, N, M, qh, qn, kh, kn, vh, vn, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + head * qh + i[:, None] * qn + d[None, :], mask=i[:, None] < N, other=0.0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * BM, M), BN):
        j = start + tl.arange(0, BN)
        key = tl.load(k + head * kh + j[None, :] * kn + d[:, None], mask=j[None, :] < M, other=0.0)
        seen = j[None, :] <= i[:, None]
        score = tl.where(seen, tl.dot(query, key) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new[:, None])
        shrink = tl.exp(top - new)
        value = tl.load(v + head * vh + j[:, None] * vn + d[None, :], mask=j[:, None] < M, other=0.0)
        result = tl.dot(weight.to(tl.float16), value, result * shrink[:, None])
        total = total * shrink + tl.sum(weight, 1)
        top = new
    place = out + (head * N + i[:, None]) * D + d[None, :]
    tl.store(place, (result / total[:, None]).to(tl.float16), mask=i[:, None] < N)


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    """End the loop at the last key that a query of the block sees; 32 keys at a time leave room for two waves."""
    heads, N, D = q.shape
    out = torch.empty(heads, N, D, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])
    grid = (triton.cdiv(N, 64), heads)
    causal_kernel[grid](q, k, v, out, N, k.shape[1], *strides, D**-0.5, D=D, BM=64, BN=32)
    return out


@triton.jit
def part_kernel(q, k, v, parts, tops, sums, M, PART, kh, kn, vh, vn, scale, D: tl.constexpr, BN: tl.constexpr):
    head, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    d = tl.arange(0, D)
    query = tl.load(q + head * D + d).to(tl.float32)
    top, total = float("-inf"), 0.0
    result = tl.zeros((D,), tl.float32)
    last = tl.minimum((part + 1) * PART, M)
    for start in range(part * PART, last, BN):
        j = start + tl.arange(0, BN)
        inside = j[:, None] < last
        key = tl.load(k + head * kh + j[:, None] * kn + d[None, :], mask=inside, other=0.0)
        score = tl.sum(key.to(tl.float32) * query[None, :], 1) * scale
        score = tl.where(j < last, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 0))
        weight, shrink = tl.exp(score - new), tl.exp(top - new)
        value = tl.load(v + head * vh + j[:, None] * vn + d[None, :], mask=inside, other=0.0)
        result = result * shrink + tl.sum(weight[:, None] * value.to(tl.float32), 0)
        total = total * shrink + tl.sum(weight, 0)
        top = new
    place = head * tl.num_programs(0) + part
    tl.store(parts + place * D + d, result)
    tl.store(tops + place, top)
    tl.store(sums + place, total)


@triton.jit
def merge_kernel(parts, tops, sums, out, PARTS: tl.constexpr, D: tl.constexpr):
    head, p, d = tl.program_id(0), tl.arange(0, PARTS), tl.arange(0, D)
    tops_here = tl.load(tops + head * PARTS + p)
    weight = tl.exp(tops_here - tl.max(tops_here, 0))
    total = tl.sum(tl.load(sums + head * PARTS + p) * weight, 0)
    tile = tl.load(parts + (head * PARTS + p[:, None]) * D + d[None, :])
    tl.store(out + head * D + d, (tl.sum(tile * weight[:, None], 0) / total).to(tl.float16))


def decode(q: Any, k: Any, v: Any) -> Any:
    """Split the tokens of each head into sixteen parts, which a second kernel merges by their maxima."""
    (heads, D), M, count = q.shape, k.shape[1], 16
    parts = torch.empty(heads, count, D, dtype=torch.float32, device=q.device)
    tops, sums = torch.empty_like(parts[..., 0]), torch.empty_like(parts[..., 0])
    out = torch.empty(heads, D, dtype=q.dtype, device=q.device)
    strides = (*k.stride()[:2], *v.stride()[:2])
    part = triton.cdiv(M, count)
    part_kernel[(count, heads)](q, k, v, parts, tops, sums, M, part, *strides, D**-0.5, D=D, BN=32)
    merge_kernel[(heads,)](parts, tops, sums, out, PARTS=count, D=D)
    return out


@triton.jit
def paged_kernel(
    q,
    k,
    v,
    table,
    parts,
    tops,
    sums,
    M,
    PART,
    page_stride,
    token_stride,
    head_stride,
    scale,
    P: tl.constexpr,
    D: tl.constexpr,
    BN: tl.constexpr,
):
    head, part = tl.program_id(1), tl.program_id(0)
    d = tl.arange(0, D)
    query = tl.load(q + head * D + d).to(tl.float32)
    top, total = float("-inf"), 0.0
    result = tl.zeros((D,), tl.float32)
    last = tl.minimum((part + 1) * PART, M)
    for start in range(part * PART, last, BN):
        j = start + tl.arange(0, BN)
        page = tl.load(table + j // P, mask=j < last, other=0).to(tl.int64)
        place = page * page_stride + j % P * token_stride + head * head_stride
        inside = j[:, None] < last
        key = tl.load(k + place[:, None] + d[None, :], mask=inside, other=0.0)
        score = tl.sum(key.to(tl.float32) * query[None, :], 1) * scale
        score = tl.where(j < last, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 0))
        weight, shrink = tl.exp(score - new), tl.exp(top - new)
        value = tl.load(v + place[:, None] + d[None, :], mask=inside, other=0.0)
        result = result * shrink + tl.sum(weight[:, None] * value.to(tl.float32), 0)
        total = total * shrink + tl.sum(weight, 0)
        top = new
    at = head * tl.num_programs(0) + part
    tl.store(parts + at * D + d, result)
    tl.store(tops + at, top)
    tl.store(sums + at, total)


def paged_decode(q: Any, k: Any, v: Any, table: Any, length: int) -> Any:
    """Decode in the same way, with the page of each token looked up first."""
    (heads, D), P, count = q.shape, k.shape[1], 16
    parts = torch.empty(heads, count, D, dtype=torch.float32, device=q.device)
    tops, sums = torch.empty_like(parts[..., 0]), torch.empty_like(parts[..., 0])
    out = torch.empty(heads, D, dtype=q.dtype, device=q.device)
    part = triton.cdiv(length, count)
    strides = k.stride()[:3]
    paged_kernel[(count, heads)](q, k, v, table, parts, tops, sums, length, part, *strides, D**-0.5, P=P, D=D, BN=32)
    merge_kernel[(heads,)](parts, tops, sums, out, PARTS=count, D=D)
    return out
