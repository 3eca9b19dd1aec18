# SPDX-License-Identifier: MIT
"""Gradients of a norm's weight and bias: sums over rows, in two launches.

dw_j = sum_r dy_rj * (x_rj - mean_r) * rstd_r,  db_j = sum_r dy_rj.
Many programs each add up some rows into partial sums (fp32); ``column_sum`` adds those. RMSNorm has mean = 0 and no db.
Source: the derivative of torch.nn.functional.layer_norm / rms_norm by their weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    architecture,
    check_contiguous,
    check_dtype,
    check_same_device,
    check_shape,
    choose,
    unit_count,
)
from rocm_guide.kernels.hopper import drop_lines, let_next_kernel_start, wait_for_kernel_before
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.rows.tile import FLOATS, as_rows, check_vectors

__all__ = ["column_sum"]

#: Architecture -> tile of the partial sums (rows, columns, warps), also for few rows; and of the final sum.
CONFIGS: dict[str, dict[str, tuple[int, int, int]]] = {
    "gfx942": {"many": (8, 1024, 8), "few": (16, 256, 4), "sum": (16, 128, 4)},
    "sm_90": {"many": (8, 512, 8), "few": (32, 128, 8), "sum": (8, 32, 8)},
    # Few programs: each costs milliseconds there.
    "interpreter": {"many": (8, 1024, 1), "few": (16, 1024, 1), "sum": (16, 1024, 1)},
}
FEW_ROWS = 64
#: Smaller tables are read before memory could have been busy with them, and dropping lines takes time too.
DROP_BYTES = 1 << 23


@triton.jit
def weight_grad_partials(
    x_ptr,
    dy_ptr,
    mean_ptr,
    rstd_ptr,
    part_ptr,
    x_stride,
    rows,
    cols,
    CENTRED: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One program: a strip of COLS columns, every so many groups of ROWS rows."""
    strip, group = tl.program_id(0).to(tl.int64) * COLS, tl.program_id(1)
    row, col, programs = tl.arange(0, ROWS), tl.arange(0, COLS)[None, :], tl.num_programs(1).to(tl.int64)
    in_cols = col < cols - strip
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(group.to(tl.int64) * ROWS, rows, programs * ROWS):
        inside = (start + row < rows)[:, None] & in_cols
        x = tl.load(x_ptr + start * x_stride + strip + (row[:, None] * x_stride + col), mask=inside, other=0.0)
        dy = tl.load(dy_ptr + start * cols + strip + (row[:, None] * cols + col), mask=inside, other=0.0)
        x, dy = x.to(tl.float32), dy.to(tl.float32)
        if CENTRED:
            x -= tl.load(mean_ptr + start + row, mask=start + row < rows, other=0.0)[:, None]
        dw += dy * (x * tl.load(rstd_ptr + start + row, mask=start + row < rows, other=0.0)[:, None])
        if BIAS:
            db += dy
    out = part_ptr + group.to(tl.int64) * cols + strip + tl.arange(0, COLS)
    mask = tl.arange(0, COLS) < cols - strip
    tl.store(out, tl.sum(dw, 0).to(part_ptr.dtype.element_ty), mask=mask)
    if BIAS:
        tl.store(out + programs * cols, tl.sum(db, 0).to(part_ptr.dtype.element_ty), mask=mask)


@triton.jit
def column_sums(
    part_ptr,
    out_ptr,
    parts,
    cols,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DROP: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program: COLS columns of one table (second grid axis) of ``parts`` rows, summed in a fixed order.

    With DROP (at most that many parts, COLS a multiple of 32) what it has read is not written to memory any more.
    """
    table = tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.program_id(0) * COLS + tl.arange(0, COLS)
    part_ptr += table * parts * cols
    if PDL:
        let_next_kernel_start(0)
        wait_for_kernel_before()
    if DROP > 0:
        line = tl.minimum(tl.arange(0, DROP), parts - 1)[:, None] * cols + tl.arange(0, COLS // 32)[None, :] * 32
        lines = part_ptr + tl.program_id(0) * COLS + line
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, parts, ROWS):
        inside = (row < parts - start) & (col < cols)[None, :]
        total += tl.load(part_ptr + (row * cols + col[None, :]), mask=inside, other=0.0)
        part_ptr += ROWS * cols
    tl.store(out_ptr + table * cols + col, tl.sum(total, 0).to(out_ptr.dtype.element_ty), mask=col < cols)
    if DROP > 0:
        tl.debug_barrier()  # all lanes have read
        drop_lines(lines)


def column_sum(
    parts: torch.Tensor, dtype: torch.dtype, *, last_use: bool = False, overlap: bool = False
) -> torch.Tensor:
    """Sum contiguous fp32 (tables, parts, columns) over ``parts``; (tables, columns) in ``dtype``. The same every run.

    Args:
        parts: what to sum.
        dtype: of the result: fp16, bf16 or fp32.
        last_use: the contents of ``parts`` may be lost: on Hopper, numbers of a large table that were just written, and
            are in the L2 still, then never go to memory.
        overlap: start before the kernel before has ended, which must allow it (Hopper only).

    Raises:
        KernelError: not contiguous fp32 of three dimensions, or ``dtype`` is not fp16, bf16 or fp32.

    Example::

        dw, db = column_sum(partials, torch.bfloat16)
    """
    return planned(_plan_sum, (parts,), dtype, last_use, overlap)(parts)


def _plan_sum(parts: torch.Tensor, dtype: torch.dtype, last_use: bool, overlap: bool) -> Callable[..., Any]:
    check_shape("parts", parts, (None, None, None))
    check_dtype("parts", parts, (torch.float32,))
    check_contiguous("parts", parts)
    tables, count, cols = parts.shape
    arch = architecture(parts)
    rows, width, warps = choose(CONFIGS, arch)["sum"]
    check_dtype("the sum", torch.empty(0, dtype=dtype, device=parts.device), FLOATS)
    overlap, drop = overlap and arch == "sm_90", last_use and arch == "sm_90" and 4 * parts.numel() >= DROP_BYTES
    grid, flags = (triton.cdiv(cols, width), tables), {"ROWS": rows, "COLS": width, "PDL": overlap}
    options = {"num_warps": warps, **({"launch_pdl": True} if overlap else {})}
    keep = Launch(column_sums, grid, (count, cols), flags | {"DROP": 0}, options)
    new_out = maker(parts, (tables, cols), dtype)
    most = triton.next_power_of_2(count) if drop and cols % width == 0 else 0
    forget = Launch(column_sums, grid, (count, cols), flags | {"DROP": most}, options)

    def run(parts: torch.Tensor) -> torch.Tensor:
        out = new_out()
        whole_lines = most and parts.data_ptr() % 128 == 0
        (forget if whole_lines else keep)(parts, out)
        return out

    return run


def norm_weight_grad(
    x: torch.Tensor,
    dy: torch.Tensor,
    rstd: torch.Tensor,
    mean: torch.Tensor | None = None,
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """dw, and db below it if ``bias``: (1 or 2, columns).

    Args:
        x: (rows, columns), rows any distance apart.
        dy: the same shape, contiguous.
        rstd, mean: (rows,), fp32, contiguous; no mean for RMSNorm.
        bias: also sum ``dy``.
        dtype: of the result; x's if None.

    Raises:
        KernelError: shapes, types or layouts that do not fit.

    Example::

        dw = norm_weight_grad(x, dy, rstd)[0]
    """
    return planned(_plan_grad, (x, dy, rstd, mean), bias, dtype)(x, dy, rstd, mean)


def _plan_grad(
    x: torch.Tensor,
    dy: torch.Tensor,
    rstd: torch.Tensor,
    mean: torch.Tensor | None,
    bias: bool,
    dtype: torch.dtype | None,
) -> Callable[..., Any]:
    flat = as_rows("x", x)
    rows, cols = flat.shape
    check_same_device(x=x, dy=dy, rstd=rstd, mean=mean)
    check_shape("dy", dy, (rows, cols))
    check_dtype("dy", dy, FLOATS)
    check_contiguous("dy", dy)
    check_vectors(rows, (torch.float32,), rstd=rstd, mean=mean)
    # Few rows are added up by one program for each narrow strip of columns, and there is nothing left to sum.
    few, kind = rows <= FEW_ROWS, dtype or x.dtype
    tile, width, warps = choose(CONFIGS, architecture(x))["few" if few else "many"]
    strips = triton.cdiv(cols, width)
    programs = 1 if few else max(1, min(triton.cdiv(rows, tile), triton.cdiv(4 * unit_count(x), strips)))
    part = kind if programs == 1 else torch.float32
    flags = {"CENTRED": mean is not None, "BIAS": bias, "ROWS": tile, "COLS": width}
    fixed = flat.stride(0), rows, cols
    launch = Launch(weight_grad_partials, (strips, programs), fixed, flags, {"num_warps": warps})
    new_parts = maker(x, (2 if bias else 1, programs, cols), part)

    def run(x: torch.Tensor, dy: torch.Tensor, rstd: torch.Tensor, mean: torch.Tensor | None) -> torch.Tensor:
        parts = new_parts()
        launch(x, dy, rstd if mean is None else mean, rstd, parts)
        return parts[:, 0] if programs == 1 else column_sum(parts, kind, last_use=True)

    return run


def reference_norm_weight_grad(
    x: torch.Tensor, dy: torch.Tensor, rstd: torch.Tensor, mean: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dw, db) in torch; ``rstd`` and ``mean`` hold one number per row."""
    centred = x if mean is None else x - mean[:, None]
    return (dy * centred * rstd[:, None]).sum(0), dy.sum(0)
