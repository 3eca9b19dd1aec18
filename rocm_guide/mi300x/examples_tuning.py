# SPDX-License-Identifier: MIT
"""Small Triton kernels that notebooks 14 and 15 compile, sweep and repair."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["scale_rows"]


@triton.jit
def scale_rows(x_ptr, y_ptr, factor, cols, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    """``y = factor * x``, one program per row of a contiguous (rows, cols) tensor."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, cols, BLOCK):
        offset = start + tl.arange(0, BLOCK)
        mask = offset < cols
        x = tl.load(x_ptr + row * cols + offset, mask=mask)
        tl.store(y_ptr + row * cols + offset, x * factor, mask=mask)
