# SPDX-License-Identifier: MIT
"""How sums leave the registers in the GEMM of Hopper (:mod:`rocm_guide.kernels.gemm.hopper`): a strip at a time."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.tiles import activate
from rocm_guide.kernels.gluon import store_tile

__all__ = []


@gluon.jit
def finish(x, bias_ptr, col, N, alpha, ENDS: gl.constexpr):
    """act(alpha * x + bias), as ENDS says: whether there is such an epilogue, and a bias, and the activation."""
    ACT: gl.constexpr = ENDS[2]
    if ENDS[0]:
        x = x * alpha
        if ENDS[1]:
            at = col + gl.arange(0, x.shape[1], layout=gl.SliceLayout(0, x.type.layout))
            x += gl.expand_dims(gl.load(bias_ptr + at, mask=at < N, other=0.0).to(gl.float32), 0)
        x = activate(x, ACT)
    return x


@gluon.jit
def places(x):
    """Where each number of a strip stands in a partial tile."""
    rm = gl.arange(0, x.shape[0], layout=gl.SliceLayout(1, x.type.layout))
    rn = gl.arange(0, x.shape[1], layout=gl.SliceLayout(0, x.type.layout))
    return gl.expand_dims(rm * x.shape[1], 1) + gl.expand_dims(rn, 0)


@gluon.jit
def leave_strips(x, part_ptr, STRIP: gl.constexpr, AT: gl.constexpr) -> None:
    """Write a partial sum, strip by strip, to where another program will look for it."""
    width: gl.constexpr = x.shape[1]
    if width > STRIP:
        left, right = x.reshape((x.shape[0], 2, width // 2)).permute((0, 2, 1)).split()
        leave_strips(left, part_ptr, STRIP, AT)
        leave_strips(right, part_ptr, STRIP, AT + width // 2 // STRIP)
    else:
        gl.store(part_ptr + AT * x.shape[0] * STRIP + places(x), x)


@gluon.jit
def store_strips(
    x,
    row,
    col,
    out,
    sums,
    ends,
    HALF: gl.constexpr,
    AT: gl.constexpr,
    AREA: gl.constexpr,
    ENDS: gl.constexpr,
):
    """Store act(alpha * x + bias) at (row, col) of C, a strip of columns at a time, by TMA where C allows it.

    The partial sums of other programs, which stand in front of a pointer (``sums``: it and their number), are added
    first. ``out``: C, shared memory for two strips of each warpgroup, the bias; ``ends``: M, N and alpha.
    """
    c, c_stages, bias_ptr = out
    width: gl.constexpr = x.shape[1]
    STRIP: gl.constexpr = c_stages.shape[2]
    if width > STRIP:
        left, right = x.reshape((x.shape[0], 2, width // 2)).permute((0, 2, 1)).split()
        store_strips(left, row, col, out, sums, ends, HALF, AT, AREA, ENDS)
        store_strips(right, row, col + width // 2, out, sums, ends, HALF, AT + width // 2 // STRIP, AREA, ENDS)
    else:
        M, N, alpha = ends
        C_DESC: gl.constexpr = ENDS[3]
        if AREA > 0:
            PARTIES: gl.constexpr = c_stages.shape[0] // 2
            source, others = sums
            for _ in range(others):
                source -= PARTIES * AREA
                x += gl.load(source + AT * x.shape[0] * STRIP + places(x))
        strip = c_stages.index(2 * HALF + AT % 2)
        if C_DESC:
            # The store that read this memory last is done: all of them before a new tile, else all but the latest.
            hopper.tma.store_wait(0 if AT == 0 else 1)
        strip.store(finish(x, bias_ptr, col, N, alpha, ENDS).to(c_stages.dtype))
        if C_DESC:
            hopper.fence_async_shared()
            store_tile(c, [row, col], strip)
        else:
            layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
            rm = row + gl.arange(0, x.shape[0], layout=gl.SliceLayout(1, layout))
            rn = col + gl.arange(0, width, layout=gl.SliceLayout(0, layout))
            inside = gl.expand_dims(rm < M, 1) & gl.expand_dims(rn < N, 0)
            at = gl.expand_dims(rm.to(gl.int64) * N, 1) + gl.expand_dims(rn, 0)
            gl.store(c + at, strip.load(layout), mask=inside)
