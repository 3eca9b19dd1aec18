# SPDX-License-Identifier: MIT
"""How sums leave the registers in Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`): a strip at a time."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.tiles import activate
from rocm_guide.kernels.gluon import row_by_row, several, shared_layout, store_tile

__all__ = []


@gluon.jit
def finish(x, bias_ptr, row, col, limit, alpha, ENDS: gl.constexpr):
    """act(alpha * x + bias), as ENDS says: whether there is such an epilogue, and a bias, and the activation.

    The bias belongs to the columns of C, of which there are ``limit``; in a flipped product they are the rows of x.
    """
    ACT: gl.constexpr = ENDS[2]
    ALONG: gl.constexpr = 0 if ENDS[4] else 1
    if ENDS[0]:
        x = x * alpha
        if ENDS[1]:
            first = row if ENDS[4] else col
            at = first + gl.arange(0, x.shape[ALONG], layout=gl.SliceLayout(1 - ALONG, x.type.layout))
            x += gl.expand_dims(gl.load(bias_ptr + at, mask=at < limit, other=0.0).to(gl.float32), 1 - ALONG)
        x = activate(x, ACT)
    return x


@gluon.jit
def places(x):
    """Where each number of a strip stands in a partial tile."""
    rm = gl.arange(0, x.shape[0], layout=gl.SliceLayout(1, x.type.layout))
    rn = gl.arange(0, x.shape[1], layout=gl.SliceLayout(0, x.type.layout))
    return gl.expand_dims(rm * x.shape[1], 1) + gl.expand_dims(rn, 0)


@gluon.jit
def room_for_strips(
    KIND: gl.constexpr,
    COUNT: gl.constexpr,
    ROWS: gl.constexpr,
    STRIP: gl.constexpr,
    CTAS: gl.constexpr,
    FLIP: gl.constexpr,
):
    """Shared memory for COUNT strips of columns on their way to C; of C^T if flipped."""
    shape: gl.constexpr = [STRIP, ROWS] if FLIP else [ROWS, STRIP]
    return gl.allocate_shared_memory(KIND, several(COUNT, shape), shared_layout(shape, KIND, CTAS, FLIP))


@gluon.jit
def leave_strips(x, part_ptr, STRIP: gl.constexpr, COLUMN: gl.constexpr) -> None:
    """Write a partial sum, strip by strip, to where another program will look for it. COLUMN: how many came before."""
    width: gl.constexpr = x.shape[1]
    if width > STRIP:
        left, right = x.reshape((x.shape[0], 2, width // 2)).permute((0, 2, 1)).split()
        leave_strips(left, part_ptr, STRIP, COLUMN)
        leave_strips(right, part_ptr, STRIP, COLUMN + width // 2)
    else:
        gl.store(part_ptr + COLUMN * x.shape[0] + places(x), x)


@gluon.jit
def store_strips(
    x,
    row,
    col,
    out,
    sums,
    ends,
    PARTY: gl.constexpr,
    COLUMN: gl.constexpr,
    AREA: gl.constexpr,
    CTAS: gl.constexpr,
    ENDS: gl.constexpr,
):
    """Store act(alpha * x + bias) at (row, col) of C, a strip of columns at a time, by TMA where C allows it.

    The partial sums of other programs, which stand in front of a pointer (``sums``: it and their number), are added
    first. ``out``: C for strips, and for a last one that is narrower; shared memory for two strips of each warpgroup,
    and for a narrow one; the bias. ``ends``: M, N and alpha. COLUMN: how many columns of the tile came before.
    """
    targets, rooms, bias_ptr = out
    width: gl.constexpr = x.shape[1]
    FLIP: gl.constexpr = ENDS[4]
    STRIP: gl.constexpr = rooms[0].shape[1] if FLIP else rooms[0].shape[2]
    if width > STRIP:
        half: gl.constexpr = width // 2
        left, right = x.reshape((x.shape[0], 2, half)).permute((0, 2, 1)).split()
        store_strips(left, row, col, out, sums, ends, PARTY, COLUMN, AREA, CTAS, ENDS)
        store_strips(right, row, col + half, out, sums, ends, PARTY, COLUMN + half, AREA, CTAS, ENDS)
    else:
        M, N, alpha = ends
        C_DESC: gl.constexpr = ENDS[3]
        NARROW: gl.constexpr = width < STRIP
        if AREA > 0:
            PARTIES: gl.constexpr = rooms[0].shape[0] // 2
            source, others = sums
            for _ in range(others):
                source -= PARTIES * AREA
                x += gl.load(source + COLUMN * x.shape[0] + places(x))
        if NARROW:
            c, strip = targets[1], rooms[1].index(PARTY)
        else:
            c, strip = targets[0], rooms[0].index(2 * PARTY + COLUMN // STRIP % 2)
            if C_DESC:
                # The store that read this memory last is done: all of them before a new tile, else all but the latest.
                hopper.tma.store_wait(0 if COLUMN == 0 else 1)
        # C^T was computed if flipped: its strip is written from the other side, and is then one of C.
        limit = M if FLIP else N
        seen = strip.permute((1, 0)) if FLIP else strip
        seen.store(finish(x, bias_ptr, row, col, limit, alpha, ENDS).to(strip.dtype))
        top, left = (col, row) if FLIP else (row, col)
        if C_DESC:
            hopper.fence_async_shared()
            store_tile(c, [top, left], strip)
        else:
            layout: gl.constexpr = row_by_row(CTAS, FLIP)
            rm = top + gl.arange(0, strip.shape[0], layout=gl.SliceLayout(1, layout))
            rn = left + gl.arange(0, strip.shape[1], layout=gl.SliceLayout(0, layout))
            inside = gl.expand_dims(rm < (N if FLIP else M), 1) & gl.expand_dims(rn < limit, 0)
            at = gl.expand_dims(rm.to(gl.int64) * limit, 1) + gl.expand_dims(rn, 0)
            gl.store(c + at, strip.load(layout), mask=inside)
