# SPDX-License-Identifier: MIT
"""Softmax, RMSNorm, LayerNorm, SwiGLU and the loss: kernels that work on one row at a time.

In reading order:

- ``tile``: What the row kernels share: a tensor seen as rows, and the tile that a launch uses for a row length.
- ``configs``: Launch configurations of the row kernels, by architecture: data, so that tuning touches no kernel.
- ``softmax``: Softmax over the last dimension, forward and backward, for rows of any length.
- ``rms_norm``: RMSNorm over the last dimension, forward and backward, for rows of any length.
- ``layer_norm``: LayerNorm over the last dimension, differentiable, for rows of any length.
- ``layer_norm_grad``: The gradients of LayerNorm, for rows of any length.
- ``weight_grad``: Gradients of a norm's weight and bias: sums over rows, in two launches.
- ``silu_mul``: SwiGLU of two tensors, forward and backward: what stands between the projections of a Llama's MLP.
- ``cross_entropy``: The loss of a language model, forward and backward, without a copy of the logits in fp32.
- ``cases``: The launches of the row kernels that the resource table compiles for MI300X.
"""
