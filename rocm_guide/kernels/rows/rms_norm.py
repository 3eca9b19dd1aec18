# SPDX-License-Identifier: MIT
"""RMSNorm over the last dimension, forward and backward, for rows of any length.

rstd = 1 / sqrt(mean(x^2) + eps),  y = x * rstd * w.  With g = dy * w:
dx = rstd * (g - x * rstd^2 * mean(g * x)),  dw = sum over rows of dy * x * rstd. All in fp32, rounded once at the end.
Source: B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", https://arxiv.org/abs/1910.07467.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    architecture,
    check_dtype,
    check_number,
    check_same_device,
    check_shape,
    next_power_of_2,
    unit_count,
)
from rocm_guide.kernels.launch import Launch, apply, maker, needs_gradient, planned, unread
from rocm_guide.kernels.rows.configs import RMS_NORM_BACKWARD, RMS_NORM_FORWARD
from rocm_guide.kernels.rows.tile import FLOATS, RowTile, as_rows, check_vectors, pick_row_tile
from rocm_guide.kernels.rows.weight_grad import column_sum, norm_weight_grad
from rocm_guide.kernels.tracing import traced

__all__ = ["reference_rms_norm", "rms_norm", "rms_norm_backward", "rms_norm_forward"]


@triton.jit
def rms_norm_rows(
    x_ptr,
    w_ptr,
    y_ptr,
    rstd_ptr,
    x_stride,
    rows,
    cols,
    eps,
    WEIGHT: tl.constexpr,
    DEFER_WEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One program: ROWS whole rows, each read once. The weight, which every program reads, is to stay in L1."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    inside = (first + row < rows)[:, None] & (col < cols)[None, :]
    at = row[:, None] * x_stride + col[None, :]
    x = tl.load(x_ptr + first * x_stride + at, mask=inside, other=0.0, eviction_policy="evict_first")
    if WEIGHT and not DEFER_WEIGHT:  # asked for before the reduction, so that it is there when the reduction is done
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 1) * (1.0 / cols) + eps)
    y = x * rstd[:, None]
    if WEIGHT and DEFER_WEIGHT:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if WEIGHT:
        y *= w.to(tl.float32)[None, :]
    tl.store(rstd_ptr + first + row, rstd, mask=first + row < rows)
    tl.store(y_ptr + first * cols + (row[:, None] * cols + col[None, :]), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_blocked(
    x_ptr,
    w_ptr,
    y_ptr,
    rstd_ptr,
    x_stride,
    cols,
    eps,
    WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one row of any length, read twice."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < cols - start, other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, 0) * (1.0 / cols) + eps)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        y = tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) * rstd
        if WEIGHT:
            y *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_backward_rows(
    x_ptr,
    w_ptr,
    dy_ptr,
    rstd_ptr,
    dx_ptr,
    part_ptr,
    x_stride,
    rows,
    cols,
    WEIGHT: tl.constexpr,
    DW: tl.constexpr,
    RELOAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One program: every so many rows, ROWS at a time; what they add to dw stays in registers until the end."""
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    step = tl.num_programs(0).to(tl.int64) * ROWS
    x_at, at = row[:, None] * x_stride + col[None, :], row[:, None] * cols + col[None, :]
    dw = tl.zeros((ROWS, COLS), tl.float32)
    for first in tl.range(tl.program_id(0).to(tl.int64) * ROWS, rows, step, num_stages=STAGES):
        inside = (first + row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0)
        dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0)
        rstd = tl.load(rstd_ptr + first + row, mask=first + row < rows, other=0.0)[:, None]
        g = dy.to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + col, mask=col < cols, other=0.0).to(tl.float32)[None, :]
        mean = (tl.sum(g * (x.to(tl.float32) * rstd), 1) * (1.0 / cols))[:, None]
        if RELOAD:  # from the cache, so that registers are free for dw; marked, or the compiler would join the loads
            x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0, eviction_policy="evict_first")
            dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0, eviction_policy="evict_first")
            g = dy.to(tl.float32)
            if WEIGHT:
                w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
                g *= w.to(tl.float32)[None, :]
        x_hat = x.to(tl.float32) * rstd
        if DW:
            dw += dy.to(tl.float32) * x_hat
        dx = rstd * (g - x_hat * mean)
        tl.store(dx_ptr + first * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    if DW:
        total = tl.sum(dw, 0).to(part_ptr.dtype.element_ty)
        tl.store(part_ptr + tl.program_id(0).to(tl.int64) * cols + col, total, mask=col < cols)


@triton.jit
def rms_norm_backward_blocked(
    x_ptr,
    w_ptr,
    dy_ptr,
    rstd_ptr,
    dx_ptr,
    x_stride,
    cols,
    WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: dx of one row of any length, read twice."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    rstd = tl.load(rstd_ptr + row)
    dots = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        dots += g * tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(dots, 0) * (1.0 / cols) * rstd
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        x_hat = tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) * rstd
        dx = rstd * (g - x_hat * mean)
        tl.store(dx_ptr + row * cols + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, *, tile: RowTile | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """y (shape and type of x, contiguous) and rstd (fp32, one per row), without autograd.

    Args:
        x: (…, columns) in fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        weight: (columns,), any of these types; None multiplies by nothing.
        eps: finite, 0 or more.
        tile: a launch configuration of your own instead of the tuned one.

    Raises:
        KernelError: shape, type, layout or device that does not fit; eps negative or not finite.
    """
    eps = check_number("eps", eps, 0.0)
    if traced():
        return torch.ops.rocm_guide.rms_norm_forward(x, weight, eps)
    return planned(_plan_forward, (x, weight), tile)(x, weight, eps)


def _plan_forward(x: torch.Tensor, weight: torch.Tensor | None, tile: RowTile | None) -> Callable[..., Any]:
    flat = as_rows("x", x)
    rows, cols = flat.shape
    check_same_device(x=x, weight=weight)
    check_vectors(cols, weight=weight)
    new_y, new_rstd, nowhere = maker(x, x.shape), maker(x, (rows,), torch.float32), unread(x, rows)
    t = tile or pick_row_tile(RMS_NORM_FORWARD, architecture(x), rows, cols, flat.stride(0))
    flags: dict[str, Any] = {"WEIGHT": weight is not None}
    if t.blocked:
        flags |= {"BLOCK": t.columns}
        launch = Launch(rms_norm_blocked, (rows,), (flat.stride(0), cols), flags, t.options)
    else:
        flags |= {"DEFER_WEIGHT": t.defer_weight, "ROWS": t.rows, "COLS": next_power_of_2(cols)}
        launch = Launch(rms_norm_rows, (triton.cdiv(rows, t.rows),), (flat.stride(0), rows, cols), flags, t.options)

    def run(x: torch.Tensor, weight: torch.Tensor | None, eps: float, statistics: bool = True) -> Any:
        y, rstd = new_y(), new_rstd() if statistics else nowhere()
        if rows:
            launch(x, x if weight is None else weight, y, rstd, floats=(eps,))
        return y, rstd

    return run


def rms_norm_backward(
    x: torch.Tensor, weight: torch.Tensor | None, dy: torch.Tensor, rstd: torch.Tensor, *, tile: RowTile | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """dx (shape and type of x) and dw (the weight's; None without one).

    Args:
        x, weight: as given to :func:`rms_norm_forward`.
        dy: the gradient of y; made contiguous if it is not.
        rstd: what the forward pass returned: (rows,), fp32, contiguous.

    Raises:
        KernelError: see :func:`rms_norm_forward`.
    """
    return planned(_plan_backward, (x, weight, dy, rstd), tile)(x, weight, dy, rstd)


def _plan_backward(
    x: torch.Tensor, weight: torch.Tensor | None, dy: torch.Tensor, rstd: torch.Tensor, tile: RowTile | None
) -> Callable[..., Any]:
    flat = as_rows("x", x)
    rows, cols = flat.shape
    check_same_device(x=x, weight=weight, dy=dy, rstd=rstd)
    check_vectors(cols, weight=weight)
    check_shape("dy", dy, x.shape)
    check_dtype("dy", dy, FLOATS)
    check_vectors(rows, (torch.float32,), rstd=rstd)
    t = tile or pick_row_tile(RMS_NORM_BACKWARD, architecture(x), rows, cols, flat.stride(0))
    has, kind = weight is not None, None if weight is None else weight.dtype
    own = has and not (t.split or t.blocked)
    programs = rows if t.blocked else triton.cdiv(rows, t.rows)
    programs = min(programs, t.per_unit * unit_count(x)) if own else programs
    flags: dict[str, Any] = {"WEIGHT": has}
    if t.blocked:
        flags |= {"BLOCK": t.columns}
        launch = Launch(rms_norm_backward_blocked, (programs,), (flat.stride(0), cols), flags, t.options)
    else:
        flags |= {"DW": own, "RELOAD": t.reload}
        flags |= {"ROWS": t.rows, "COLS": next_power_of_2(cols), "STAGES": t.stages}
        launch = Launch(rms_norm_backward_rows, (programs,), (flat.stride(0), rows, cols), flags, t.options)
    # A single program's part is the whole sum.
    part = kind if own and programs == 1 else torch.float32
    new_dx, new_parts = maker(x, x.shape), None if t.blocked else maker(x, (1, programs if own else 0, cols), part)

    def run(x: torch.Tensor, weight: torch.Tensor | None, dy: torch.Tensor, rstd: torch.Tensor) -> Any:
        dx = new_dx()
        if rows == 0:
            return dx, None if weight is None else torch.zeros_like(weight)
        dy = dy.contiguous()
        tensors = x, x if weight is None else weight, dy, rstd, dx
        parts = None if new_parts is None else new_parts()
        launch(*tensors) if parts is None else launch(*tensors, parts)
        if kind is None:
            return dx, None
        if parts is None or not own:
            return dx, norm_weight_grad(as_rows("x", x), dy.view(rows, cols), rstd, dtype=kind)[0]
        return dx, parts[0, 0] if programs == 1 else column_sum(parts, kind, last_use=True)[0]

    return run


class RmsNorm(torch.autograd.Function):
    """Keeps x and one number per row. Call :func:`rms_norm`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        """y."""
        y, rstd = planned(_plan_forward, (x, weight), None)(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Gradients of x and weight."""
        x, weight, rstd = ctx.saved_tensors
        return *rms_norm_backward(x, weight, dy, rstd), None


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last dimension, differentiable by ``x`` and ``weight``; see :func:`rms_norm_forward`.

    Raises:
        KernelError: see :func:`rms_norm_forward`.
    """
    if traced():
        return rms_norm_forward(x, weight, eps)[0]
    eps = check_number("eps", eps, 0.0)
    known = None if needs_gradient(x, weight) else planned(_plan_forward, (x, weight), None)
    return known(x, weight, eps, False)[0] if known else apply(RmsNorm, x, weight, eps)


def reference_rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """What the kernels compute: ``torch.nn.functional.rms_norm`` over the last dimension."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
