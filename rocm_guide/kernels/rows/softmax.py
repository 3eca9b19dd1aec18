# SPDX-License-Identifier: MIT
"""Softmax over the last dimension, forward and backward, for rows of any length.

y_i = exp(x_i - max x) / sum_j exp(x_j - max x);  dx_i = y_i * (dy_i - sum_j dy_j y_j).
A row that fits into registers is read once. A longer one is read twice: once for maximum and sum together (M. Milakov
and N. Gimelshein, "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867), once to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import architecture, check_dtype, check_same_device, check_shape, next_power_of_2
from rocm_guide.kernels.launch import Launch, apply, maker, needs_gradient, planned
from rocm_guide.kernels.rows.configs import SOFTMAX_BACKWARD, SOFTMAX_FORWARD
from rocm_guide.kernels.rows.tile import FLOATS, RowTile, as_rows, pick_row_tile
from rocm_guide.kernels.tracing import traced

__all__ = ["softmax", "softmax_backward", "softmax_forward"]


@triton.jit
def softmax_rows(x_ptr, y_ptr, x_stride, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """One program: ROWS whole rows, each read once."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    inside = (first + row < rows) & (col < cols)
    x = tl.load(x_ptr + first * x_stride + (row * x_stride + col), mask=inside, other=float("-inf"))
    x = x.to(tl.float32)
    # exp2 is one instruction; the factor log2(e) makes it exp. After the subtraction it cannot overflow.
    e = tl.exp2((x - tl.max(x, 1)[:, None]) * 1.4426950408889634)
    y = e * (1.0 / tl.sum(e, 1))[:, None]
    tl.store(y_ptr + first * cols + (row * cols + col), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_blocked(x_ptr, y_ptr, x_stride, cols, BLOCK: tl.constexpr):
    """One program: one row of any length, read twice. Every lane keeps a maximum and a sum of its own."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < cols - start, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, x)
        # Before a lane's first finite value its maximum is -inf, and -inf - -inf would be NaN.
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp2((top - base) * 1.4426950408889634) + tl.exp2((x - base) * 1.4426950408889634)
        top = new
    highest = tl.max(top, 0)
    base = tl.where(top == float("-inf"), 0.0, highest)
    scale = 1.0 / tl.sum(total * tl.exp2((top - base) * 1.4426950408889634), 0)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < cols - start, other=0.0).to(tl.float32)
        y = tl.exp2((x - highest) * 1.4426950408889634) * scale
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=lane < cols - start)


@triton.jit
def softmax_backward_rows(
    y_ptr,
    dy_ptr,
    dx_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    LAST_FIRST: tl.constexpr,
):
    """One program: ROWS whole rows of contiguous tensors."""
    program = tl.num_programs(0) - 1 - tl.program_id(0) if LAST_FIRST else tl.program_id(0)
    first = program.to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    inside, at = (first + row < rows) & (col < cols), row * cols + col
    y = tl.load(y_ptr + first * cols + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    tl.store(dx_ptr + first * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_blocked(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    """One program: one row of any length, read twice."""
    start_of_row = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at, inside = start_of_row + start + lane, lane < cols - start
        y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
        total += y * tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dot = tl.sum(total, 0)
    for start in range(0, cols, BLOCK):
        at, inside = start_of_row + start + lane, lane < cols - start
        y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, tile: RowTile | None = None) -> torch.Tensor:
    """Softmax of (…, columns), without autograd; a contiguous tensor of the same shape and type.

    Args:
        x: fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        tile: a launch configuration of your own instead of the tuned one.

    Raises:
        KernelError: another type, no columns, another layout, or no device that can run it.

    Example::

        y = softmax_forward(x)
    """
    if traced():
        return torch.ops.rocm_guide.softmax_forward(x)
    return planned(_plan_forward, (x,), tile)(x)


def _plan_forward(x: torch.Tensor, tile: RowTile | None) -> Callable[..., Any]:
    flat, arch = as_rows("x", x), architecture(x)
    rows, cols = flat.shape
    new_y = maker(x, x.shape)
    t = tile or pick_row_tile(SOFTMAX_FORWARD, arch, rows, cols, flat.stride(0))
    if t.blocked:
        launch = Launch(softmax_blocked, (rows,), (flat.stride(0), cols), {"BLOCK": t.columns}, t.options)
    else:
        grid, flags = (triton.cdiv(rows, t.rows),), {"ROWS": t.rows, "COLS": next_power_of_2(cols)}
        launch = Launch(softmax_rows, grid, (flat.stride(0), rows, cols), flags, t.options)

    def run(x: torch.Tensor) -> torch.Tensor:
        y = new_y()
        if rows:
            launch(x, y)
        return y

    return run


def softmax_backward(y: torch.Tensor, dy: torch.Tensor, *, tile: RowTile | None = None) -> torch.Tensor:
    """The gradient of x from the softmax ``y`` and its gradient ``dy``, both of one shape; made contiguous if not.

    Raises:
        KernelError: see :func:`softmax_forward`.

    Example::

        dx = softmax_backward(y, dy)
    """
    return planned(_plan_backward, (y, dy), tile)(y, dy)


def _plan_backward(y: torch.Tensor, dy: torch.Tensor, tile: RowTile | None) -> Callable[..., Any]:
    check_same_device(y=y, dy=dy)
    check_shape("dy", dy, y.shape)
    check_dtype("dy", dy, FLOATS)
    flat, arch = as_rows("y", y.contiguous()), architecture(y)
    rows, cols = flat.shape
    t = tile or pick_row_tile(SOFTMAX_BACKWARD, arch, rows, cols)
    if t.blocked:
        launch = Launch(softmax_backward_blocked, (rows,), (cols,), {"BLOCK": t.columns}, t.options)
    else:
        flags = {"ROWS": t.rows, "COLS": next_power_of_2(cols), "LAST_FIRST": t.last_first}
        launch = Launch(softmax_backward_rows, (triton.cdiv(rows, t.rows),), (rows, cols), flags, t.options)

    def run(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        y, dy = y.contiguous(), dy.contiguous()
        dx = torch.empty_like(y)
        if rows:
            launch(y, dy, dx)
        return dx

    return run


class Softmax(torch.autograd.Function):
    """Keeps y, from which the gradient follows. Call :func:`softmax`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Softmax of ``x``."""
        y = planned(_plan_forward, (x,), None)(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        """The gradient of ``x``."""
        return softmax_backward(ctx.saved_tensors[0], dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, differentiable.

    Args:
        x: (…, columns) in fp16, bf16 or fp32; see :func:`softmax_forward`.

    Raises:
        KernelError: see :func:`softmax_forward`.

    Example::

        y = softmax(x)
    """
    if traced():
        return softmax_forward(x)
    return apply(Softmax, x) if needs_gradient(x) else planned(_plan_forward, (x,), None)(x)


def reference_softmax(x: torch.Tensor) -> torch.Tensor:
    """What the kernels compute: ``torch.softmax(x, -1)``."""
    return torch.softmax(x, -1)
