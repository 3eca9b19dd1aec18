# SPDX-License-Identifier: MIT
"""Residual add, RMSNorm and conversion to FP8 in one kernel, forward.

    s     = x + residual                               (rounded to their type; the next residual)
    y     = s / sqrt(mean(s^2) + eps) * weight         (fp32)
    q     = fp8(y / scale)                             (saturating, to nearest even)

``scale`` is one number for the whole tensor (static), or one for each row, ``max|y| / 240`` or ``/ 448`` (dynamic).
Either way ``q * scale`` is about y, which is what ``torch._scaled_mm`` expects of its scales.

A row is read once and stays in registers if it fits (up to 32,768 columns); a longer one is read again, from cache.
Source: "Creating custom kernels for the AMD MI300", Hugging Face, 2025, equations 1 to 3, with the mean that the
equations leave out; B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", https://arxiv.org/abs/1910.07467.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
    choose,
    next_power_of_2,
)
from rocm_guide.kernels.fp8.store import Fp8Output, inside, saturate
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.tracing import traced

__all__ = ["reference_rmsnorm_fp8", "rmsnorm_fp8"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

# Columns in registers at most, and warps by the size of the tile: (tile up to, num_warps), in ascending order.
# A wave of gfx942 has 64 lanes, so the same number of warps is twice as many threads there.
CONFIGS: dict[str, dict[str, Any]] = {
    "gfx942": {"one_pass": 32768, "warps": ((1024, 1), (2048, 2), (4096, 4), (8192, 8), (32768, 16)), "looped": 8192},
    "sm_90": {"one_pass": 32768, "warps": ((512, 1), (1024, 2), (2048, 4), (8192, 8), (32768, 16)), "looped": 8192},
}


@triton.jit
def _add_residual(x_ptr, residual_ptr, updated_ptr, offsets, mask):
    """X + residual rounded to their type, stored as the next residual, returned in fp32."""
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    s = (x + r).to(updated_ptr.dtype.element_ty)
    tl.store(updated_ptr + offsets, s, mask=mask)
    return s.to(tl.float32)


@triton.jit
def rmsnorm_fp8_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    updated_ptr,
    out_ptr,
    scale_ptr,
    columns,
    x_stride,
    residual_stride,
    eps,
    inverse_scale,
    FMAX: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_PASS: tl.constexpr,
    DYNAMIC: tl.constexpr,
    EVEN: tl.constexpr,
):
    """One row per program. ``updated`` and ``out`` are contiguous."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    residual_ptr += row * residual_stride
    updated_ptr += row * columns
    out_ptr += row * columns
    # At most eight neighbours for a lane: 16, which a 128-bit store of FP8 would like, would tear the fp16 loads apart
    # (lanes 32 bytes from each other) and send the residual through LDS.
    lane = tl.max_contiguous(tl.arange(0, BLOCK), 8)
    inverse = inverse_scale
    if ONE_PASS:
        mask = inside(lane, columns, EVEN)
        # Before the sum, whose barrier no load passes: the weight is then on its way while the row is reduced.
        weight = tl.load(weight_ptr + lane, mask=mask, other=0.0).to(tl.float32)
        s = _add_residual(x_ptr, residual_ptr, updated_ptr, lane, mask)
        y = s * tl.rsqrt(tl.sum(s * s, 0) / columns + eps) * weight
        if DYNAMIC:
            # 1e-30 is the smallest row maximum with a scale of its own: below, the scale's reciprocal would overflow.
            scale = tl.maximum(tl.max(tl.abs(y), 0), 1e-30) / FMAX
            tl.store(scale_ptr + row, scale)
            inverse = 1.0 / scale
        tl.store(out_ptr + lane, saturate(y * inverse, FMAX).to(out_ptr.dtype.element_ty), mask=mask)
    else:
        total = tl.zeros((BLOCK,), tl.float32)
        top = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            at = start + lane
            mask = inside(at, columns, EVEN)
            s = _add_residual(x_ptr, residual_ptr, updated_ptr, at, mask)
            total += s * s
            if DYNAMIC:
                weight = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
                top = tl.maximum(top, tl.abs(s * weight))
        rstd = tl.rsqrt(tl.sum(total, 0) / columns + eps)
        if DYNAMIC:
            scale = tl.maximum(tl.max(top, 0) * rstd, 1e-30) / FMAX
            tl.store(scale_ptr + row, scale)
            inverse = 1.0 / scale
        # Who reads a column back need not be who wrote it: the two loops may have different layouts.
        tl.debug_barrier()
        for start in range(0, columns, BLOCK):
            at = start + lane
            mask = inside(at, columns, EVEN)
            s = tl.load(updated_ptr + at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
            q = saturate(s * rstd * weight * inverse, FMAX).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + at, q, mask=mask)


def _check(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    check_dtype("x", x, FLOATS)
    if x.ndim != 2 or x.shape[1] < 1:
        raise KernelError(f"x has shape {tuple(x.shape)}: give (rows, columns) with at least one column")
    check_dtype("residual", residual, (x.dtype,))
    check_shape("residual", residual, x.shape)
    check_dtype("weight", weight, (x.dtype, torch.float32))
    check_shape("weight", weight, (x.shape[1],))
    check_same_device(x=x, residual=residual, weight=weight)
    for name, tensor in (("x", x), ("residual", residual), ("weight", weight)):
        check_last_contiguous(name, tensor)


def rmsnorm_fp8(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: float | None = None,
    *,
    eps: float = 1e-6,
    in_place: bool = False,
    warps: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """FP8 of RMSNorm(x + residual), and the updated residual.

    Args:
        x, residual: (rows, columns), fp16, bf16 or fp32, any row stride.
        weight: (columns,), their type or fp32.
        scale: what one FP8 unit is worth, for the whole tensor; None finds one for each row.
        eps: added to the mean square.
        in_place: write the updated residual over ``residual`` (then contiguous).
        warps: instead of the table's choice.

    Returns:
        q (rows, columns) in the e4m3 form of the GPU (FNUZ on gfx942), the updated residual, and the scales (rows, 1)
        in fp32, or None when ``scale`` was given. In a row with NaN or infinity only static scales are defined.

    Raises:
        KernelError: shapes, types, devices, or a scale that is not a finite number above zero.

    >>> x, w = torch.ones(2, 8), torch.ones(8)
    >>> rmsnorm_fp8(x, x, w, float("nan"))
    Traceback (most recent call last):
        ...
    rocm_guide.kernels.arguments.KernelError: scale=nan: give a finite number of 1e-37 or more and 1e+37 or less
    """
    if traced():
        q, updated, scales = torch.ops.rocm_guide.rmsnorm_fp8(x, residual, weight, scale, eps)
        return q, residual.copy_(updated) if in_place else updated, scales if scale is None else None
    # 1 / scale must be a normal fp32 number too.
    inverse = 1.0 if scale is None else 1.0 / check_number("scale", scale, 1e-37, 1e37)
    eps = check_number("eps", eps, 0.0)
    plan = planned(_plan, (x, residual, weight), scale is None, bool(in_place), warps)
    return plan(x, residual, weight, eps, inverse)


def _plan(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, dynamic: bool, in_place: bool, warps: int | None
) -> Callable[..., Any]:
    _check(x, residual, weight)
    rows, columns = x.shape
    if in_place and not residual.is_contiguous():
        raise KernelError(f"residual has strides {residual.stride()}: in_place needs a contiguous one")
    arch = architecture(x)
    config, fp8 = choose(CONFIGS, arch), Fp8Output(arch, x, x.shape)
    new_residual, new_scales = maker(x, x.shape), maker(x, (rows, 1), torch.float32)
    one_pass = columns <= config["one_pass"]
    block = max(next_power_of_2(columns), 8) if one_pass else config["looped"]
    flags = {"FMAX": fp8.format.maximum, "BLOCK": block, "ONE_PASS": one_pass}
    flags |= {"DYNAMIC": dynamic, "EVEN": columns % block == 0}
    options = {"num_warps": warps or next(n for size, n in config["warps"] if block <= size), "num_stages": 1}
    launch = Launch(rmsnorm_fp8_kernel, (rows,), (columns, x.stride(0), residual.stride(0)), flags, options)

    def run(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, inverse: float) -> Any:
        out = fp8.new()
        updated = residual if in_place else new_residual()
        scales = new_scales() if dynamic else None
        if rows:
            launch(x, residual, weight, updated, out, scales, floats=(eps, inverse))
        return fp8.finished(out), updated, scales

    return run


def reference_rmsnorm_fp8(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel computes before the division by the scale, in float64: (y, updated residual).

    The sum is rounded to the type of ``x``, as the model keeps it.

    >>> x = torch.tensor([[1.0, 2.0]])
    >>> y, s = reference_rmsnorm_fp8(x, torch.tensor([[2.0, 2.0]]), torch.ones(2), eps=0.0)
    >>> s.tolist(), (y * 12.5**0.5).tolist()
    ([[3.0, 4.0]], [[3.0, 4.0]])
    """
    s = (x.double() + residual.double()).to(x.dtype)
    wide = s.double()
    y = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    return y, s
