# SPDX-License-Identifier: MIT
"""The Triton kernels: a file for each operation that stands alone, and for the others one family a folder:
``gemm``, ``fp8``, ``int8``, ``rows``.

In reading order:

- ``softmax``: Softmax over the last dimension, forward and backward, for rows of any length.
- ``rms_norm``: RMSNorm over the last dimension, forward and backward, for rows of any length.
- ``layer_norm``: LayerNorm over the last dimension, forward and backward, for rows of any length.
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
- ``fast``: Make repeated calls of a wrapper around plain Triton kernels cheap, from outside: the kernel's file knows of
  nothing.
- ``api``: The kernels as a model calls them: repeated calls are cheap, and torch.compile sees operators.
- ``arguments``: What every kernel wrapper needs before a launch: the architecture, its configuration, and checks of
  arguments.
- ``launch``: A cheap way into a kernel: what a wrapper checks and chooses is done once for each kind of call, then
  remembered.
- ``direct``: A compiled kernel's own launcher, called without what Triton does around it in Python.
- ``tracing``: Whether torch.compile or torch.export looks at a call, which then becomes an operator of
  ``torch.ops.rocm_guide``.
- ``ops``: The kernels as operators of PyTorch, ``torch.ops.rocm_guide.…``: what torch.compile and torch.export keep in
  a graph.
- ``ops_model``: SwiGLU and the loss as operators of PyTorch, beside those of :mod:`rocm_guide.kernels.ops`.
- ``ops_products``: Products of matrices as operators of PyTorch.
- ``anywhere``: Call a kernel's wrapper on any machine: on the GPU if its tensors are there, else in Triton's
  interpreter.
- ``bandwidth``: Four streams through memory: read, write, copy, triad. What they reach is the ceiling of every kernel
  that computes little.
- ``resource_table``: The gfx942 resource table: every kernel of the course, compiled for MI300X on any machine, one
  line per launch.
- ``cases``: The launches of the kernels in this folder that the resource table compiles for MI300X, beside the
  families'.
- ``table_cache``: The gfx942 table of many kernels at once: all cores compile, and what was compiled before is read
  from the cache.
"""
