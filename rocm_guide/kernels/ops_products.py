# SPDX-License-Identifier: MIT
"""Products of matrices as operators of PyTorch.

Beside :mod:`rocm_guide.kernels.ops`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocm_guide.kernels.gemm.multiply_reduce import gemm_multiply_reduce
from rocm_guide.kernels.gemm.split_k import gemm_split_k
from rocm_guide.kernels.gemm.stream_k import gemm_stream_k
from rocm_guide.kernels.int8 import operators as int8
from rocm_guide.kernels.ops import define

__all__ = []


def _product(a: Tensor, b: Tensor, dtype: torch.dtype | None, whole: bool = False) -> Tensor:
    """What holds a @ b: in ``dtype``, else in the type of a, bfloat16 for 8 bits, int32 for int8 that stays whole."""
    eight = torch.int32 if whole and a.dtype == torch.int8 else torch.bfloat16
    usual = a.dtype if a.element_size() > 1 else eight
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=dtype or usual)


def _split_k(
    a: Tensor, b: Tensor, bias: Any, split: int | None, atomic: bool, activation: str, alpha: float, *types: Any
) -> Tensor:
    out_dtype, tf32 = types
    how = {"activation": activation, "alpha": alpha, "out_dtype": out_dtype, "tf32": tf32}
    return gemm_split_k(a, b, bias, split=split, atomic=atomic, **how)


def _split_k_shape(
    a: Tensor, b: Tensor, bias: Any, split: int | None, atomic: bool, activation: str, alpha: float, *types: Any
) -> Tensor:
    sums = torch.int32 if a.dtype == torch.int8 else torch.float32
    plain = activation == "none" and bias is None and alpha == 1.0
    return _product(a, b, types[0] or (sums if atomic else None), plain)


define(
    "gemm_split_k",
    "(Tensor a, Tensor b, Tensor? bias, int? split, bool atomic, str activation, float alpha, ScalarType? out_dtype, "
    "bool tf32) -> Tensor",
    _split_k,
    _split_k_shape,
)
define(
    "gemm_stream_k",
    "(Tensor a, Tensor b, ScalarType? out_dtype, bool tf32) -> Tensor",
    lambda a, b, out_dtype, tf32: gemm_stream_k(a, b, out_dtype=out_dtype, tf32=tf32),
    lambda a, b, out_dtype, tf32: _product(a, b, out_dtype),
)
define(
    "gemm_multiply_reduce",
    "(Tensor a, Tensor b, float alpha, ScalarType? out_dtype) -> Tensor",
    lambda a, b, alpha, out_dtype: gemm_multiply_reduce(a, b, alpha=alpha, out_dtype=out_dtype),
    lambda a, b, alpha, out_dtype: _product(a, b, out_dtype, whole=True),
)
define(
    "linear_int8",
    "(Tensor a, Tensor b, Tensor d, float alpha, float beta, bool relu, ScalarType dtype) -> Tensor",
    lambda a, b, d, alpha, beta, relu, dtype: int8.linear_int8(a, b, d, alpha, beta, relu, dtype),
    lambda a, b, d, alpha, beta, relu, dtype: _product(a, b, dtype),
)
define(
    "bmm_int8",
    "(Tensor a, Tensor b, float alpha, ScalarType dtype) -> Tensor",
    lambda a, b, alpha, dtype: int8.bmm_int8(a, b, alpha, dtype),
    lambda a, b, alpha, dtype: _product(a, b, dtype),
)
define(
    "linear_scaled",
    "(Tensor a, Tensor b, Tensor row_scale, Tensor column_scale, Tensor? bias, ScalarType? out_dtype) -> Tensor",
    lambda a, b, rows, columns, bias, out_dtype: int8.linear_scaled(a, b, rows, columns, bias, out_dtype=out_dtype),
    lambda a, b, rows, columns, bias, out_dtype: _product(a, b, out_dtype or torch.float32),
)
