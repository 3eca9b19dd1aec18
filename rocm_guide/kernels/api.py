# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap.

Each is the function of the same name in the file that is named beside it, which is the one to read and to copy; what
stands around it is in :mod:`rocm_guide.kernels.fast`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.kernels import attention as _attention
from rocm_guide.kernels import attention_fp8 as _attention_fp8
from rocm_guide.kernels import decode as _decode
from rocm_guide.kernels import decode_int4 as _decode_int4
from rocm_guide.kernels import gemm as _gemm
from rocm_guide.kernels import gemm_multiply_reduce as _multiply_reduce
from rocm_guide.kernels import gemm_skinny as _skinny
from rocm_guide.kernels import gemm_split_k as _split_k
from rocm_guide.kernels import gemm_stream_k as _stream_k
from rocm_guide.kernels import int8_gemm as _int8
from rocm_guide.kernels import layer_norm as _layer_norm
from rocm_guide.kernels import mla_decode as _mla_decode
from rocm_guide.kernels import mla_prefill as _mla_prefill
from rocm_guide.kernels import paged as _paged
from rocm_guide.kernels import rms_norm as _rms_norm
from rocm_guide.kernels import rmsnorm_fp8 as _rmsnorm_fp8
from rocm_guide.kernels import softmax as _softmax
from rocm_guide.kernels import swiglu_fp8 as _swiglu_fp8
from rocm_guide.kernels.fast import fast

__all__ = []  # the helpers to copy are those in the files

softmax = fast(_softmax.softmax, _softmax.Softmax)
rms_norm = fast(_rms_norm.rms_norm, _rms_norm.RmsNorm)
layer_norm = fast(_layer_norm.layer_norm, _layer_norm.LayerNorm)

gemm = fast(_gemm.gemm)
gemm_split_k = fast(_split_k.gemm_split_k)
gemm_stream_k = fast(_stream_k.gemm_stream_k)
gemm_skinny = fast(_skinny.gemm_skinny)
gemm_multiply_reduce = fast(_multiply_reduce.gemm_multiply_reduce)

linear_abde_i8 = fast(_int8.linear_abde_i8)
linear_relu_abde_i8 = fast(_int8.linear_relu_abde_i8)
linear_ab_i8_de_f32 = fast(_int8.linear_ab_i8_de_f32)
bmm_abe_i8 = fast(_int8.bmm_abe_i8)
bmm_ab_i8_e_f32 = fast(_int8.bmm_ab_i8_e_f32)
linear_scaled = fast(_int8.linear_scaled)

rmsnorm_fp8 = fast(_rmsnorm_fp8.rmsnorm_fp8)
swiglu_fp8 = fast(_swiglu_fp8.swiglu_fp8)

_attention_repeated = fast(_attention.attention, _attention.Attention)


def attention(*args: Any, **options: Any) -> Any:
    # With dropout each call has a seed of its own, and each would be a kind of call to remember.
    call: Callable[..., Any] = _attention.attention if options.get("dropout") else _attention_repeated
    return call(*args, **options)


attention.__doc__, attention.__wrapped__ = _attention.attention.__doc__, _attention.attention  # type: ignore[attr-defined]
attention_quantized = fast(_attention_fp8.attention_quantized)
attention_decode = fast(_decode.attention_decode)
attention_decode_int = fast(_decode_int4.attention_decode_int)
attention_paged = fast(_paged.attention_paged)
mla_decode = fast(_mla_decode.mla_decode)
mla_attention = fast(_mla_prefill.mla_attention)
