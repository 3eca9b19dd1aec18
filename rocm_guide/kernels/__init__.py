# SPDX-License-Identifier: MIT
"""The Triton kernels, one family a folder: ``rows``, ``gemm``, ``fp8``, ``int8``, ``attention``,
``decode``.

In reading order:

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
- ``ops_products``: Products of matrices, and decoding over pages, as operators of PyTorch, beside
  :mod:`rocm_guide.kernels.ops`.
- ``anywhere``: Call a kernel's wrapper on any machine: on the GPU if its tensors are there, else in Triton's
  interpreter.
- ``bandwidth``: Four streams through memory: read, write, copy, triad. What they reach is the ceiling of every kernel
  that computes little.
- ``hopper``: What some kernels say in PTX on NVIDIA's Hopper (sm_90): fetching into the L2, overlapping launches, and
  more.
- ``resource_table``: The gfx942 resource table: every kernel of the course, compiled for MI300X on any machine, one
  line per launch.
- ``cases``: The launches of the kernels in this folder that the resource table compiles for MI300X, beside the
  families'.
- ``table_cache``: The gfx942 table of many kernels at once: all cores compile, and what was compiled before is read
  from the cache.
"""
