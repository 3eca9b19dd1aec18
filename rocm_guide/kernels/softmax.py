# SPDX-License-Identifier: MIT
"""Softmax over the last dimension, forward and backward, for rows of any length.

y_i = exp(x_i - max x) / sum_j exp(x_j - max x);  dx_i = y_i * (dy_i - sum_j dy_j y_j).
A row that fits into registers is read once. A longer one is read twice: once for maximum and sum together (M. Milakov
and N. Gimelshein, "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867), once to write.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["Softmax", "Tile", "reference_softmax", "softmax", "softmax_backward", "softmax_forward"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def softmax_rows(x_ptr, y_ptr, x_stride, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Take the softmax of ROWS whole rows, each read once."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    inside = (first + row < rows) & (col < cols)
    x = tl.load(x_ptr + first * x_stride + (row * x_stride + col), mask=inside, other=float("-inf"))
    x = x.to(tl.float32)
    # exp2 is one instruction; the factor log2(e) makes it exp. After the subtraction it cannot overflow.
    e = tl.exp2((x - tl.max(x, 1)[:, None]) * 1.4426950408889634)
    y = e * (1.0 / tl.sum(e, 1))[:, None]
    tl.store(y_ptr + first * cols + (row * cols + col), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_blocked(x_ptr, y_ptr, x_stride, cols, BLOCK: tl.constexpr):
    """Take the softmax of one row of any length, read twice. Every lane keeps a maximum and a sum of its own."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)
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
    scale = 1.0 / tl.sum(total * tl.exp2((top - base) * 1.4426950408889634), 0)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < cols - start, other=0.0).to(tl.float32)
        y = tl.exp2((x - highest) * 1.4426950408889634) * scale
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=lane < cols - start)


@triton.jit
def softmax_backward_rows(y_ptr, dy_ptr, dx_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Find dx of ROWS whole rows of contiguous tensors."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    inside, at = (first + row < rows) & (col < cols), row * cols + col
    y = tl.load(y_ptr + first * cols + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, 1)[:, None])
    tl.store(dx_ptr + first * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_blocked(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    """Find dx of one row of any length, read twice."""
    start_of_row = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at, inside = start_of_row + start + lane, lane < cols - start
        y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
        total += y * tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dot = tl.sum(total, 0)
    for start in range(0, cols, BLOCK):
        at, inside = start_of_row + start + lane, lane < cols - start
        y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=inside)


class Tile(NamedTuple):
    """A launch: what one program holds, and which rows it serves."""

    columns: int  #: the longest row, padded to a power of two; where blocked, the width of a block
    rows: int  #: of one program
    warps: int
    aligned: bool = False  #: only rows whose length and distance are multiples of 8: others take more registers
    blocked: bool = False  #: the row is walked through in blocks


#: The first that serves a row is taken, the last serves all. gfx942 was chosen by what it compiles to (no spills, eight
#: waves on a SIMD, 128-bit loads), sm_90 by measurement (NVIDIA H100). Other GPUs take gfx942's.
FORWARD = {
    "gfx942": (Tile(128, 16, 4), Tile(512, 8, 4), Tile(1024, 4, 4), Tile(2048, 2, 4), Tile(4096, 1, 4),
               Tile(8192, 1, 8), Tile(32768, 1, 16), Tile(8192, 1, 16, blocked=True)),
    "sm_90": (Tile(128, 16, 4), Tile(512, 4, 4), Tile(1024, 2, 4), Tile(2048, 1, 4), Tile(16384, 1, 8),
              Tile(32768, 1, 32), Tile(16384, 1, 32, blocked=True)),
}  # fmt: skip
BACKWARD = {
    "gfx942": FORWARD["gfx942"],
    "sm_90": (Tile(128, 16, 4), Tile(512, 4, 4), Tile(1024, 2, 4), Tile(2048, 1, 4), Tile(4096, 1, 8),
              Tile(16384, 1, 16), Tile(32768, 1, 32), Tile(16384, 1, 32, blocked=True)),
}  # fmt: skip


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for (``gfx942``, ``sm_90``, ``interpreter``), or raise ValueError."""
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def pick_tile(tiles: tuple[Tile, ...], flat: torch.Tensor) -> Tile:
    """Return the first of ``tiles`` that serves the rows of ``flat``; one row a program where offsets need 64 bits."""
    cols, stride = flat.shape[1], flat.stride(0)
    padded, odd = triton.next_power_of_2(cols), cols % 8 or stride % 8
    tile = next(t for t in tiles if t.blocked or (padded <= t.columns and not (t.aligned and odd)))
    return tile._replace(rows=1) if tile.rows * max(stride, cols) >= 1 << 31 else tile


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` (…, columns) seen as (rows, columns); rows may be any distance apart.

    Raises:
        ValueError: not a float tensor with columns, or its layout is no list of rows.
    """
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        raise ValueError(f"x is {str(getattr(x, 'dtype', repr(x)))[:40].removeprefix('torch.')}: give a float tensor")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}: give at least one column")
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"x has stride {x.stride(-1)} in its last dimension: call .contiguous()")
    try:
        return x.view(-1, x.shape[-1]) if x.numel() else x.new_empty(0, x.shape[-1])
    except RuntimeError as e:
        raise ValueError(f"x with strides {x.stride()} is no list of rows: call .contiguous()") from e


def softmax_forward(x: torch.Tensor, *, tile: Tile | None = None) -> torch.Tensor:
    """Return the softmax of (…, columns), without autograd: contiguous, shape and type of x.

    Args:
        x: fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        tile: a launch of your own instead of the table's.

    Raises:
        ValueError: another type, no columns, another layout, or no device that can run it.
    """
    flat = as_rows(x)
    (rows, cols), stride = flat.shape, flat.stride(0)
    tile = tile or pick_tile(FORWARD.get(architecture(x), FORWARD["gfx942"]), flat)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows and tile.blocked:
        softmax_blocked[(rows,)](x, y, stride, cols, BLOCK=tile.columns, num_warps=tile.warps)
    elif rows:
        flags = {"ROWS": tile.rows, "COLS": triton.next_power_of_2(cols), "num_warps": tile.warps}
        softmax_rows[(triton.cdiv(rows, tile.rows),)](x, y, stride, rows, cols, **flags)
    return y


def softmax_backward(y: torch.Tensor, dy: torch.Tensor, *, tile: Tile | None = None) -> torch.Tensor:
    """Return the gradient of x from the softmax ``y`` and its gradient ``dy``, both of one shape; made contiguous.

    Raises:
        ValueError: see :func:`softmax_forward`.
    """
    if not isinstance(dy, torch.Tensor) or dy.dtype not in FLOATS:
        raise ValueError(
            f"dy is {str(getattr(dy, 'dtype', repr(dy)))[:40].removeprefix('torch.')}: give a float tensor"
        )
    y = y.contiguous() if isinstance(y, torch.Tensor) else y
    flat = as_rows(y)
    if dy.device != y.device:
        raise ValueError(f"dy is on {dy.device}, y on {y.device}: put them on one device")
    if dy.shape != y.shape:
        raise ValueError(f"dy has shape {tuple(dy.shape)}: give {tuple(y.shape)}")
    (rows, cols), dy = flat.shape, dy.contiguous()
    tile = tile or pick_tile(BACKWARD.get(architecture(y), BACKWARD["gfx942"]), flat)
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if rows and tile.blocked:
        softmax_backward_blocked[(rows,)](y, dy, dx, cols, BLOCK=tile.columns, num_warps=tile.warps)
    elif rows:
        flags = {"ROWS": tile.rows, "COLS": triton.next_power_of_2(cols), "num_warps": tile.warps}
        softmax_backward_rows[(triton.cdiv(rows, tile.rows),)](y, dy, dx, rows, cols, **flags)
    return dx


class Softmax(torch.autograd.Function):
    """Keeps y, from which the gradient follows. Call :func:`softmax`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the softmax of ``x``."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        """Return the gradient of ``x``."""
        return softmax_backward(ctx.saved_tensors[0], dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return softmax over the last dimension of ``x``, differentiable; see :func:`softmax_forward`."""
    return Softmax.apply(x)


def reference_softmax(x: torch.Tensor) -> torch.Tensor:
    """Return what the kernels compute: ``torch.softmax(x, -1)``."""
    return torch.softmax(x, -1)
