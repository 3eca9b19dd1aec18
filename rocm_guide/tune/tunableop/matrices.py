# SPDX-License-Identifier: MIT
"""Facts that decide how BLAS is called: a tensor's sizes, strides and type, and the rules of platform and release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocm_guide.common.base import GuideError

if TYPE_CHECKING:
    import torch

__all__ = ["CUDA_RULES", "BlasRules"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Sizes, strides (in elements) and element type of a tensor: all that decides how BLAS is called.

    >>> Matrix((4, 8), (8, 1), "Half").contiguous, Matrix((4, 8), (1, 4), "Half").contiguous
    (True, False)
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; the stride of a dimension of size 1 does not matter."""
        expected = 1
        for size, stride in zip(reversed(self.size), reversed(self.stride), strict=True):
            if size != 1:
                if stride != expected:
                    return False
                expected *= size
        return True

    @property
    def dense(self) -> bool:
        """A permutation of a row-major matrix: no gaps and no overlap."""
        expected = 1
        for size, stride in sorted(
            ((s, t) for s, t in zip(self.size, self.stride, strict=True) if s != 1), key=lambda pair: pair[1]
        ):
            if stride != expected:
                return False
            expected *= size
        return True

    def cloned(self) -> Matrix:
        """Return the contiguous copy that PyTorch makes when BLAS cannot read the tensor as it lies."""
        strides, step = [], 1
        for size in reversed(self.size):
            strides.append(step)
            step *= max(size, 1)
        return Matrix(self.size, tuple(reversed(strides)), self.dtype)


@dataclass(frozen=True, slots=True)
class BlasRules:
    """Points on which platforms and PyTorch releases differ; the defaults are ROCm's, :data:`CUDA_RULES` are NVIDIA's.

    ``fused_bias``: a bias goes into the GEMM (hipBLASLt, cuBLASLt), for the types ``fused_bias_types``.
    ``fused_row_bias``: so does a bias of shape [1, n].
    ``fused_bias_needs_rows``: only when the first operand has more than one row and column. torch 2.11 on an H100
    has no such condition, sources from late 2025 do: compare one recorded line with the plan and set it accordingly.
    ``batch_of_one_is_plain``: a batched product with one matrix is sent as an ordinary GEMM.
    ``tf32``: ``torch.backends.cuda.matmul.allow_tf32`` is on, so float32 products are called tf32.
    ``leading_dims``: write ``_ld_…`` (torch 2.6 and later).
    ``scaled``: 8-bit products with scales are tunable.
    ``cudnn_attention``: cuDNN is one of the fused attention kernels.
    """

    fused_bias: bool = True
    fused_bias_types: tuple[str, ...] = ("float", "tf32", "Half", "BFloat16")
    fused_row_bias: bool = False
    fused_bias_needs_rows: bool = False
    batch_of_one_is_plain: bool = True
    tf32: bool = False
    leading_dims: bool = True
    scaled: bool = True
    cudnn_attention: bool = False


#: What an NVIDIA H100 with torch 2.11 was seen to do (benchmarks/results, tunableop_recorder).
CUDA_RULES = BlasRules(
    fused_bias_types=("float", "tf32", "double", "Half", "BFloat16"),
    fused_row_bias=True,
    scaled=False,
    cudnn_attention=True,
)

_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
}


def torch_type_name(dtype: torch.dtype | str, *, tf32: bool = False) -> str:
    """Return the name TunableOp gives an element type: ``torch.float16`` is ``Half``.

    Raises:
        GuideError: BLAS has no product for the type (an integer, a boolean).

    >>> torch_type_name("float16"), torch_type_name("float32", tf32=True)
    ('Half', 'tf32')
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise GuideError(f"dtype={name}: TunableOp tunes {', '.join(_NAMES)}")
    return "tf32" if tf32 and name == "float32" else _NAMES[name]


def matrix_of(tensor: torch.Tensor, rules: BlasRules | None = None) -> Matrix:
    """Return sizes, strides and element type of a torch tensor, on any device including meta."""
    tf32 = rules is not None and rules.tf32
    return Matrix(tuple(tensor.shape), tuple(tensor.stride()), torch_type_name(tensor.dtype, tf32=tf32))
