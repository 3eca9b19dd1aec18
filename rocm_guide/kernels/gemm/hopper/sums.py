# SPDX-License-Identifier: MIT
"""What a warpgroup of Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`) does in a step of K.

Its sums are a tuple of blocks of columns, since a tensor's sizes are powers of two and the width of a tile need not be.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gluon import arrive_at_all, sums_layout

__all__ = []


@gluon.jit
def operand(stages, at, TRANSPOSED: gl.constexpr):
    """The tile in stage ``at``, seen from the other side if its matrix is stored that way."""
    tile = stages.index(at)
    if TRANSPOSED:
        tile = tile.permute((1, 0))
    return tile


@gluon.jit
def give_back(bars, stage, pred, CTAS: gl.constexpr):
    """Say that this warpgroup has read a stage: to all programs of its cluster, as each fetches a part for all."""
    arrive_at_all(bars[1].index(stage), pred, CTAS)


@gluon.constexpr_function
def columns_of(blocks, block):
    """How many columns a block has, as a constant: Triton 3.6 takes it out of a tuple as a number without a type."""
    return blocks[block]


@gluon.constexpr_function
def columns_before(blocks, block):
    """How many columns of a tile come before a block."""
    return sum(blocks[:block])


@gluon.jit
def no_sums(ROWS: gl.constexpr, BLOCKS: gl.constexpr, DEPTH: gl.constexpr, CTAS: gl.constexpr, FIRST: gl.constexpr = 0):
    """Sums of nothing: (ROWS, columns) for each of the BLOCKS, from the FIRST on."""
    columns: gl.constexpr = columns_of(BLOCKS, FIRST)
    layout: gl.constexpr = sums_layout(BLOCKS[FIRST], DEPTH, CTAS)
    found = (gl.zeros([ROWS, columns], gl.float32, layout),)
    if len(BLOCKS) > FIRST + 1:
        found = found + no_sums(ROWS, BLOCKS, DEPTH, CTAS, FIRST + 1)
    return found


@gluon.jit
def add_products(x, b_rooms, stage, sums, B_T: gl.constexpr):
    """Begin to multiply x by each block of columns of B in this stage, and to add that to ``sums``."""
    found = sums[:0]
    for i in gl.static_range(len(sums)):
        sum_i = hopper.warpgroup_mma(x, operand(b_rooms[i], stage, B_T), sums[i], is_async=True)
        found += (sum_i,)
    return found


@gluon.jit
def add_products_exactly(x, b_rooms, stage, sums, bars, B_T: gl.constexpr, CTAS: gl.constexpr):
    """sums + x @ B, each block of which is added up by itself first; the stage is given back as soon as it is read."""
    found = sums[:0]
    for i in gl.static_range(len(sums)):
        few = gl.zeros(sums[i].shape, gl.float32, sums[i].type.layout)
        few = hopper.warpgroup_mma(x, operand(b_rooms[i], stage, B_T), few, use_acc=False, is_async=True)
        few = hopper.warpgroup_mma_wait(0, deps=[few])
        if i == len(sums) - 1:
            give_back(bars, stage, True, CTAS)
        found += (sums[i] + few,)
    return found


@gluon.jit
def when_done(PENDING: gl.constexpr, sums):
    """``sums``, when all multiplications but the last PENDING are done."""
    if len(sums) == 1:
        found = (hopper.warpgroup_mma_wait(PENDING, deps=[sums[0]]),)
    elif len(sums) == 2:
        found = hopper.warpgroup_mma_wait(PENDING, deps=[sums[0], sums[1]])
    else:
        found = hopper.warpgroup_mma_wait(PENDING, deps=[sums[0], sums[1], sums[2]])
    return found
