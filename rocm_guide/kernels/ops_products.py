# SPDX-License-Identifier: MIT
"""Products of matrices, and attention over caches that are cut or compressed, as operators of PyTorch.

Beside :mod:`rocm_guide.kernels.ops`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocm_guide.kernels.decode.integer import attention_decode_int
from rocm_guide.kernels.decode.mla import mla_decode
from rocm_guide.kernels.decode.mla_prefill import mla_attention
from rocm_guide.kernels.decode.paged import attention_paged
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


def _paged(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, k_grid: Any, v_grid: Any, scale: float | None
) -> Tensor:
    grids = None if k_grid is None else (k_grid, v_grid)
    return attention_paged(q, k, v, table, lengths, grids=grids, scale=scale)


define(
    "attention_paged",
    "(Tensor q, Tensor k_pages, Tensor v_pages, Tensor table, Tensor lengths, Tensor? k_grid, Tensor? v_grid, "
    "float? scale) -> Tensor",
    _paged,
    lambda q, *_: torch.empty(q.shape, dtype=q.dtype, device=q.device),
)
define(
    "attention_decode_int",
    "(Tensor q, Tensor k_codes, Tensor v_codes, Tensor k_grid, Tensor v_grid, Tensor? lengths, float? scale, "
    "int? parts) -> Tensor",
    lambda q, k, v, k_grid, v_grid, lengths, scale, parts: attention_decode_int(
        q, k, v, k_grid, v_grid, lengths=lengths, scale=scale, parts=parts
    ),
    lambda q, *_: torch.empty(q.shape, dtype=q.dtype, device=q.device),
)


def _latent_shape(q_nope: Tensor, q_pe: Tensor, kv: Tensor, k_pe: Tensor, wkv_b: Tensor, *_: Any) -> Tensor:
    return q_nope.new_empty((*q_nope.shape[:-1], wkv_b.shape[1] - q_nope.shape[-1]))


_LATENT = "Tensor q_nope, Tensor q_pe, Tensor kv, Tensor k_pe, Tensor wkv_b"
define(
    "mla_decode",
    f"({_LATENT}, Tensor? lengths, float? scale, int? parts) -> Tensor",
    lambda q, q_pe, kv, k_pe, w, lengths, scale, parts: mla_decode(
        q, q_pe, kv, k_pe, w, lengths=lengths, scale=scale, parts=parts
    ),
    _latent_shape,
)
define(
    "mla_attention",
    f"({_LATENT}, bool causal, float? scale) -> Tensor",
    lambda q, q_pe, kv, k_pe, w, causal, scale: mla_attention(q, q_pe, kv, k_pe, w, causal=causal, scale=scale),
    _latent_shape,
)
