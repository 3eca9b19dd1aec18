# SPDX-License-Identifier: MIT
"""A linear layer on our GEMM, with its gradients: y = x @ W^T + bias.

All three products of training are the same kernel with other strides: dx = dy @ W, dW = dy^T @ x, and none of the
transposes is ever copied. db is the sum of dy over the rows.
Source: the chain rule; the layout of ``torch.nn.Linear``.
"""

from __future__ import annotations

from typing import Any

import torch

from rocm_guide.kernels.arguments import check_dtype, check_shape
from rocm_guide.kernels.gemm.tiled import gemm
from rocm_guide.kernels.launch import needs_gradient, traced

__all__ = []


def reference_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The same in float64, differentiable by torch itself."""
    return torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())


class LinearFunction(torch.autograd.Function):
    """Keeps x and the weight. Call :func:`linear`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x @ weight^T + bias."""
        ctx.save_for_backward(x, weight)
        return gemm(x, weight.T, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """The gradients that are wanted; the bias's is summed in fp32."""
        x, weight = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        return (
            gemm(dy, weight) if want_x else None,
            gemm(dy.T, x) if want_weight else None,
            dy.sum(0, dtype=torch.float32).to(dy.dtype) if want_bias else None,
        )


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``, differentiable.

    Args:
        x: (…, K) in float16, bfloat16 or float32.
        weight: (N, K), the same type.
        bias: (N,), the same type, or None.

    Returns:
        (…, N), x's type.

    Raises:
        KernelError: types, shapes or devices that do not fit.
    """
    check_dtype("x", x, (torch.float16, torch.bfloat16, torch.float32))
    if bias is not None:
        check_dtype("bias", bias, (x.dtype,))
    check_shape("weight", weight, (None, x.shape[-1]))
    flat = x.reshape(-1, x.shape[-1])
    if traced():
        y = torch.ops.rocm_guide.linear(flat, weight, bias)
    elif needs_gradient(x, weight, bias):
        y = LinearFunction.apply(flat, weight, bias)
    else:
        y = gemm(flat, weight.T, bias)
    return y.reshape(*x.shape[:-1], weight.shape[0])
