# SPDX-License-Identifier: MIT
"""Small Triton kernels to compile and take apart.

In reading order:

- ``tuning``: Small Triton kernels to compile, sweep and repair.
- ``int4_scores``: Small Triton kernels to read, measure and repair: a copy, int4 keys, an unhinted GEMM.
- ``rows``: The first rung of a ladder: a softmax that is correct, reads its row three times, one element per lane
  and load.
- ``gemm_ladder``: One matrix product as a ladder of kernels, from naive to persistent, each rung complete.
- ``inside_a_wave``: Two kernels to step through: a sum of squares over rows with a ragged end, and one small matrix
  product.
"""
