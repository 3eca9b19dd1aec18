# SPDX-License-Identifier: MIT
"""LayerNorm over the last dimension, differentiable, for rows of any length.

mean = mean(x),  rstd = 1 / sqrt(mean((x - mean)^2) + eps),  y = (x - mean) * rstd * w + b.
The gradients are in :mod:`rocm_guide.kernels.rows.layer_norm_grad`.
Source: J. L. Ba et al., "Layer Normalization", https://arxiv.org/abs/1607.06450. A row that is read in blocks gets its
variance by the update of T. Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances",
1979, because mean(x^2) - mean^2 would cancel. All arithmetic is fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    architecture,
    check_number,
    check_same_device,
    next_power_of_2,
    unit_count,
)
from rocm_guide.kernels.hopper import fetch_span, let_next_kernel_start
from rocm_guide.kernels.launch import Launch, apply, maker, needs_gradient, planned, unread
from rocm_guide.kernels.rows.configs import LAYER_NORM_FORWARD
from rocm_guide.kernels.rows.layer_norm_grad import layer_norm_backward
from rocm_guide.kernels.rows.tile import RowTile, as_rows, check_vectors, pick_row_tile
from rocm_guide.kernels.tracing import traced

__all__ = ["layer_norm", "layer_norm_forward"]


@triton.jit
def layer_norm_rows(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    x_stride,
    rows,
    cols,
    eps,
    WEIGHT: tl.constexpr,
    BIAS: tl.constexpr,
    DEFER_WEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    """One program: ROWS whole rows, each read once. Weight and bias, which every program reads, are to stay in L1.

    With PREFETCH (Hopper; one row, which fills the tile) the row that many further on is fetched into the L2, so that
    memory has work while the programs reduce; and the next kernel may start when all programs have started.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    inside = (first + row < rows)[:, None] & (col < cols)[None, :]
    if PREFETCH > 0:
        inside = tl.full((ROWS, COLS), 1, tl.int1)
        let_next_kernel_start(0)
    at = row[:, None] * x_stride + col[None, :]
    x = tl.load(x_ptr + first * x_stride + at, mask=inside, other=0.0, eviction_policy="evict_first")
    if WEIGHT and not DEFER_WEIGHT:  # asked for before the reduction, so that it is there when that is done
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if BIAS and not DEFER_WEIGHT:
        b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    # Sums of the distances to a member of the row, and of their squares, in one exchange between the lanes.
    pivot = tl.load(x_ptr + first * x_stride + row * x_stride, mask=first + row < rows, other=0.0).to(tl.float32)
    x = tl.where(inside, x.to(tl.float32) - pivot[:, None], 0.0)
    shift, square = tl.split(tl.sum(tl.join(x, x * x), 1) * (1.0 / cols))
    if PREFETCH > 0:
        later = x_ptr + tl.minimum(first + PREFETCH, rows - 1) * x_stride
        fetch_span(later, COLS * x_ptr.dtype.element_ty.primitive_bitwidth // 8)
    variance = square - shift * shift
    if tl.max(shift * shift - 16 * variance, 0) > 0:
        # A member far from the mean: the distances have lost digits. Rare; then one sum after the other.
        x = tl.load(x_ptr + first * x_stride + at, mask=inside, other=0.0).to(tl.float32)
        pivot, shift = pivot * 0, tl.sum(x, 1) * (1.0 / cols)
        x = tl.where(inside, x - shift[:, None], 0.0)
        variance = tl.sum(x * x, 1) * (1.0 / cols)
    else:
        x -= shift[:, None]
    mean, rstd = pivot + shift, tl.rsqrt(variance + eps)
    y = x * rstd[:, None]
    if WEIGHT and DEFER_WEIGHT:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if BIAS and DEFER_WEIGHT:
        b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if WEIGHT:  # widened only now: until here they take half the registers
        y *= w.to(tl.float32)[None, :]
    if BIAS:
        y += b.to(tl.float32)[None, :]
    tl.store(mean_ptr + first + row, mean, mask=first + row < rows)
    tl.store(rstd_ptr + first + row, rstd, mask=first + row < rows)
    tl.store(y_ptr + first * cols + (row[:, None] * cols + col[None, :]), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_blocked(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    x_stride,
    cols,
    eps,
    WEIGHT: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one row of any length, read twice. Every lane keeps a mean and a sum of squared distances to it."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        x = tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        count += 1.0
        distance = tl.where(inside, x - means, 0.0)
        means += distance / count
        squares += distance * tl.where(inside, x - means, 0.0)
    seen = ((cols - 1 - lane + BLOCK) // BLOCK).to(tl.float32)  # elements that each lane has had
    mean = tl.sum(means * seen, 0) * (1.0 / cols)
    total = squares + seen * (means - mean) * (means - mean)
    rstd = tl.rsqrt(tl.sum(total, 0) * (1.0 / cols) + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        y = (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        if WEIGHT:
            y *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            y += tl.load(b_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * cols + start + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    tile: RowTile | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y (shape and type of x, contiguous), mean and rstd (fp32, one per row), without autograd.

    Args:
        x: (…, columns) in fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        weight, bias: (columns,), any of these types; either may be None.
        eps: finite, 0 or more.
        tile: a launch configuration of your own instead of the tuned one.

    Raises:
        KernelError: shape, type, layout or device that does not fit; eps negative or not finite.

    Example::

        y, mean, rstd = layer_norm_forward(x, weight, bias)
    """
    eps = check_number("eps", eps, 0.0)
    if traced():
        return torch.ops.rocm_guide.layer_norm_forward(x, weight, bias, eps)
    return planned(_plan_forward, (x, weight, bias), tile)(x, weight, bias, eps)


def _plan_forward(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, tile: RowTile | None
) -> Callable[..., Any]:
    flat = as_rows("x", x)
    rows, cols = flat.shape
    check_same_device(x=x, weight=weight, bias=bias)
    check_vectors(cols, weight=weight, bias=bias)
    new_y, new_row, nowhere = maker(x, x.shape), maker(x, (rows,), torch.float32), unread(x, rows)
    t = tile or pick_row_tile(LAYER_NORM_FORWARD, architecture(x), rows, cols, flat.stride(0))
    flags: dict[str, Any] = {"WEIGHT": weight is not None, "BIAS": bias is not None}
    if t.blocked:
        flags |= {"BLOCK": t.columns}
        launch = Launch(layer_norm_blocked, (rows,), (flat.stride(0), cols), flags, t.options)
    else:
        flags |= {"DEFER_WEIGHT": t.defer_weight, "ROWS": t.rows, "COLS": next_power_of_2(cols)}
        flags["PREFETCH"] = t.prefetch * unit_count(x) if t.fetches(flat) else 0
        launch = Launch(layer_norm_rows, (triton.cdiv(rows, t.rows),), (flat.stride(0), rows, cols), flags, t.options)

    def run(
        x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, statistics: bool = True
    ) -> Any:
        y = new_y()
        mean, rstd = (new_row(), new_row()) if statistics else (nowhere(), nowhere())
        if rows:
            vectors = x if weight is None else weight, x if bias is None else bias
            launch(x, *vectors, y, mean, rstd, floats=(eps,))
        return y, mean, rstd

    return run


class LayerNorm(torch.autograd.Function):
    """Keeps x and two numbers per row. Call :func:`layer_norm`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        """y."""
        y, mean, rstd = planned(_plan_forward, (x, weight, bias), None)(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of x, weight and bias."""
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dw, db = layer_norm_backward(x, weight, dy, mean, rstd, bias=ctx.bias_dtype is not None)
        return dx, dw, None if db is None else db.to(ctx.bias_dtype), None


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """LayerNorm over the last dimension, differentiable by x, weight and bias; see :func:`layer_norm_forward`.

    Raises:
        KernelError: see :func:`layer_norm_forward`.

    Example::

        y = layer_norm(x, weight, bias)
    """
    if traced():
        return layer_norm_forward(x, weight, bias, eps)[0]
    eps = check_number("eps", eps, 0.0)
    if needs_gradient(x, weight, bias):
        return apply(LayerNorm, x, weight, bias, eps)
    return planned(_plan_forward, (x, weight, bias), None)(x, weight, bias, eps, False)[0]


def reference_layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """What the kernels compute: ``torch.nn.functional.layer_norm`` over the last dimension."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
