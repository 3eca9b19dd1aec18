# SPDX-License-Identifier: MIT
"""What the kernels that end in FP8 share: saturation inside a kernel, and the output tensor around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from rocm_guide.kernels.fp8.formats import Fp8Format, fp8_dtype, fp8_format

if TYPE_CHECKING:
    import torch

__all__ = []


@triton.jit
def saturate(y, FMAX: tl.constexpr):
    """Values beyond the largest FP8 number become that number; NaN stays NaN.

    The clamp is one instruction on AMD (v_med3_f32), but it turns NaN into a number: hence the second line.
    """
    clamped = tl.clamp(y, -FMAX, FMAX)
    return tl.where(y == y, clamped, y)


@triton.jit
def inside(at, columns, EVEN: tl.constexpr):
    """The mask of a tile; where tiles fill the row it is all true, which the compiler drops with its arithmetic."""
    return tl.full(at.shape, 1, tl.int1) if EVEN else at < columns


def new_fp8(like: torch.Tensor, shape: Sequence[int], arch: str) -> tuple[torch.Tensor, Fp8Format]:
    """An output for a kernel that stores e4m3 in the form of ``arch``, and that form.

    In the interpreter it is float32: its own conversion to fp8 loses carries, so :func:`finish_fp8` converts.
    """
    import torch

    fmt = fp8_format("e4m3", arch)
    dtype = torch.float32 if arch == "interpreter" else fp8_dtype(fmt)
    return torch.empty(tuple(shape), dtype=dtype, device=like.device), fmt


def finish_fp8(out: torch.Tensor, fmt: Fp8Format) -> torch.Tensor:
    """``out`` as FP8: unchanged from a GPU, converted by torch (bit for bit our model of it) from the interpreter."""
    dtype = fp8_dtype(fmt)
    return out if out.dtype == dtype else out.to(dtype)
