# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap.

Each is the function of the same name in the file that is named beside it, which is the one to read and to copy; what
stands around it is in :mod:`rocm_guide.kernels.fast`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.kernels.attention import Attention
from rocm_guide.kernels.attention import attention as _attention
from rocm_guide.kernels.attention_fp8 import attention_quantized as _attention_quantized
from rocm_guide.kernels.decode import attention_decode as _attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int as _attention_decode_int
from rocm_guide.kernels.fast import fast
from rocm_guide.kernels.gemm import gemm as _gemm
from rocm_guide.kernels.gemm_skinny import gemm_skinny as _gemm_skinny
from rocm_guide.kernels.gemm_split_k import gemm_split_k as _gemm_split_k
from rocm_guide.kernels.gemm_stream_k import gemm_stream_k as _gemm_stream_k
from rocm_guide.kernels.int8_gemm import bmm_ab_i8_e_f32 as _bmm_ab_i8_e_f32
from rocm_guide.kernels.int8_gemm import bmm_abe_i8 as _bmm_abe_i8
from rocm_guide.kernels.int8_gemm import linear_ab_i8_de_f32 as _linear_ab_i8_de_f32
from rocm_guide.kernels.int8_gemm import linear_abde_i8 as _linear_abde_i8
from rocm_guide.kernels.int8_gemm import linear_relu_abde_i8 as _linear_relu_abde_i8
from rocm_guide.kernels.int8_gemm import linear_scaled as _linear_scaled
from rocm_guide.kernels.layer_norm import LayerNorm
from rocm_guide.kernels.layer_norm import layer_norm as _layer_norm
from rocm_guide.kernels.mla_decode import mla_decode as _mla_decode
from rocm_guide.kernels.mla_prefill import mla_attention as _mla_attention
from rocm_guide.kernels.paged import attention_paged as _attention_paged
from rocm_guide.kernels.rms_norm import RmsNorm
from rocm_guide.kernels.rms_norm import rms_norm as _rms_norm
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8 as _rmsnorm_fp8
from rocm_guide.kernels.softmax import Softmax
from rocm_guide.kernels.softmax import softmax as _softmax
from rocm_guide.kernels.swiglu_fp8 import swiglu_fp8 as _swiglu_fp8

__all__ = ["attention", "attention_decode", "layer_norm", "rms_norm", "softmax"]

softmax = fast(_softmax, Softmax)
rms_norm = fast(_rms_norm, RmsNorm)
layer_norm = fast(_layer_norm, LayerNorm)

gemm = fast(_gemm)
gemm_split_k = fast(_gemm_split_k)
gemm_stream_k = fast(_gemm_stream_k)
gemm_skinny = fast(_gemm_skinny)

linear_abde_i8 = fast(_linear_abde_i8)
linear_relu_abde_i8 = fast(_linear_relu_abde_i8)
linear_ab_i8_de_f32 = fast(_linear_ab_i8_de_f32)
bmm_abe_i8 = fast(_bmm_abe_i8)
bmm_ab_i8_e_f32 = fast(_bmm_ab_i8_e_f32)
linear_scaled = fast(_linear_scaled)

rmsnorm_fp8 = fast(_rmsnorm_fp8)
swiglu_fp8 = fast(_swiglu_fp8)

_attention_repeated = fast(_attention, Attention)


def attention(*args: Any, **options: Any) -> Any:
    # With dropout each call has a seed of its own, and each would be a kind of call to remember.
    call: Callable[..., Any] = _attention if options.get("dropout") else _attention_repeated
    return call(*args, **options)


attention.__doc__, attention.__wrapped__ = _attention.__doc__, _attention  # type: ignore[attr-defined]
attention_quantized = fast(_attention_quantized)
attention_decode = fast(_attention_decode)
attention_decode_int = fast(_attention_decode_int)
attention_paged = fast(_attention_paged)
mla_decode = fast(_mla_decode)
mla_attention = fast(_mla_attention)
