# SPDX-License-Identifier: MIT
"""A linear layer on our GEMM, with its gradients: y = x @ W^T + bias.

All three products of training are the same kernel with other strides: dx = dy @ W, dW = dy^T @ x, and none of the
transposes is ever copied. db is the sum of dy over the rows.
Source: the chain rule; the layout of ``torch.nn.Linear``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.kernels.arguments import check_dtype, check_shape
from rocm_guide.kernels.gemm.tiled import gemm, plan_gemm
from rocm_guide.kernels.launch import apply, needs_gradient, planned
from rocm_guide.kernels.tracing import traced

__all__ = []


def reference_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The same in float64, differentiable by torch itself."""
    return torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())


class LinearFunction(torch.autograd.Function):
    """Keeps x and the weight. Call :func:`linear`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """X @ weight^T + bias."""
        ctx.save_for_backward(x, weight)
        return planned(_plan, (x, weight, bias))(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """The gradients that are wanted; the bias's is summed in fp32."""
        x, weight = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        flat, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        return (
            gemm(dy, weight).view(x.shape) if want_x else None,
            gemm(dy.T, flat) if want_weight else None,
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
    if traced():
        _check(x, weight, bias)
        y = torch.ops.rocm_guide.linear(x.reshape(-1, x.shape[-1]), weight, bias)
        return y.reshape(*x.shape[:-1], weight.shape[0])
    if needs_gradient(x, weight, bias):
        return apply(LinearFunction, x, weight, bias)
    return planned(_plan, (x, weight, bias))(x, weight, bias)


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    check_dtype("x", x, (torch.float16, torch.bfloat16, torch.float32))
    if bias is not None:
        check_dtype("bias", bias, (x.dtype,))
    check_shape("weight", weight, (None, x.shape[-1]))


def _plan(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[..., torch.Tensor]:
    _check(x, weight, bias)
    flat, shape = x.reshape(-1, x.shape[-1]), (*x.shape[:-1], weight.shape[0])
    launch = plan_gemm(flat, weight.T, bias, "none", True, None, False, None, shape)
    if flat.data_ptr() == x.data_ptr():  # the kernel takes addresses and the strides of the plan: no view is needed
        return lambda x, weight, bias: launch(x, weight, bias, 1.0)
    columns = x.shape[-1]
    return lambda x, weight, bias: launch(x.reshape(-1, columns), weight, bias, 1.0)
