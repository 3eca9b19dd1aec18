# SPDX-License-Identifier: MIT
"""SwiGLU and the loss: kernels that work on one row at a time, on the way to a file of their own each.

In reading order:

- ``silu_mul``: SwiGLU of two tensors, forward and backward: what stands between the projections of a Llama's MLP.
- ``cross_entropy``: The loss of a language model, forward and backward, without a copy of the logits in fp32.
- ``cases``: The launches of the row kernels that the resource table compiles for MI300X.
"""
