# SPDX-License-Identifier: MIT
"""Two kernels to step through: a sum of squares over rows with a ragged end, and one small matrix product."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["small_dot", "sum_of_squares"]


@triton.jit
def sum_of_squares(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    """Sum the squares of a row of a contiguous tensor in each program; columns at and beyond ``cols`` count as zero."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + column, mask=column < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * x, 0))


@triton.jit
def small_dot(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Compute C = A B for one tile; all three are contiguous, C is float32."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))
