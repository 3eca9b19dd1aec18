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
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["reference_rmsnorm_fp8", "rmsnorm_fp8"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def saturate(y, FMAX: tl.constexpr):
    """Return ``y``, where values beyond the largest FP8 number become that number; NaN stays NaN.

    The clamp is one instruction on AMD (v_med3_f32), but it turns NaN into a number: hence the second line.
    """
    clamped = tl.clamp(y, -FMAX, FMAX)
    return tl.where(y == y, clamped, y)


@triton.jit
def inside(at, columns, EVEN: tl.constexpr):
    """Return the mask of a tile; where tiles fill the row it is all true, which the compiler drops."""
    return tl.full(at.shape, 1, tl.int1) if EVEN else at < columns


@triton.jit
def _add_residual(x_ptr, residual_ptr, updated_ptr, offsets, mask):
    """Store x + residual, rounded to their type, as the next residual; return it in fp32."""
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    s = (x + r).to(updated_ptr.dtype.element_ty)
    tl.store(updated_ptr + offsets, s, mask=mask)
    return s.to(tl.float32)


@triton.jit
def rmsnorm_fp8_kernel(
    x_ptr, residual_ptr, weight_ptr, updated_ptr, out_ptr, scale_ptr, columns, x_stride, residual_stride,
    eps, inverse_scale,
    FMAX: tl.constexpr, BLOCK: tl.constexpr, ONE_PASS: tl.constexpr, DYNAMIC: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Work on one row. ``updated`` and ``out`` are contiguous."""
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


# Columns in registers at most, and warps by the size of the tile: (tile up to, num_warps), in ascending order.
# A wave of gfx942 has 64 lanes, so the same number of warps is twice as many threads there.
CONFIGS: dict[str, dict[str, Any]] = {
    "gfx942": {"one_pass": 32768, "warps": ((1024, 1), (2048, 2), (4096, 4), (16384, 8), (32768, 16)), "looped": 8192},
    "sm_90": {"one_pass": 32768, "warps": ((512, 1), (1024, 2), (2048, 4), (8192, 8), (32768, 16)), "looped": 8192},
}


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for (``gfx942``, ``sm_90``, ``interpreter``), or raise ValueError."""
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def stored_types(arch: str) -> tuple[torch.dtype, torch.dtype, float]:
    """Return the e4m3 type of ``arch`` (FNUZ on gfx942), the type that the kernel stores, and the largest number.

    Triton's interpreter loses carries where it converts to fp8: there the kernel stores fp32, and torch converts.
    """
    fp8, largest = (torch.float8_e4m3fnuz, 240.0) if arch.startswith("gfx94") else (torch.float8_e4m3fn, 448.0)
    return fp8, torch.float32 if arch == "interpreter" else fp8, largest


def inverse_of(scale: float) -> float:
    """Return 1 / scale, which must be a normal fp32 number too.

    Raises:
        ValueError: it is not a number, or not one of 1e-37 to 1e37.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 1e-37 <= scale <= 1e37:
        raise ValueError(f"scale={scale!r}: give a finite number of 1e-37 or more and 1e+37 or less")
    return 1.0 / scale


def check(name: str, x: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int | None], like: torch.Tensor) -> None:
    """Raise ValueError unless ``x`` has one of these types, this shape (None: any size) and the device of ``like``."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is {x!r:.40}: give a tensor")
    if x.dtype not in dtypes:
        raise ValueError(f"{name} is {x.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if x.ndim != len(shape) or any(s not in (None, have) for s, have in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} has shape {tuple(x.shape)}: give ({wanted})")
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, what came before on {like.device}: put them on one device")


def check_eps(eps: float) -> float:
    """Return ``eps`` as a float, or raise ValueError unless it is a finite number of 0 or more."""
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps <= torch.finfo(torch.float32).max:
        raise ValueError(f"eps={eps!r}: give a finite number of 0 or more")
    return 1.0 * eps


def rmsnorm_fp8(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: float | None = None,
    *,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return FP8 of RMSNorm(x + residual), the updated residual, and the scales, without autograd.

    Args:
        x, residual: (rows, columns), fp16, bf16 or fp32, any row stride.
        weight: (columns,), their type or fp32.
        scale: what one FP8 unit is worth, for the whole tensor; None finds one for each row.
        eps: added to the mean square.

    Returns:
        q (rows, columns) in the e4m3 form of the GPU (FNUZ on gfx942), the updated residual, and the scales (rows, 1)
        in fp32, or None when ``scale`` was given. In a row with NaN or infinity only static scales are defined.

    Raises:
        ValueError: shapes, types, devices, or a scale that is not a finite number above zero.

    >>> x, w = torch.ones(2, 8), torch.ones(8)
    >>> rmsnorm_fp8(x, x, w, float("nan"))
    Traceback (most recent call last):
        ...
    ValueError: scale=nan: give a finite number of 1e-37 or more and 1e+37 or less
    """
    inverse, eps = 1.0 if scale is None else inverse_of(scale), check_eps(eps)
    check("x", x, FLOATS, (None, None), x)
    if x.shape[1] < 1:
        raise ValueError(f"x has shape {tuple(x.shape)}: give (rows, columns) with at least one column")
    check("residual", residual, (x.dtype,), x.shape, x)
    check("weight", weight, (x.dtype, torch.float32), x.shape[1:], x)
    for name, t in (("x", x), ("residual", residual), ("weight", weight)):
        if t.shape[-1] > 1 and t.stride(-1) != 1:
            raise ValueError(f"{name} has stride {t.stride(-1)} in its last dimension: call .contiguous()")
    (rows, columns), arch = x.shape, architecture(x)
    config, (fp8, stored, largest) = CONFIGS.get(arch, CONFIGS["gfx942"]), stored_types(arch)
    q = torch.empty(x.shape, dtype=stored, device=x.device)
    updated = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device) if scale is None else None
    if rows:
        one_pass = columns <= config["one_pass"]
        block = max(triton.next_power_of_2(columns), 8) if one_pass else config["looped"]
        flags = {"FMAX": largest, "BLOCK": block, "ONE_PASS": one_pass, "DYNAMIC": scale is None}
        flags |= {"EVEN": columns % block == 0, "num_stages": 1}
        flags["num_warps"] = next(n for size, n in config["warps"] if block <= size)
        sizes = (columns, x.stride(0), residual.stride(0))
        rmsnorm_fp8_kernel[(rows,)](x, residual, weight, updated, q, scales, *sizes, eps, inverse, **flags)
    return q if stored is fp8 else q.to(fp8), updated, scales


def reference_rmsnorm_fp8(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the kernel computes before the division by the scale, in float64: (y, updated residual).

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
