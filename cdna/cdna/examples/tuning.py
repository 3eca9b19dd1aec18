# SPDX-License-Identifier: MIT
"""Small Triton kernels to compile, sweep and repair.

They are complete and correct kernels, kept short so that what the compiler makes of them can be read.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from cdna.compile import compile_kernel
from cdna.report import KernelReport, kernel_report

__all__ = ["attention_report", "attention_rows", "gemm_report", "matmul", "scale_rows"]


@triton.jit
def scale_rows(x_ptr, y_ptr, factor, cols, BLOCK: tl.constexpr):
    """Compute ``y = factor * x``, one program per row of a contiguous (rows, cols) tensor. No GEMM in it."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, cols, BLOCK):
        offset = start + tl.arange(0, BLOCK)
        mask = offset < cols
        x = tl.load(x_ptr + row * cols + offset, mask=mask)
        tl.store(y_ptr + row * cols + offset, x * factor, mask=mask)


tuned_scale_rows = triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 2048, 4096) for warps in (2, 4, 8)],
    key=["cols"],
)(scale_rows)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT_K: tl.constexpr = 1, RELU: tl.constexpr = False,
):  # fmt: skip
    """Compute ``C = A @ B`` for contiguous A (M, K), B (K, N), C (M, N); one tile of C per program, fp32 accumulation.

    With ``SPLIT_K`` over 1 the second grid axis shares out K and C (fp32, zeroed before) is added to atomically.
    """
    tiles_n = tl.cdiv(N, BN)
    row, col = tl.program_id(0) // tiles_n * BM, tl.program_id(0) % tiles_n * BN
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    # Row offsets in 64 bits once per program; inside a tile 32 bits are enough and cheaper.
    a_ptr += row.to(tl.int64) * K
    c_ptr += row.to(tl.int64) * N + col
    in_m, in_n = row + rm < M, col + rn < N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(1) * BK, K, BK * SPLIT_K):
        in_k = k + rk < K
        a = tl.load(a_ptr + rm[:, None] * K + (k + rk)[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0)
        b = tl.load(b_ptr + (k + rk)[:, None] * N + (col + rn)[None, :], mask=in_k[:, None] & in_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    if RELU:
        acc = tl.maximum(acc, 0.0)
    target, inside = c_ptr + rm[:, None] * N + rn[None, :], in_m[:, None] & in_n[None, :]
    if SPLIT_K == 1:
        tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=inside)
    else:
        tl.atomic_add(target, acc, mask=inside)


@triton.jit
def attention_rows(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    scale,
    S,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Compute ``softmax(scale * Q @ K^T) @ V`` for one head, contiguous (S, D): two GEMMs fused around an online
    softmax.
    """
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn, rd = tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(q_ptr + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    top = tl.full((BM,), -1.0e30, dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, S, BN):
        inside = start + rn < S
        k = tl.load(k_ptr + (start + rn)[None, :] * D + rd[:, None], mask=inside[None, :], other=0.0)
        # exp2 is one instruction; the factor log2(e) turns it into exp.
        scores = tl.where(inside[None, :], tl.dot(q, k) * (scale * 1.4426950408889634), -1.0e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p, shrink = tl.exp2(scores - new_top[:, None]), tl.exp2(top - new_top)
        v = tl.load(v_ptr + (start + rn)[:, None] * D + rd[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        top = new_top
    out = acc / total[:, None]
    tl.store(o_ptr + rm[:, None] * D + rd[None, :], out.to(o_ptr.dtype.element_ty), mask=rm[:, None] < S)


def gemm_report(
    shape: tuple[int, int, int] = (4096, 4096, 4096),
    tile: tuple[int, int, int] = (128, 128, 64),
    *,
    split_k: int = 1,
    relu: bool = False,
    arch: str = "gfx942",
    num_warps: int = 8,
    **options: Any,
) -> KernelReport:
    """Report what :func:`matmul` in fp16 becomes for one tile and one set of options, launched for the shape (M, N, K).

    The tensors have their true sizes and no memory (torch's meta device).

    >>> gemm_report((4096, 4096, 4096), (128, 128, 64)).grid
    (1024, 1)
    """
    import torch

    (m, n, k), (bm, bn, bk) = shape, tile
    a, b = (torch.empty(size, dtype=torch.float16, device="meta") for size in ((m, k), (k, n)))
    c = torch.empty(m, n, dtype=torch.float16 if split_k == 1 else torch.float32, device="meta")
    constants = {"BM": bm, "BN": bn, "BK": bk, "SPLIT_K": split_k, "RELU": relu}
    compiled = compile_kernel(matmul, [a, b, c, m, n, k], constants, arch=arch, num_warps=num_warps, **options)
    return kernel_report(compiled, grid=(triton.cdiv(m, bm) * triton.cdiv(n, bn), split_k))


def attention_report(
    tile: tuple[int, int] = (64, 32), *, rows: int = 4096, head: int = 128, arch: str = "gfx942", **options: Any
) -> KernelReport:
    """Report what :func:`attention_rows` in fp16 becomes for a tile (BM, BN) and ``head`` features per head.

    >>> attention_report(num_stages=1).kernel
    'attention_rows'
    """
    import torch

    x = torch.empty(rows, head, dtype=torch.float16, device="meta")
    constants = {"D": head, "BM": tile[0], "BN": tile[1]}
    return kernel_report(
        compile_kernel(attention_rows, [x, x, x, x, head**-0.5, rows], constants, arch=arch, **options)
    )
