# SPDX-License-Identifier: MIT
"""Small Triton kernels that notebooks 14 to 17 and 27 compile and take apart.

In reading order:

- ``tuning``: Small Triton kernels that notebooks 14 and 15 compile, sweep and repair.
- ``int4_scores``: Small Triton kernels that notebooks 13 and 16 read, measure and repair: a copy, int4 keys, an
  unhinted GEMM.
- ``rows``: The first rung of notebook 17: a softmax that is correct, reads its row three times, one element per lane
  and load.
- ``gemm_ladder``: One matrix product as a ladder of kernels, from naive to persistent, each rung complete; notebook 18.
- ``inside_a_wave``: The two kernels of notebook 27: a sum of squares over rows with a ragged end, and one small matrix
  product.
"""
