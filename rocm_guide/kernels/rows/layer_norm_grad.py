# SPDX-License-Identifier: MIT
"""The gradients of LayerNorm, for rows of any length.

With h = (x - mean) * rstd and g = dy * w:  dx = rstd * (g - mean(g) - h * mean(g * h)),
dw = sum over rows of dy * h,  db = sum over rows of dy.
Source: the derivative of y = h * w + b; J. L. Ba et al., "Layer Normalization", https://arxiv.org/abs/1607.06450.
All arithmetic is fp32.
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
    check_same_device,
    check_shape,
    next_power_of_2,
    unit_count,
)
from rocm_guide.kernels.hopper import fetch_span, let_next_kernel_start, to_float32, wait_for_kernel_before
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.rows.configs import LAYER_NORM_BACKWARD
from rocm_guide.kernels.rows.tile import FLOATS, RowTile, as_rows, check_vectors, pick_row_tile
from rocm_guide.kernels.rows.weight_grad import column_sum, norm_weight_grad

__all__ = ["layer_norm_backward"]


@triton.jit
def layer_norm_backward_rows(
    x_ptr,
    w_ptr,
    dy_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    part_ptr,
    x_stride,
    rows,
    cols,
    WEIGHT: tl.constexpr,
    DW: tl.constexpr,
    DB: tl.constexpr,
    RELOAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
    FULL: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    """One program: every so many rows, ROWS at a time; dw and db stay in registers until the end.

    FULL promises that each row fills the tile. Without masks nothing spills where dw and db leave few registers. With
    PREFETCH (Hopper) the next row is fetched into the L2 meanwhile: a program that fills the multiprocessor would ask
    for it only when it is done with this one. x before this row is read and dy after it is summed, because what is
    asked for all at once stands in the way of this row. It also starts before the kernel before has ended: x is older.
    """
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    in_cols = tl.full((COLS,), 1, tl.int1) if FULL else col < cols
    programs, begin = tl.num_programs(0).to(tl.int64), tl.program_id(0).to(tl.int64) * ROWS
    x_at, at = row[:, None] * x_stride + col[None, :], row[:, None] * cols + col[None, :]
    X_BYTES: tl.constexpr = COLS * x_ptr.dtype.element_ty.primitive_bitwidth // 8
    DY_BYTES: tl.constexpr = COLS * dy_ptr.dtype.element_ty.primitive_bitwidth // 8
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    if PREFETCH:
        fetch_span(x_ptr + begin * x_stride, X_BYTES)
        wait_for_kernel_before()
    for first in tl.range(begin, rows, programs * ROWS, num_stages=STAGES):
        inside = tl.full((ROWS, COLS), 1, tl.int1)
        if not FULL:
            inside = (first + row < rows)[:, None] & in_cols[None, :]
        following = tl.minimum(first + programs, rows - 1)
        if PREFETCH:
            fetch_span(x_ptr + following * x_stride, X_BYTES)
        x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0)
        dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + first + row, mask=first + row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + first + row, mask=first + row < rows, other=0.0)[:, None]
        g = to_float32(dy, PREFETCH)
        if WEIGHT:
            w = tl.load(w_ptr + col, mask=in_cols, other=0.0)
            g *= to_float32(w, PREFETCH)[None, :]
        h = (to_float32(x, PREFETCH) - mean) * rstd
        # Beyond the row's end x - mean is not zero, but g is. Two sums, one exchange between the lanes.
        along, level = tl.split(tl.sum(tl.join(g * h, g), 1) * (1.0 / cols))
        if PREFETCH:
            fetch_span(dy_ptr + following * cols, DY_BYTES)
        if RELOAD:  # from the cache, so that registers are free for dw; marked, or the compiler would join the loads
            x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0, eviction_policy="evict_first")
            dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0, eviction_policy="evict_first")
            g = to_float32(dy, PREFETCH)
            if WEIGHT:
                w = tl.load(w_ptr + col, mask=in_cols, other=0.0, eviction_policy="evict_last")
                g *= to_float32(w, PREFETCH)[None, :]
            h = (to_float32(x, PREFETCH) - mean) * rstd
        dy = to_float32(dy, PREFETCH)
        if DW:
            dw += dy * h
        if DB:
            db += dy
        dx = rstd * (g - level[:, None] - h * along[:, None])
        tl.store(dx_ptr + first * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        if PREFETCH:
            let_next_kernel_start(tl.maximum(rows - first - programs, 0).to(tl.int32))
    part_ptr += tl.program_id(0).to(tl.int64) * cols
    if DW:
        tl.store(part_ptr + col, tl.sum(dw, 0).to(part_ptr.dtype.element_ty), mask=in_cols)
        part_ptr += programs * cols
    if DB:
        tl.store(part_ptr + col, tl.sum(db, 0).to(part_ptr.dtype.element_ty), mask=in_cols)


@triton.jit
def layer_norm_backward_blocked(
    x_ptr,
    w_ptr,
    dy_ptr,
    mean_ptr,
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
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    dots = tl.zeros((BLOCK,), tl.float32)
    levels = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        # Where g is 0 it does not matter that x is not centred.
        dots += g * (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean)
        levels += g
    along, level = tl.sum(dots, 0) * (1.0 / cols) * rstd, tl.sum(levels, 0) * (1.0 / cols)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        h = (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        dx = rstd * (g - level - h * along)
        tl.store(dx_ptr + row * cols + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def layer_norm_backward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    tile: RowTile | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """dx (shape and type of x), dw (None without weight) and db (None unless ``bias``), both in the weight's type.

    Args:
        x, weight: as given to :func:`~rocm_guide.kernels.rows.layer_norm.layer_norm_forward`.
        dy: the gradient of y; made contiguous if it is not.
        mean, rstd: what the forward pass returned: (rows,), fp32, contiguous.
        bias: whether db is wanted.

    Raises:
        KernelError: see :func:`~rocm_guide.kernels.rows.layer_norm.layer_norm_forward`.

    Example::

        dx, dw, db = layer_norm_backward(x, weight, dy, mean, rstd)
    """
    return planned(_plan, (x, weight, dy, mean, rstd), bias, tile)(x, weight, dy, mean, rstd)


def _plan(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    bias: bool,
    tile: RowTile | None,
) -> Callable[..., Any]:
    flat = as_rows("x", x)
    rows, cols = flat.shape
    check_same_device(x=x, weight=weight, dy=dy, mean=mean, rstd=rstd)
    check_vectors(cols, weight=weight)
    check_shape("dy", dy, x.shape)
    check_dtype("dy", dy, FLOATS)
    check_vectors(rows, (torch.float32,), mean=mean, rstd=rstd)
    arch, stride = architecture(x), flat.stride(0)
    has, dtype = weight is not None, x.dtype if weight is None else weight.dtype
    device, tables = x.device, has + bias
    t = tile or pick_row_tile(LAYER_NORM_BACKWARD, arch, rows, cols, stride, 8 * x.element_size())
    ahead = rows > 0 and not t.blocked and t.fetches(flat, dy.contiguous().view(rows, cols))
    own, programs = not (t.split or t.blocked) and tables > 0, rows if t.blocked else triton.cdiv(rows, t.rows)
    programs = min(programs, t.per_unit * unit_count(x)) if own else programs
    # A single program's part is the whole sum.
    part = dtype if own and programs == 1 else torch.float32
    new_dx = maker(x, x.shape)
    new_parts = None if t.blocked else maker(x, (tables, programs if own else 0, cols), part)
    if t.blocked:
        flags: dict[str, Any] = {"WEIGHT": has, "BLOCK": t.columns}
        launch = Launch(layer_norm_backward_blocked, (programs,), (stride, cols), flags, t.options)
    else:
        flags = {"WEIGHT": has, "DW": own and has, "DB": own and bias, "RELOAD": t.reload, "STAGES": t.stages}
        padded = next_power_of_2(cols)
        flags |= {"ROWS": t.rows, "COLS": padded, "FULL": t.rows == 1 and padded == cols, "PREFETCH": ahead}
        options = t.options | ({"launch_pdl": True} if ahead else {})
        launch = Launch(layer_norm_backward_rows, (programs,), (stride, rows, cols), flags, options)

    def run(x: torch.Tensor, weight: torch.Tensor | None, dy: torch.Tensor, *statistics: torch.Tensor) -> Any:
        dx = new_dx()
        if rows == 0:
            sums = torch.zeros(tables, cols, dtype=dtype, device=device)
            return dx, sums[0] if has else None, sums[-1] if bias else None
        dy = dy.contiguous()
        tensors = x, x if weight is None else weight, dy, *statistics, dx
        parts = None if new_parts is None else new_parts()
        launch(*tensors) if parts is None else launch(*tensors, parts)
        if tables == 0:
            return dx, None, None
        if parts is None or not own:
            mean, rstd = statistics
            sums = norm_weight_grad(as_rows("x", x), dy.view(rows, cols), rstd, mean, bias=bias, dtype=dtype)
        else:
            sums = parts[:, 0] if programs == 1 else column_sum(parts, dtype, last_use=True, overlap=ahead)
        return dx, sums[0] if has else None, sums[-1] if bias else None

    return run


def reference_layer_norm_backward(
    x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dx, dw, db) from torch's autograd."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    bias = torch.zeros_like(weight, requires_grad=True)
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    dx, dw, db = torch.autograd.grad(y, (x, weight, bias), dy)
    return dx, dw, db
