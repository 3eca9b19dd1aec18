# SPDX-License-Identifier: MIT
"""Multiply-reduce: a GEMM for tiny blocks, without the matrix unit: multiply element by element, then sum.

``tl.dot`` works on blocks of 16 x 16 and more. For one to eight rows most of such a block is padding, and a GEMM of so
few rows is limited by reading B, not by arithmetic: ordinary vector units can keep up. So the tile is written out,
acc[i, j, k] += a[i, k] * b[k, j], and summed over k once at the end. (The published kernel of this kind was correct and
slower than its ``tl.dot`` twin; notebook 18 shows where each wins.)
Source of the idea: ``multreduce_matmul_kernel.py`` of ROCm's Triton perf-kernels,
https://github.com/ROCm/triton/tree/main_perf/python/perf-kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import KernelError, architecture, check_dtype, check_number, choose, next_power_of_2
from rocm_guide.kernels.gemm.tiled import check_operands
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["gemm_multiply_reduce"]


@dataclass(frozen=True)
class MultiplyReduceTile:
    """How it is launched: ``bn`` columns per workgroup, ``bk`` of K per step, at most ``rows`` rows of A at once."""

    bn: int
    bk: int
    rows: int
    warps: int


#: By architecture; then by what is contiguous in B ("k": the rows of a weight; "n") and the bits of its elements.
#: A lane loads 128 bits of B at a time: ``bk`` (or ``bn``) follows from that and the lanes of a wave.
CONFIGS: dict[str, dict[tuple[str, int], MultiplyReduceTile]] = {
    "gfx942": {
        ("k", 32): MultiplyReduceTile(2, 256, 4, 1),
        ("k", 16): MultiplyReduceTile(2, 512, 4, 1),
        ("k", 8): MultiplyReduceTile(2, 1024, 2, 1),
        ("n", 32): MultiplyReduceTile(64, 32, 4, 2),
        ("n", 16): MultiplyReduceTile(64, 32, 4, 2),
        ("n", 8): MultiplyReduceTile(128, 32, 4, 4),
    },
    "sm_90": {
        ("k", 32): MultiplyReduceTile(4, 256, 4, 2),
        ("k", 16): MultiplyReduceTile(4, 512, 4, 2),
        ("k", 8): MultiplyReduceTile(2, 1024, 2, 2),
        ("n", 32): MultiplyReduceTile(64, 32, 4, 4),
        ("n", 16): MultiplyReduceTile(64, 32, 4, 4),
        ("n", 8): MultiplyReduceTile(128, 32, 4, 8),
    },
    "interpreter": {(side, bits): MultiplyReduceTile(16, 32, 4, 1) for side in "kn" for bits in (32, 16, 8)},
}


@triton.jit(do_not_specialize=["M"])
def gemm_multiply_reduce_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    alpha,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
) -> None:
    """Columns from ``program_id(0) * BN`` on, of rows from ``program_id(1) * BM`` on."""
    col, row = tl.program_id(0) * BN, tl.program_id(1) * BM
    rn, rk = tl.arange(0, BN), tl.arange(0, BK)
    in_n = col + rn < N
    kind: tl.constexpr = tl.int32 if INT else tl.float32
    a_ptr += row.to(tl.int64) * stride_am
    b_ptr += col.to(tl.int64) * stride_bn
    rows = tl.arange(0, BM)
    # (columns, k, rows): k is summed at the end, so that the loop has no communication between lanes in it.
    acc = tl.zeros((BN, BK, BM), dtype=kind)
    for k in range(0, K, BK):
        in_k = k + rk < K
        at_b, at_a = (
            rn[:, None] * stride_bn + rk[None, :] * stride_bk,
            rk[:, None] * stride_ak + rows[None, :] * stride_am,
        )
        b = tl.load(b_ptr + at_b, mask=in_n[:, None] if EVEN_K else in_n[:, None] & in_k[None, :], other=0.0)
        in_m = (row + rows < M)[None, :]
        a = tl.load(a_ptr + at_a, mask=in_m if EVEN_K else in_m & in_k[:, None], other=0.0)
        acc += b.to(kind)[:, :, None] * a.to(kind)[None, :, :]
        a_ptr += BK * stride_ak
        b_ptr += BK * stride_bk
    total = tl.sum(acc, 1)
    if not INT:
        total *= alpha
    inside = in_n[:, None] & (row + rows < M)[None, :]
    at_c = (row + rows).to(tl.int64)[None, :] * N + col + rn[:, None]
    tl.store(c_ptr + at_c, total.to(c_ptr.dtype.element_ty), mask=inside)


def gemm_multiply_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tile: MultiplyReduceTile | None = None,
) -> torch.Tensor:
    """``alpha * a @ b`` without the matrix unit; meant for 1 to 8 rows, correct for any number.

    Args:
        a: (M, K) in float16, bfloat16, float32, int8 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type. Any strides; a transposed (N, K) weight is read along K.
        alpha: a factor (1 for int8).
        out_dtype: the type of the result; by default a's, bfloat16 for fp8, int32 for int8.
        tile: a launch configuration of your own.

    Returns:
        C, (M, N), contiguous.

    Raises:
        KernelError: shapes, types or devices that do not fit, or alpha not finite.
    """
    alpha = check_number("alpha", alpha)
    if (product := operator("gemm_multiply_reduce")) is not None:
        return product(a, b, alpha, out_dtype)
    return planned(_plan, (a, b), out_dtype, tile)(a, b, alpha)


def _plan(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, tile: MultiplyReduceTile | None
) -> Callable[..., torch.Tensor]:
    import torch

    arch = architecture(a)
    check_operands(a, b, None, arch)
    integer, device = a.dtype == torch.int8, a.device
    if out_dtype is None:
        out_dtype = torch.int32 if integer else a.dtype if a.element_size() > 1 else torch.bfloat16
    (m, k), n = a.shape, b.shape[1]
    allowed = (torch.int32,) if integer else (torch.float16, torch.bfloat16, torch.float32)
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=device), allowed)
    if m == 0 or n == 0:
        return lambda *_: torch.empty(m, n, dtype=out_dtype, device=device)
    side = "k" if b.stride(0) == 1 or n == 1 else "n"
    t = tile or choose(CONFIGS, arch)[side, 8 * b.element_size()]
    rows = min(next_power_of_2(m), t.rows)
    constants = {"BM": rows, "BN": t.bn, "BK": t.bk, "EVEN_K": k % t.bk == 0, "INT": integer}
    grid, fixed = (triton.cdiv(n, t.bn), triton.cdiv(m, rows)), (m, n, k, *a.stride(), *b.stride())
    launch = Launch(gemm_multiply_reduce_kernel, grid, fixed, constants, {"num_warps": t.warps, "num_stages": 2})

    new_c = maker(a, (m, n), out_dtype)

    def run(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
        if integer and alpha != 1.0:
            raise KernelError(f"alpha={alpha}: int8 sums stay whole numbers, so alpha must be 1")
        c = new_c()
        launch(a, b, c, floats=(alpha,))
        return c

    return run


def reference_multiply_reduce(a: torch.Tensor, b: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """The same in float64, written as it is computed: broadcast, multiply, sum.

    >>> import torch
    >>> reference_multiply_reduce(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return alpha * (a.double()[:, :, None] * b.double()[None, :, :]).sum(1)
