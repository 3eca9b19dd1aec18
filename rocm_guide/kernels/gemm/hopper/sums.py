# SPDX-License-Identifier: MIT
"""What a warpgroup of Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`) does in a step of K.

Its sums are a tuple of blocks of columns, since a tensor's sizes are powers of two and the width of a tile need not be.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.hopper.wide import (
    begin_of_group,
    begin_products,
    groups_of,
    place_of_block,
    widths_of,
)
from rocm_guide.kernels.gemm.hopper.work import next_stage, stage_before
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
def give_back(bars, stage, pred, CTAS: gl.constexpr, DOWN: gl.constexpr):
    """Say that this warpgroup has read a stage: to the programs of its cluster that fetch a part for this one."""
    arrive_at_all(bars[1].index(stage), pred, CTAS, DOWN)


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
def products(rooms, at, sums, FORM: gl.constexpr, GROUP: gl.constexpr, ADD: gl.constexpr):
    """Begin to multiply A by the blocks of columns of one instruction, and to add that to their ``sums`` (ADD).

    ``at``: the stages of A and of B. FORM: the blocks of columns, whether A and B lie in memory as their transposes,
    how many columns an instruction may have that multiplies several blocks (0: each by itself), programs of a
    cluster, and how many of them are below each other.
    """
    a_stages, b_rooms = rooms
    BLOCKS: gl.constexpr = FORM[0]
    A_T: gl.constexpr = FORM[1]
    B_T: gl.constexpr = FORM[2]
    WIDE: gl.constexpr = FORM[3]
    FIRST: gl.constexpr = begin_of_group(BLOCKS, WIDE, GROUP)
    END: gl.constexpr = groups_of(BLOCKS, WIDE)[GROUP]
    some = sums[FIRST:END]
    if WIDE:
        b = place_of_block(b_rooms[0], at[1], BLOCKS, FIRST, B_T)
        found = begin_products(a_stages.index(at[0]), b, some, widths_of(BLOCKS, FIRST, END), A_T, B_T, FORM[4], ADD)
    else:
        x, b = operand(a_stages, at[0], A_T), operand(b_rooms[FIRST], at[1], B_T)
        # As a constant: Triton 3.6 takes what stands in an expression for a value of the kernel.
        LAYOUT: gl.constexpr = some[0].type.layout
        sum_0 = some[0] if ADD else gl.zeros(some[0].shape, gl.float32, LAYOUT)
        found = (hopper.warpgroup_mma(x, b, sum_0, use_acc=ADD, is_async=True),)
    return found


@gluon.jit
def add_products(rooms, at, sums, FORM: gl.constexpr):
    """Begin to multiply A by all blocks of columns of B in this stage, and to add that to ``sums``."""
    found = sums[:0]
    for group in gl.static_range(len(groups_of(FORM[0], FORM[3]))):
        found += products(rooms, at, sums, FORM, group, True)
    return found


@gluon.jit
def add_products_exactly(rooms, at, sums, bars, FORM: gl.constexpr):
    """sums + A @ B, where a step's products are added up by themselves first; the stage is given back when read."""
    found = sums[:0]
    for group in gl.static_range(len(groups_of(FORM[0], FORM[3]))):
        few = when_done(0, products(rooms, at, sums, FORM, group, False))
        if group == len(groups_of(FORM[0], FORM[3])) - 1:
            give_back(bars, at[1], True, FORM[4], FORM[5])
        for i in gl.static_range(len(few)):
            found += (sums[len(found)] + few[i],)
    return found


@gluon.jit
def begin_step(rooms, ready, sums, at, WHO: gl.constexpr, FORM: gl.constexpr):
    """Begin a step's products, by themselves, when its stage has arrived; ``at``: the stage, and its parity."""
    hopper.mbarrier.wait(ready.index(at[0]), at[1])
    found = sums[:0]
    for group in gl.static_range(len(groups_of(FORM[0], FORM[3]))):
        found += products(rooms, (WHO[0] * at[0] + WHO[1], at[0]), sums, FORM, group, False)
    return found


@gluon.jit
def added(sums, few):
    """``sums`` + ``few``, block by block."""
    found = sums[:0]
    for i in gl.static_range(len(sums)):
        found += (sums[i] + few[i],)
    return found


@gluon.jit
def add_steps_exactly(rooms, bars, sums, count, at, STAGES: gl.constexpr, WHO: gl.constexpr, FORM: gl.constexpr):
    """sums + A @ B over ``count`` steps.

    Two of them begin together: the matrix unit has the second one to do while the first one is added. ``at``: the first
    stage, and its parity. WHO: how many warpgroups multiply, and which one this is. Returns the sums, and what comes
    after the last stage.

    (The second one could be added while the next two are under way. But the assembler, which has to see that nobody
    reads sums that are not done, does not see it from one round of a loop to the next, and waits for each instruction.)
    """
    GROUPS: gl.constexpr = len(groups_of(FORM[0], FORM[3]))
    ready = bars[0]
    stage, phase = at
    for _pair in range(count // 2):
        few = begin_step(rooms, ready, sums, (stage, phase), WHO, FORM)
        stage, phase = next_stage(stage, phase, STAGES)
        more = begin_step(rooms, ready, sums, (stage, phase), WHO, FORM)
        few = when_done(GROUPS, few)
        give_back(bars, stage_before(stage, STAGES), True, FORM[4], FORM[5])
        sums = added(sums, few)
        more = when_done(0, more)
        give_back(bars, stage, True, FORM[4], FORM[5])
        stage, phase = next_stage(stage, phase, STAGES)
        sums = added(sums, more)
    for _rest in range(count % 2):
        few = when_done(0, begin_step(rooms, ready, sums, (stage, phase), WHO, FORM))
        give_back(bars, stage, True, FORM[4], FORM[5])
        stage, phase = next_stage(stage, phase, STAGES)
        sums = added(sums, few)
    return sums, stage, phase


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
