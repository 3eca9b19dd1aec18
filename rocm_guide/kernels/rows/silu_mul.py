# SPDX-License-Identifier: MIT
"""SwiGLU of two tensors, forward and backward: what stands between the projections of a Llama's MLP.

y = silu(g) * u with silu(g) = g * s and s = 1 / (1 + exp(-g));  dg = dy * u * s * (1 + g * (1 - s)),  du = dy * g * s.
The backward pass computes s again from g, so nothing but the inputs is kept.
Source: N. Shazeer, "GLU Variants Improve Transformer", https://arxiv.org/abs/2002.05202. All arithmetic is fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    architecture,
    check_contiguous,
    check_dtype,
    check_same_device,
    check_shape,
    choose,
)
from rocm_guide.kernels.launch import Launch, apply, maker, needs_gradient, planned
from rocm_guide.kernels.tracing import traced

__all__ = ["swiglu", "swiglu_backward", "swiglu_forward"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

#: Architecture -> elements of a program, and its warps: 8 elements for a lane.
CONFIGS: dict[str, tuple[int, int]] = {"gfx942": (2048, 4), "sm_90": (1024, 4)}


@triton.jit
def swiglu_forward_kernel(g_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """BLOCK neighbouring elements."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    inside = at < n - first
    g = tl.load(g_ptr + first + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(u_ptr + first + at, mask=inside, other=0.0).to(tl.float32)
    y = g / (1.0 + tl.exp2(g * -1.4426950408889634)) * u
    tl.store(y_ptr + first + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_backward_kernel(g_ptr, u_ptr, dy_ptr, dg_ptr, du_ptr, n, BLOCK: tl.constexpr):
    """BLOCK neighbouring elements."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    inside = at < n - first
    g = tl.load(g_ptr + first + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(u_ptr + first + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + first + at, mask=inside, other=0.0).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp2(g * -1.4426950408889634))
    tl.store(dg_ptr + first + at, (dy * u * s * (1.0 + g * (1.0 - s))).to(dg_ptr.dtype.element_ty), mask=inside)
    tl.store(du_ptr + first + at, (dy * g * s).to(du_ptr.dtype.element_ty), mask=inside)


def _check(**tensors: torch.Tensor) -> tuple[str, tuple[int], dict[str, int], dict[str, int]]:
    gate = tensors["gate"]
    check_dtype("gate", gate, FLOATS)
    check_same_device(**tensors)
    for name, x in tensors.items():
        check_dtype(name, x, (gate.dtype,))
        check_shape(name, x, tuple(gate.shape))
        check_contiguous(name, x)
    arch = architecture(gate)
    block, warps = choose(CONFIGS, arch)
    return arch, (triton.cdiv(gate.numel(), block),), {"BLOCK": block}, {"num_warps": warps}


def swiglu_forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, without autograd.

    Args:
        gate, up: one shape, one type of fp16, bf16 and fp32, contiguous.

    Raises:
        KernelError: shapes, types, layouts or devices that do not fit.

    Example::

        y = swiglu_forward(gate, up)
    """
    if traced():
        return torch.ops.rocm_guide.swiglu_forward(gate, up)
    return planned(_plan_forward, (gate, up))(gate, up)


def _plan_forward(gate: torch.Tensor, up: torch.Tensor) -> Callable[..., torch.Tensor]:
    _, grid, constants, options = _check(gate=gate, up=up)
    launch, n = Launch(swiglu_forward_kernel, grid, (gate.numel(),), constants, options), gate.numel()
    new_y = maker(gate, gate.shape)

    def run(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        y = new_y()
        if n:
            launch(gate, up, y)
        return y

    return run


def swiglu_backward(gate: torch.Tensor, up: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of gate and up; ``dy`` is made contiguous if it is not.

    Raises:
        KernelError: see :func:`swiglu_forward`.

    Example::

        dg, du = swiglu_backward(gate, up, dy)
    """
    return planned(_plan_backward, (gate, up, dy))(gate, up, dy)


def _plan_backward(gate: torch.Tensor, up: torch.Tensor, dy: torch.Tensor) -> Callable[..., Any]:
    check_dtype("dy", dy, FLOATS)
    _, grid, constants, options = _check(gate=gate, up=up, dy=dy.contiguous())
    launch, n = Launch(swiglu_backward_kernel, grid, (gate.numel(),), constants, options), gate.numel()

    def run(gate: torch.Tensor, up: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dg, du = torch.empty_like(gate), torch.empty_like(up)
        if n:
            launch(gate, up, dy.contiguous(), dg, du)
        return dg, du

    return run


class SwiGlu(torch.autograd.Function):
    """Keeps gate and up. Call :func:`swiglu`."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Y."""
        ctx.save_for_backward(gate, up)
        return swiglu_forward(gate, up)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of gate and up."""
        gate, up = ctx.saved_tensors
        return swiglu_backward(gate, up, dy)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, differentiable; see :func:`swiglu_forward`.

    Raises:
        KernelError: see :func:`swiglu_forward`.

    Example::

        y = swiglu(gate_proj(x), up_proj(x))
    """
    if needs_gradient(gate, up) and not traced():
        return apply(SwiGlu, gate, up)
    return swiglu_forward(gate, up)


def reference_swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """What the kernels compute: ``silu(gate) * up``."""
    return torch.nn.functional.silu(gate) * up
