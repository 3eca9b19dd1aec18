# SPDX-License-Identifier: MIT
"""The ladder to rmsnorm_fp8.py: the same operation with a static scale, one improvement at a time.

    s = x + residual;   y = s / sqrt(mean(s^2) + eps) * weight;   q = fp8(y / scale)

1. pointwise: one number for each lane and instruction; s goes to memory and is read back; FP8 by integer arithmetic.
2. vectors: 128-bit accesses, but each lane has a run of its own, so the lanes of one instruction lie apart.
3. coalesced: the same accesses with neighbouring lanes side by side.
4. registers: s stays where it was computed.
5. packed: FP8 by the conversion instruction. This is rmsnorm_fp8.py.

Every rung is right; ``cdna/cdna/hip/ladder.hip`` has the same in HIP, with one more that keeps s in LDS.
Source: "Creating custom kernels for the AMD MI300", Hugging Face, 2025.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.fp8 import fp8_dtype, fp8_format
from rocm_guide.kernels.rmsnorm_fp8 import architecture, check, check_eps, inverse_of, rmsnorm_fp8, saturate

__all__ = ["RUNGS", "run_rung"]

#: The names of the rungs, the first is number 1.
RUNGS = ("pointwise", "vectors", "coalesced", "registers", "packed")


@triton.jit
def _fp8_by_hand(y, BIAS: tl.constexpr, FNUZ: tl.constexpr):
    """Return the byte of a saturated fp32 number, to nearest even, with integer arithmetic on its bits."""
    bits = y.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # Below the smallest normal number, adding 2^(21 - BIAS) leaves the rounded number of steps in the lowest bits.
    small = (tl.abs(y) + (1 << (21 - BIAS))).to(tl.uint32, bitcast=True) & 0xFF
    normal = (size - ((127 - BIAS) << 23) + 0x7FFFF + ((size >> 20) & 1)) >> 20
    code = tl.where(size < ((128 - BIAS) << 23), small, normal)
    sign = (bits >> 24) & 0x80
    if FNUZ:
        code = tl.where(code == 0, code, code | sign)
    else:
        code |= sign
    return tl.where(size > 0x7F800000, 0x80 if FNUZ else 0x7F, code).to(tl.uint8)


@triton.jit
def _offsets(v, BLOCK: tl.constexpr, RUN: tl.constexpr):
    """Return where the v-th tile of a row lies: BLOCK neighbours, or (RUN > 0) 8 of each lane's own run of RUN."""
    if RUN:
        at = tl.arange(0, BLOCK // 8)[:, None] * RUN + v * 8 + tl.arange(0, 8)[None, :]
    else:
        at = v * BLOCK + tl.max_contiguous(tl.arange(0, BLOCK), 8)
    return at


@triton.jit
def rung_two_reads_kernel(
    x_ptr, residual_ptr, weight_ptr, updated_ptr, out_ptr, columns, eps, inverse,
    FMAX: tl.constexpr, BIAS: tl.constexpr, FNUZ: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Climb rungs 1 to 3: the row is read twice, tile by tile."""
    start = tl.program_id(0).to(tl.int64) * columns
    total = 0.0
    for v in range(tl.cdiv(columns, BLOCK)):
        at = _offsets(v, BLOCK, RUN)
        x = tl.load(x_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
        r = tl.load(residual_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
        s = (x + r).to(updated_ptr.dtype.element_ty)
        tl.store(updated_ptr + start + at, s, mask=at < columns)
        wide = s.to(tl.float32)
        total += tl.sum(wide * wide)
    rstd = 1.0 / tl.sqrt(total / columns + eps)
    tl.debug_barrier()  # who reads a number back need not be who wrote it
    for v in range(tl.cdiv(columns, BLOCK)):
        at = _offsets(v, BLOCK, RUN)
        s = tl.load(updated_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        code = _fp8_by_hand(saturate(s * rstd * weight * inverse, FMAX), BIAS, FNUZ)
        tl.store(out_ptr + start + at, code, mask=at < columns)


@triton.jit
def rung_registers_kernel(
    x_ptr, residual_ptr, weight_ptr, updated_ptr, out_ptr, columns, eps, inverse,
    FMAX: tl.constexpr, BIAS: tl.constexpr, FNUZ: tl.constexpr, BLOCK: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """Climb rung 4: the row is read once. Without the hint the FP8 store, 16 neighbours a lane, decides all layouts."""
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    if HINT:
        at = tl.max_contiguous(at, 8)
    x = tl.load(x_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
    r = tl.load(residual_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
    s = (x + r).to(updated_ptr.dtype.element_ty)
    tl.store(updated_ptr + start + at, s, mask=at < columns)
    wide = s.to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(wide * wide) / columns + eps)
    weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    code = _fp8_by_hand(saturate(wide * rstd * weight * inverse, FMAX), BIAS, FNUZ)
    tl.store(out_ptr + start + at, code, mask=at < columns)


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, WAY: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Compute x * sigmoid(x) in three ways, to see what they compile to: exp, exp2, exp2 without a division."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    if WAY == "exp":
        y = x / (1.0 + tl.exp(-x))
    elif WAY == "exp2":
        y = x / (1.0 + tl.exp2(x * -1.4426950408889634))
    else:
        root = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950408889634))
        y = x * root * root
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def run_rung(
    rung: int, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, scale: float, *, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one rung of the ladder, (q, updated residual), as :func:`~rocm_guide.kernels.rmsnorm_fp8.rmsnorm_fp8`.

    Args:
        rung: 1 to 5, see :data:`RUNGS`.
        x, residual: (rows, columns), fp16, contiguous; columns a power of two from 4,096 to 32,768.
        weight: (columns,), fp16.
        scale: what one FP8 unit is worth.

    Raises:
        ValueError: no such rung, or arguments that it cannot take.
    """
    if rung not in range(1, 6):
        raise ValueError(f"rung={rung!r}: give 1 to {len(RUNGS)}")
    check("x", x, (torch.float16,), (None, None), x)
    columns = x.shape[1]
    if not 4096 <= columns <= 32768 or columns != triton.next_power_of_2(columns):
        raise ValueError(f"x has {columns} columns: give a power of two from 4,096 to 32,768")
    check("residual", residual, (x.dtype,), x.shape, x)
    check("weight", weight, (x.dtype,), (columns,), x)
    for name, t in (("x", x), ("residual", residual), ("weight", weight)):
        if not t.is_contiguous():
            raise ValueError(f"{name} of shape {tuple(t.shape)} has strides {t.stride()}: call .contiguous()")
    inverse, eps = inverse_of(scale), check_eps(eps)
    if rung == 5:
        return rmsnorm_fp8(x, residual, weight, scale, eps=eps)[:2]
    arch = architecture(x)
    fmt = fp8_format("e4m3", arch)
    lanes = 64 if arch.startswith("gfx") else 32
    warps = 16 if columns >= 8192 else 8
    updated = torch.empty_like(x)
    out = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    tile = {1: lanes * warps, 2: lanes * warps * 8, 3: lanes * warps * 8, 4: columns}[rung]
    tile = min(tile, columns)
    options = {"FMAX": fmt.maximum, "BIAS": fmt.bias, "FNUZ": fmt.fnuz, "BLOCK": tile, "num_warps": warps}
    arguments = (x, residual, weight, updated, out, columns, eps, inverse)
    if rung == 4:
        rung_registers_kernel[(x.shape[0],)](*arguments, HINT=True, **options)
    else:
        run = columns * 8 // tile if rung == 2 else 0
        rung_two_reads_kernel[(x.shape[0],)](*arguments, RUN=run, **options)
    return out.view(fp8_dtype(fmt)), updated
