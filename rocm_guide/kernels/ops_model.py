# SPDX-License-Identifier: MIT
"""SwiGLU and the loss as operators of PyTorch, beside those of :mod:`rocm_guide.kernels.ops`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocm_guide.kernels.rows.cross_entropy import cross_entropy_backward, cross_entropy_forward
from rocm_guide.kernels.rows.silu_mul import swiglu_backward, swiglu_forward

__all__ = []


def _new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _numbers(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:1], dtype=torch.float32)


def _keep_loss(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])
    ctx.ignored = inputs[2]


def _loss_gradients(ctx: Any, dl: Tensor, _: Any) -> tuple[Tensor, None, None]:
    return torch.ops.rocm_guide.cross_entropy_backward(*ctx.saved_tensors, dl, ctx.ignored), None, None


forward = torch.library.custom_op(
    "rocm_guide::swiglu_forward",
    lambda gate, up: swiglu_forward(gate, up),
    mutates_args=(),
    schema="(Tensor gate, Tensor up) -> Tensor",
)
forward.register_fake(lambda gate, up: _new(gate))
forward.register_autograd(
    lambda ctx, dy: torch.ops.rocm_guide.swiglu_backward(*ctx.saved_tensors, dy),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
torch.library.custom_op(
    "rocm_guide::swiglu_backward",
    lambda gate, up, dy: swiglu_backward(gate, up, dy),
    mutates_args=(),
    schema="(Tensor gate, Tensor up, Tensor dy) -> (Tensor, Tensor)",
).register_fake(lambda gate, up, dy: (_new(gate), _new(up)))
loss = torch.library.custom_op(
    "rocm_guide::cross_entropy_forward",
    lambda logits, labels, ignore_index: cross_entropy_forward(logits, labels, ignore_index),
    mutates_args=(),
    schema="(Tensor logits, Tensor labels, int ignore_index) -> (Tensor, Tensor)",
)
loss.register_fake(lambda logits, labels, ignore_index: (_numbers(logits), _numbers(logits)))
loss.register_autograd(_loss_gradients, setup_context=_keep_loss)
torch.library.custom_op(
    "rocm_guide::cross_entropy_backward",
    lambda logits, labels, lse, dl, ignore_index: cross_entropy_backward(logits, labels, lse, dl, ignore_index),
    mutates_args=(),
    schema="(Tensor logits, Tensor labels, Tensor lse, Tensor dl, int ignore_index) -> Tensor",
).register_fake(lambda logits, labels, lse, dl, ignore_index: _new(logits))
