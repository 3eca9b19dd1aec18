# SPDX-License-Identifier: MIT
"""The loss of a language model, forward and backward, without a copy of the logits in fp32.

l_i = log(sum_j exp(x_ij)) - x_i,t with t the label of row i;  dx_ij = (exp(x_ij - lse_i) - [j = t]) * dl_i.
torch converts the logits of all tokens to fp32 first; here a row is converted as it is read, and one number per row is
kept. Source: the derivative of -log softmax; M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
https://arxiv.org/abs/1805.02867. All arithmetic is fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_contiguous,
    check_dtype,
    check_last_contiguous,
    check_same_device,
    check_shape,
    choose,
)
from rocm_guide.kernels.gemm.configs import common_unit
from rocm_guide.kernels.gemm.tiles import hint_multiple
from rocm_guide.kernels.launch import Launch, apply, maker, needs_gradient, planned
from rocm_guide.kernels.tracing import traced

__all__ = ["cross_entropy", "cross_entropy_backward", "cross_entropy_forward"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

#: Architecture -> columns that a program takes at once, and its warps.
CONFIGS: dict[str, tuple[int, int]] = {"gfx942": (4096, 8), "sm_90": (4096, 8), "interpreter": (1024, 4)}


@triton.jit
def cross_entropy_forward_kernel(
    x_ptr, label_ptr, loss_ptr, lse_ptr, stride, cols, ignored, BLOCK: tl.constexpr, UNIT: tl.constexpr
):
    """One row; every lane keeps a maximum and a sum of its own. A label that is no column makes the loss NaN."""
    stride, cols = hint_multiple(stride, UNIT), hint_multiple(cols, UNIT)
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * stride
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < cols - start, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, x)
        # Before a lane's first finite value its maximum is -inf, and -inf - -inf would be NaN.
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp2((top - base) * 1.4426950408889634) + tl.exp2((x - base) * 1.4426950408889634)
        top = new
    highest = tl.max(top, 0)
    base = tl.where(top == float("-inf"), 0.0, highest)
    lse = highest + tl.log2(tl.sum(total * tl.exp2((top - base) * 1.4426950408889634), 0)) * 0.6931471805599453
    label = tl.load(label_ptr + row)
    there = (label >= 0) & (label < cols)
    own = tl.load(x_ptr + label, mask=there, other=float("nan")).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(label == ignored, 0.0, lse - own))
    tl.store(lse_ptr + row, lse)


@triton.jit
def cross_entropy_backward_kernel(
    x_ptr, label_ptr, lse_ptr, dl_ptr, dx_ptr, stride, cols, ignored, BLOCK: tl.constexpr, UNIT: tl.constexpr
):
    """BLOCK columns of one row."""
    stride, cols = hint_multiple(stride, UNIT), hint_multiple(cols, UNIT)
    tiles = tl.cdiv(cols, BLOCK)
    row, at = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(label_ptr + row)
    dl = tl.where(label == ignored, 0.0, tl.load(dl_ptr + row))
    x = tl.load(x_ptr + row * stride + at, mask=at < cols, other=0.0).to(tl.float32)
    p = tl.exp2((x - tl.load(lse_ptr + row)) * 1.4426950408889634)
    dx = tl.where(label == ignored, 0.0, (p - tl.where(at == label, 1.0, 0.0)) * dl)
    tl.store(dx_ptr + row * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=at < cols)


def _check(logits: torch.Tensor, labels: torch.Tensor) -> tuple[int, int, int, int]:
    check_dtype("logits", logits, FLOATS)
    check_shape("logits", logits, (None, None))
    if logits.shape[1] == 0:
        raise KernelError(f"logits have shape {tuple(logits.shape)}: give at least one column")
    check_last_contiguous("logits", logits)
    check_dtype("labels", labels, (torch.int64,))
    check_shape("labels", labels, (logits.shape[0],))
    check_contiguous("labels", labels)
    check_same_device(logits=logits, labels=labels)
    return (*logits.shape, *choose(CONFIGS, architecture(logits)))


def _check_ignored(ignored: int) -> int:
    if isinstance(ignored, bool) or not isinstance(ignored, int) or not -(1 << 31) <= ignored < 1 << 31:
        raise KernelError(f"ignore_index={ignored!r}: give a whole number of 32 bits")
    return ignored


def cross_entropy_forward(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each row and its log-sum-exp, both (rows,) in fp32, without autograd.

    Args:
        logits: (rows, columns) in fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        labels: (rows,) int64, a column for each row. They are not checked, because that would make the CPU wait for the
            GPU: the loss of a label that is no column is NaN.
        ignore_index: the loss of rows with this label is 0.

    Raises:
        KernelError: shapes, types, layouts or devices that do not fit.

    Example::

        loss, lse = cross_entropy_forward(logits, labels)
    """
    if traced():
        return torch.ops.rocm_guide.cross_entropy_forward(logits, labels, ignore_index)
    return planned(_plan_forward, (logits, labels), ignore_index)(logits, labels)


def _plan_forward(logits: torch.Tensor, labels: torch.Tensor, ignored: int) -> Callable[..., Any]:
    rows, cols, block, warps = _check(logits, labels)
    unit = common_unit(logits.stride(0), cols)
    fixed, new_row = (logits.stride(0), cols, _check_ignored(ignored)), maker(logits, (rows,), torch.float32)
    launch = Launch(cross_entropy_forward_kernel, (rows,), fixed, {"BLOCK": block, "UNIT": unit}, {"num_warps": warps})

    def run(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss, lse = new_row(), new_row()
        if rows:
            launch(logits, labels, loss, lse)
        return loss, lse

    return run


def cross_entropy_backward(
    logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, dl: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    """The gradient of the logits, contiguous, from the gradient ``dl`` (rows,) of the losses.

    Raises:
        KernelError: see :func:`cross_entropy_forward`.

    Example::

        dx = cross_entropy_backward(logits, labels, lse, torch.ones_like(lse))
    """
    return planned(_plan_backward, (logits, labels, lse, dl), ignore_index)(logits, labels, lse, dl)


def _plan_backward(
    logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, dl: torch.Tensor, ignored: int
) -> Callable[..., Any]:
    rows, cols, block, warps = _check(logits, labels)
    unit = common_unit(logits.stride(0), cols)
    for name, x in (("lse", lse), ("dl", dl)):
        check_dtype(name, x, (torch.float32,))
        check_shape(name, x, (rows,))
    check_same_device(logits=logits, lse=lse, dl=dl)
    fixed, new_dx = (logits.stride(0), cols, _check_ignored(ignored)), maker(logits, logits.shape)
    grid = (rows * triton.cdiv(cols, block),)
    launch = Launch(cross_entropy_backward_kernel, grid, fixed, {"BLOCK": block, "UNIT": unit}, {"num_warps": warps})

    def run(logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, dl: torch.Tensor) -> torch.Tensor:
        dx = new_dx()
        if rows:
            launch(logits, labels, lse.contiguous(), dl.contiguous(), dx)
        return dx

    return run


class CrossEntropy(torch.autograd.Function):
    """Keeps the logits and one number per row. Call :func:`cross_entropy`."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, ignore_index: int) -> torch.Tensor:
        """The losses."""
        loss, lse = cross_entropy_forward(logits, labels, ignore_index)
        ctx.save_for_backward(logits, labels, lse)
        ctx.ignored = ignore_index
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dl: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient of the logits."""
        logits, labels, lse = ctx.saved_tensors
        return cross_entropy_backward(logits, labels, lse, dl, ctx.ignored), None, None


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    """The mean loss of the rows whose label is not ``ignore_index``, differentiable; see :func:`cross_entropy_forward`.

    NaN where all are ignored, as in torch.

    Raises:
        KernelError: see :func:`cross_entropy_forward`.

    Example::

        loss = cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
    """
    if needs_gradient(logits) and not traced():
        losses = apply(CrossEntropy, logits, labels, ignore_index)
    else:
        losses = cross_entropy_forward(logits, labels, ignore_index)[0]
    return losses.sum() / (labels != ignore_index).sum()


def reference_cross_entropy(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    """What the kernels compute: ``torch.nn.functional.cross_entropy``."""
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index)
