# SPDX-License-Identifier: MIT
"""Attention that trains: the forward and backward kernels joined into one differentiable function.

What is kept for the backward pass is q, k, v, the output and one number per row, never a matrix of scores.
"""

from __future__ import annotations

from typing import Any

import torch

from rocm_guide.kernels.arguments import KernelError
from rocm_guide.kernels.attention.backward import attention_backward
from rocm_guide.kernels.attention.forward import attention_forward
from rocm_guide.kernels.attention.forward_launch import run_forward
from rocm_guide.kernels.launch import apply, needs_gradient
from rocm_guide.kernels.tracing import traced

__all__ = ["attention"]


class AttentionFunction(torch.autograd.Function):
    """Differentiable by q, k, v and bias. Call :func:`attention`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
        return_lse: bool,
        options: dict[str, Any],
    ) -> Any:
        """Output, and with ``return_lse`` the log-sum-exp."""
        out, lse = run_forward(q, k, v, bias, options)
        ctx.save_for_backward(q, k, v, bias, out, lse)
        ctx.options = options
        if not return_lse:
            return out
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, do: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Gradients of q, k, v and bias."""
        q, k, v, bias, out, lse = ctx.saved_tensors
        wanted = bias is not None and ctx.needs_input_grad[3]
        dq, dk, dv, d_bias = attention_backward(do, q, k, v, out, lse, bias=bias, bias_gradient=wanted, **ctx.options)
        if wanted and d_bias is not None:
            # What was broadcast is summed.
            d_bias = d_bias.sum_to_size(bias.shape).to(bias.dtype)
        return dq, dk, dv, d_bias, None, None


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention, differentiable by ``q``, ``k``, ``v`` and ``bias``; everything else as in ``attention_forward``.

    Args:
        dropout, seed: with a seed the same elements are dropped in every call; without one it is drawn from torch's
            CPU generator, so that ``torch.manual_seed`` reproduces a run.
        return_lse: return (output, log-sum-exp); no gradient flows through the latter.

    Raises:
        KernelError: see ``attention_forward``; or ``alibi_slopes`` that ask for a gradient.
    """
    slopes = options.get("alibi_slopes")
    if slopes is not None and slopes.requires_grad:
        raise KernelError("alibi_slopes require a gradient, which is not computed: pass alibi_slopes.detach()")
    if seed is not None or dropout != 0.0 or dropout.__class__ is not float:  # else what is checked would be 0.0 and 0
        if dropout and seed is None:
            seed = int(torch.randint(1 << 62, ()))
        options = options | {"dropout": dropout, "seed": seed or 0}
    if needs_gradient(q, k, v, bias) and not traced():
        return apply(AttentionFunction, q, k, v, bias, return_lse, options)
    if traced():
        out, lse = attention_forward(q, k, v, bias=bias, **options)
    else:
        out, lse = run_forward(q, k, v, bias, options, return_lse)
    return (out, lse) if return_lse else out
