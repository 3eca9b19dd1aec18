# SPDX-License-Identifier: MIT
"""Matrix products: whole tiles, split-K, stream-K, a few rows, and tiny blocks without ``tl.dot``.

In reading order:

- ``tiles``: What the GEMM kernels share: the order of the tiles, the loop over K of one tile, and the epilogue.
- ``configs``: Launch configurations of the GEMM kernels, as data keyed by architecture, and the choice among them.
- ``tiled``: General matrix multiplication, C = act(alpha * A @ B + bias), for every type that the matrix units take.
- ``linear``: A linear layer on our GEMM, with its gradients: y = x @ W^T + bias.
- ``split_k``: Split-K: several workgroups share one tile of C, each sums a part of K, C = act(alpha * (sum of parts)
  + bias).
- ``stream_k``: Stream-K: a GEMM that shares out loop steps, not tiles, so that every compute unit finishes at the
  same time.
- ``multiply_reduce``: Multiply-reduce: a GEMM for tiny blocks, without the matrix unit: multiply element by element,
  then sum.
- ``skinny_configs``: Launch configurations of the skinny GEMM, as data keyed by architecture, and the choice among
  them.
- ``skinny``: Skinny GEMM: 1 to 32 rows of activations times a large weight, out = scale_x * scale_w * (x @ weight.T).
- ``cases``: The launches of the GEMM kernels that the resource table compiles for MI300X.
"""
