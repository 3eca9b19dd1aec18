# SPDX-License-Identifier: MIT
"""SwiGLU and conversion to FP8 in one kernel, forward.

    x = [gate | up]                                    (one row of the Gate/Up projection)
    y = gate * sigmoid(gate) * up                      (fp32; sigmoid(g) = 1 / (1 + 2^(-g log2 e)))
    q = fp8(y / scale)                                 (saturating, to nearest even)

``scale`` is one number for the whole tensor (static), or one for each row (dynamic). ``q * scale`` is about y.
Source: "Creating custom kernels for the AMD MI300", Hugging Face, 2025, equations 4 and 5, with the factor ``gate``
and the sigmoid put right; N. Shazeer, "GLU Variants Improve Transformer", https://arxiv.org/abs/2002.05202.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["reference_swiglu_fp8", "swiglu_fp8"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
MINUS_LOG2_E = tl.constexpr(-1.4426950408889634)


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
def _swiglu(x_ptr, offsets, columns, mask):
    """Return y of a tile of columns, in fp32.

    exp2 is an instruction, exp is not: the factor log2(e) is folded in. A division is a dozen instructions on AMD, the
    reciprocal square root is one: 1 / d is its square. Together 7 instead of 22 vector instructions for each column.
    """
    gate = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + columns + offsets, mask=mask, other=0.0).to(tl.float32)
    root = tl.rsqrt(1.0 + tl.exp2(gate * MINUS_LOG2_E))
    return gate * root * root * up


@triton.jit
def swiglu_fp8_kernel(
    x_ptr, out_ptr, x_stride, inverse_scale,
    COLUMNS: tl.constexpr, FMAX: tl.constexpr, BLOCK: tl.constexpr, CLAMP: tl.constexpr,
):  # fmt: skip
    """Work on one tile of one row, with a given scale. The width is a constant: addresses then cost next to nothing."""
    TILES: tl.constexpr = (COLUMNS + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // TILES).to(tl.int64)
    # At most eight neighbours for a lane: 16, which a 128-bit store of FP8 would like, would tear the fp16 loads apart.
    offsets = tl.program_id(0) % TILES * BLOCK + tl.max_contiguous(tl.arange(0, BLOCK), 8)
    mask = inside(offsets, COLUMNS, COLUMNS % BLOCK == 0)
    y = _swiglu(x_ptr + row * x_stride, offsets, COLUMNS, mask) * inverse_scale
    if CLAMP:
        y = saturate(y, FMAX)
    tl.store(out_ptr + row * COLUMNS + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_fp8_rows_kernel(
    x_ptr, out_ptr, scale_ptr, columns, x_stride,
    FMAX: tl.constexpr, BLOCK: tl.constexpr, ONE_PASS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Work on one row and find its scale: the row is kept in registers if it fits, else computed twice."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    out_ptr += row * columns
    lane = tl.max_contiguous(tl.arange(0, BLOCK), 8)
    if ONE_PASS:
        mask = inside(lane, columns, EVEN)
        y = _swiglu(x_ptr, lane, columns, mask)
        scale = tl.maximum(tl.max(tl.abs(y), 0), 1e-30) / FMAX
        q = saturate(y * (1.0 / scale), FMAX).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + lane, q, mask=mask)
    else:
        top = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            at = start + lane
            top = tl.maximum(top, tl.abs(_swiglu(x_ptr, at, columns, inside(at, columns, EVEN))))
        scale = tl.maximum(tl.max(top, 0), 1e-30) / FMAX
        for start in range(0, columns, BLOCK):
            at = start + lane
            y = _swiglu(x_ptr, at, columns, inside(at, columns, EVEN))
            q = saturate(y * (1.0 / scale), FMAX).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + at, q, mask=inside(at, columns, EVEN))
    tl.store(scale_ptr + row, scale)


# static: (results up to, tile, num_warps), in ascending order, the last for any number: few results need small tiles so
# that every unit gets some. The others are for per-row scales: columns in registers at most, (tile up to, num_warps),
# and the tile of rows that do not fit.
CONFIGS: dict[str, dict[str, Any]] = {
    "gfx942": {
        "static": ((304 * 2048, 1024, 1), (304 * 4096, 2048, 2), (None, 4096, 4)),
        "one_pass": 32768,
        "warps": ((1024, 1), (2048, 2), (4096, 4), (8192, 8), (32768, 16)),
        "looped": 8192,
    },
    "sm_90": {
        # From a sweep at 1 to 2,048 rows of 8,192 results on an H100.
        "static": (
            (8192, 256, 4),
            (32768, 2048, 16),
            (131072, 256, 4),
            (524288, 1024, 16),
            (2097152, 2048, 16),
            (None, 512, 4),
        ),
        "one_pass": 32768,
        "warps": ((512, 2), (1024, 4), (2048, 8), (4096, 16), (32768, 32)),
        "looped": 8192,
    },
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


def swiglu_fp8(x: torch.Tensor, scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return FP8 of SwiGLU of ``x = [gate | up]``, and the scales, without autograd.

    Args:
        x: (rows, 2 * columns), fp16, bf16 or fp32, any row stride.
        scale: what one FP8 unit is worth, for the whole tensor; None finds one for each row.

    Returns:
        q (rows, columns) in the e4m3 form of the GPU (FNUZ on gfx942), and the scales (rows, 1) in fp32, or None when
        ``scale`` was given. In a row with NaN or infinity only static scales are defined.

    Raises:
        ValueError: shapes, types, devices, or a scale that is not a finite number above zero.

    >>> swiglu_fp8(torch.ones(2, 7), 0.5)
    Traceback (most recent call last):
        ...
    ValueError: x has shape (2, 7): give (rows, 2 * columns), gate and up side by side
    """
    inverse = None if scale is None else inverse_of(scale)
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        raise ValueError(f"x is {str(getattr(x, 'dtype', repr(x)))[:40].removeprefix('torch.')}: give a float tensor")
    if x.ndim != 2 or x.shape[1] < 2 or x.shape[1] % 2:
        raise ValueError(f"x has shape {tuple(x.shape)}: give (rows, 2 * columns), gate and up side by side")
    if x.stride(1) != 1:
        raise ValueError(f"x has stride {x.stride(1)} in its last dimension: call .contiguous()")
    arch, rows, columns = architecture(x), x.shape[0], x.shape[1] // 2
    config, (fp8, stored, largest) = CONFIGS.get(arch, CONFIGS["gfx942"]), stored_types(arch)
    q = torch.empty((rows, columns), dtype=stored, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device) if scale is None else None
    if rows and scales is None:
        block, n = next((t, w) for most, t, w in config["static"] if most is None or rows * columns <= most)
        # NVIDIA's conversion saturates by itself; AMD's makes NaN of what is too large.
        flags = {"COLUMNS": columns, "FMAX": largest, "BLOCK": block, "CLAMP": not arch.startswith("sm_")}
        swiglu_fp8_kernel[(rows * triton.cdiv(columns, block),)](x, q, x.stride(0), inverse, **flags, num_warps=n)
    elif rows:
        one_pass = columns <= config["one_pass"]
        block = max(triton.next_power_of_2(columns), 8) if one_pass else config["looped"]
        flags = {"FMAX": largest, "BLOCK": block, "ONE_PASS": one_pass, "EVEN": columns % block == 0, "num_stages": 1}
        flags["num_warps"] = next(n for size, n in config["warps"] if block <= size)
        swiglu_fp8_rows_kernel[(rows,)](x, q, scales, columns, x.stride(0), **flags)
    return q if stored is fp8 else q.to(fp8), scales


def reference_swiglu_fp8(x: torch.Tensor) -> torch.Tensor:
    """Return what the kernel computes before the division by the scale, in float64.

    >>> [round(v, 4) for v in reference_swiglu_fp8(torch.tensor([[0.0, 2.0, 1.0, 3.0]]))[0].tolist()]
    [0.0, 5.2848]
    """
    gate, up = x.double().chunk(2, -1)
    return torch.nn.functional.silu(gate) * up
