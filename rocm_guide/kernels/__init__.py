# SPDX-License-Identifier: MIT
"""The Triton kernels: one file an operation, each of which can be read, copied and run alone.

In reading order:

- ``softmax``: Softmax over the last dimension, forward and backward, for rows of any length.
- ``rms_norm``: RMSNorm over the last dimension, forward and backward, for rows of any length.
- ``layer_norm``: LayerNorm over the last dimension, forward and backward, for rows of any length.
- ``bandwidth``: Four streams through memory: read, write, copy, triad. What they reach is the ceiling of every kernel
  that computes little.
- ``gemm``: General matrix multiplication (GEMM), C = act(alpha * A @ B + bias), for every type that the matrix units
  take.
- ``gemm_split_k``: Split-K: several workgroups share one tile of C, each sums a part of K, C = act(alpha * (sum of
  parts) + bias).
- ``gemm_stream_k``: Stream-K: a GEMM that shares out loop steps, not tiles, so that every compute unit finishes at the
  same time.
- ``gemm_multiply_reduce``: Multiply-reduce: a GEMM for tiny blocks, without the matrix unit: multiply element by
  element, then sum.
- ``gemm_skinny``: Skinny GEMM: 1 to 32 rows of activations times a large weight, out = scale_x * scale_w * (x @
  weight.T).
- ``int8_gemm``: The five INT8 operators of SmoothQuant models, E = act(alpha * A @ B + beta * D), each one kernel.
- ``experts``: Mixture of experts (MoE), forward: each token is multiplied by the matrices of the few experts that it is
  sent to.
- ``fp8``: The four 8-bit floating-point formats: which one a GPU computes in, their limits, and bit-exact conversion
  models.
- ``rmsnorm_fp8``: Residual add, RMSNorm and conversion to FP8 in one kernel, forward.
- ``swiglu_fp8``: SwiGLU and conversion to FP8 in one kernel, forward.
- ``fp8_ladder``: The ladder to rmsnorm_fp8.py: the same operation with a static scale, one improvement at a time.
- ``attention``: Attention, forward and backward, without ever storing the matrix of scores (FlashAttention-2).
- ``attention_fp8``: Attention on 8-bit numbers: int8 in the document's three ways, and fp8; the softmax is always in
  fp32.
- ``attention_show``: Which probabilities an attention kernel used, although it never stores them: its output for V =
  identity.
- ``decode``: Flash decoding: attention of one new token over a long cache, the keys shared out among many programs
  (split-K).
- ``decode_int4``: Flash decoding over a cache of 8-bit or 4-bit codes: 52 % or 28 % of the bytes, for heads of 128.
- ``paged``: Flash decoding over a paged cache: key ``n`` of sequence ``b`` is key ``n % P`` of page ``table[b, n //
  P]``.
- ``mla_decode``: Multi-head latent attention, decoding: one small latent per token serves all heads, and K and V are
  never built.
- ``mla_prefill``: Multi-head latent attention for many queries, everything in one kernel: absorb, attend, project.
- ``api``: The kernels as a model calls them: repeated calls are cheap.
- ``fast``: Make repeated calls of a wrapper around plain Triton kernels cheap, from outside: the kernel's file knows of
  nothing.
- ``floats``: A float that writes down what is asked and computed of it, so that both can be done again with another
  float.
- ``anywhere``: Call a kernel's wrapper on any machine: on the GPU if its tensors are there, else in Triton's
  interpreter.
- ``resource_table``: The gfx942 resource table: every kernel of the course, compiled for MI300X on any machine, one
  line per launch.
- ``cases``: The launches that the resource table compiles for MI300X.
- ``table_measure``: Make the rows of the gfx942 resource table: compile a module's cases, or only say what would be
  compiled.
"""
