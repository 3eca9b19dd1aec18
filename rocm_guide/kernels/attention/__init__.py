# SPDX-License-Identifier: MIT
"""Flash attention, forward and backward, with every feature of the forward kernel.

In reading order:

- ``problem``: The arguments of the attention kernels, checked once and brought into one form for forward and
  backward.
- ``reference``: Attention in plain torch, the yardstick of the kernels: the whole matrix of scores, in the type of
  its arguments.
- ``configs``: Launch configurations of the attention kernels: data, by architecture and head size, and how one is
  picked.
- ``tile``: What the attention kernels share: loading a tile, masking and biasing a tile of scores, and dropout's
  random bits.
- ``forward``: Attention, forward, without ever storing the matrix of scores (FlashAttention-2).
- ``backward_q``: Attention, backward, the part that belongs to the queries: dQ of one tile of queries, summed over
  the keys.
- ``backward_kv``: Attention, backward, the part that belongs to the keys: dK and dV of one tile of keys, summed over
  the queries.
- ``backward``: Attention, backward: dQ, dK, dV and the gradient of a matrix bias from the output and its log-sum-exp.
- ``autograd``: Attention that trains: the forward and backward kernels joined into one differentiable function.
- ``quantized``: Attention on 8-bit numbers: int8 in the document's three ways, and fp8; the softmax is always in
  fp32.
- ``show``: Which probabilities an attention kernel used, although it never stores them: its output for V = identity.
- ``cases``: The launches of the attention kernels that the resource table compiles for MI300X.
"""
