# SPDX-License-Identifier: MIT
"""The Triton kernels: one file an operation, each of which can be read, copied and run alone.

In reading order: rows in ``softmax``, ``rms_norm``, ``layer_norm``; ``bandwidth``; products in ``gemm``,
``gemm_split_k``, ``gemm_stream_k``, ``gemm_skinny``, ``int8_gemm``, ``experts``; 8 bits in ``fp8``, ``rmsnorm_fp8``,
``swiglu_fp8``, ``fp8_ladder``; attention in ``attention``, ``attention_fp8``, ``attention_show``, ``decode``,
``decode_int4``, ``paged``, ``mla_decode``, ``mla_prefill``.
Around them: ``api`` and ``fast`` (repeated calls are cheap), ``floats``, ``anywhere`` (also without a GPU), ``cases``
(the launches that ``course/resource_table.py`` tables).
"""
