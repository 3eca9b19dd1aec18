# SPDX-License-Identifier: MIT
"""A softmax that is correct and slow: it reads its row three times, one element per lane and load."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["softmax_three_passes"]


@triton.jit
def softmax_three_passes(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Normalise a row of a contiguous tensor in each program: a pass for the maximum, one for the sum, one to write."""
    start_of_row = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    top = float("-inf")
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start_of_row + start + lane, mask=start + lane < cols, other=float("-inf"))
        top = tl.maximum(top, tl.max(x.to(tl.float32), 0))
    total = 0.0
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start_of_row + start + lane, mask=start + lane < cols, other=float("-inf"))
        total += tl.sum(tl.exp(x.to(tl.float32) - top), 0)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start_of_row + start + lane, mask=start + lane < cols, other=float("-inf"))
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_ptr + start_of_row + start + lane, y.to(y_ptr.dtype.element_ty), mask=start + lane < cols)
