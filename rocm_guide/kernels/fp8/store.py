# SPDX-License-Identifier: MIT
"""What the kernels that end in FP8 share: saturation inside a kernel, and the output tensor around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from rocm_guide.kernels.fp8.formats import Fp8Format, fp8_dtype, fp8_format
from rocm_guide.kernels.launch import maker

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


class Fp8Output:
    """What a kernel stores e4m3 in, in the form of an architecture: ``new`` before the launch, ``finished`` after it.

    In the interpreter the kernel stores float32, because the interpreter's own conversion to fp8 loses carries;
    ``finished`` then converts by torch, bit for bit our model of it.
    """

    def __init__(self, arch: str, like: torch.Tensor, shape: Sequence[int]) -> None:
        import torch

        self.format: Fp8Format = fp8_format("e4m3", arch)
        self.dtype = fp8_dtype(self.format)
        self.stored = torch.float32 if arch == "interpreter" else self.dtype
        #: Makes room for the kernel to write, where ``like`` is.
        self.new = maker(like, shape, self.stored)

    def finished(self, out: torch.Tensor) -> torch.Tensor:
        """What was written, as FP8."""
        return out if self.stored is self.dtype else out.to(self.dtype)
