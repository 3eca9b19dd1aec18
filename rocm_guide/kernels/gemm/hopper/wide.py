# SPDX-License-Identifier: MIT
"""One instruction for several blocks of columns, in Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`).

A tensor's sizes are powers of two, so the sums of a tile of 208 columns are three blocks. With an instruction for each,
the matrix unit reads the rows of A from shared memory three times, which took 8 % longer (1,000 x 3,072 x 5,120 on an
NVIDIA H100). It takes any multiple of 8 columns at a time, and inline assembly (Triton 3.9) takes all blocks at once.
For that the blocks of B lie side by side in one room.

Source: PTX ISA, "wgmma.mma_async", https://docs.nvidia.com/cuda/parallel-thread-execution/.
"""

from __future__ import annotations

from itertools import pairwise

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rocm_guide.kernels.gemm.hopper.helpers import LINE
from rocm_guide.kernels.gemm.hopper.tiles import ends_of_groups
from rocm_guide.kernels.gluon import assembly, several, shared_layout

__all__ = []

#: TMA's pattern of banks: so many rows of a line.
ROWS_OF_PATTERN = 8
#: The types in assembly.
KINDS = {"fp16": "f16", "bf16": "bf16", "fp8e4nv": "e4m3", "fp8e5": "e5m2"}


#: How many blocks end with the first instruction, with the second, and so on.
groups_of = gluon.constexpr_function(ends_of_groups)


@gluon.constexpr_function
def begin_of_group(blocks, most, group):
    """The first block of an instruction."""
    return (0, *groups_of(blocks, most))[group]


@gluon.constexpr_function
def columns_fetched(blocks, B_T, size):
    """How many columns are fetched for each block, of elements of ``size`` bytes.

    Where rows of memory are not along K, these are whole lines. One that begins in the middle of a line has come with
    the block before it.

    >>> columns_fetched((64, 32, 8), False, 2), columns_fetched((64, 32, 8), True, 2)
    ((64, 64, 0), (64, 32, 8))
    """
    if B_T:
        return tuple(blocks)
    line = LINE // size
    lines = [-(-sum(blocks[:count]) // line) for count in range(len(blocks) + 1)]
    return tuple((after - before) * line for before, after in pairwise(lines))


@gluon.constexpr_function
def blocks_fetched(blocks, B_T, WIDE, size):
    """How many blocks are fetched: a last one may have come with the one before it."""
    return sum(columns > 0 for columns in columns_fetched(blocks, B_T, size)) if WIDE else len(blocks)


@gluon.constexpr_function
def columns_in_stage(blocks, B_T, WIDE, size):
    """How many columns are fetched for a stage of B."""
    return sum(columns_fetched(blocks, B_T, size) if WIDE else blocks)


@gluon.constexpr_function
def units_of(blocks, B_T, size, COUNT=None):
    """Of how many units a stage of B, or its first COUNT blocks, consists: 8 columns if B's rows are along K, else a
    line of 128 bytes."""
    return sum(columns_fetched(blocks, B_T, size)[:COUNT]) // (ROWS_OF_PATTERN if B_T else LINE // size)


@gluon.constexpr_function
def shape_of_unit(block, size, B_T):
    """Rows, and elements of ``size`` bytes, of a unit of a ``block`` as it lies in memory."""
    return [ROWS_OF_PATTERN if B_T else block[0], LINE // size]


@gluon.jit
def room_for_blocks(desc, BLOCKS: gl.constexpr, STAGES: gl.constexpr, CTAS: gl.constexpr, B_T: gl.constexpr):
    """Shared memory for STAGES times all blocks of columns, side by side."""
    size: gl.constexpr = desc.dtype.primitive_bitwidth // 8
    shape: gl.constexpr = shape_of_unit(desc.block_type.shape, size, B_T)
    layout: gl.constexpr = shared_layout(shape, desc.dtype, CTAS, None)
    return gl.allocate_shared_memory(desc.dtype, several(STAGES * units_of(BLOCKS, B_T, size), shape), layout)


@gluon.jit
def place_of_block(room, stage, BLOCKS: gl.constexpr, BLOCK: gl.constexpr, B_T: gl.constexpr):
    """The first unit of a block in a stage: what has its address."""
    size: gl.constexpr = room.dtype.primitive_bitwidth // 8
    return room.index(stage * units_of(BLOCKS, B_T, size) + units_of(BLOCKS, B_T, size, BLOCK))


@gluon.constexpr_function
def _multiply_asm(widths, ROWS, BK, kind, A_T, B_T, ADD):
    """Assembly for (sums of each block, those of before, address of A, address of B): a step's products begin.

    A descriptor counts in 16 bytes: the address, 64 from one pattern to the next, and how far it is to the next line of
    a row where rows are not along K.
    """
    bits = 8 if kind.startswith("fp8") else 16
    columns, depth = sum(widths), 256 // bits
    # Registers of a thread: of each block, 64 rows after 64 rows.
    names, at = [], 0
    for width in widths:
        each = width // 2
        names.append([[f"${at + row * each + i}" for i in range(each)] for row in range(ROWS // 64)])
        at += ROWS // 64 * each
    a, b = (f"${at * (2 if ADD else 1) + i}" for i in range(2))
    next_line = (BK * LINE >> 4) << 16
    fixed = 1 << 30 | ROWS_OF_PATTERN * LINE >> 4  # the pattern of 128 bytes; from one to the next
    lines = [
        ".reg .b32 a, b, at;",
        ".reg .b64 of_a, of_b;",
        ".reg .pred add;",
        f"bfe.u32 a, {a}, 4, 14;",
        f"bfe.u32 b, {b}, 4, 14;",
        *([] if B_T else [f"or.b32 b, b, {next_line};"]),
        "wgmma.fence.sync.aligned;",
    ]
    last = f"{int(A_T)}, {int(not B_T)}" if bits == 16 else ""
    kinds = f"f32.{KINDS[kind]}.{KINDS[kind]}"
    for row in range(ROWS // 64):
        sums = ", ".join(name for block in names for name in block[row])
        for step in range(BK // depth):
            # Along K: 32 bytes of each row; else so many whole rows.
            move_a, move_b = (depth * LINE if across else 32 for across in (A_T, not B_T))
            lines += [
                f"setp.ne.b32 add, {int(ADD or step > 0)}, 0;",
                f"add.u32 at, a, {(row * BK * LINE if A_T else row * 64 * LINE) + step * move_a >> 4};",
                f"mov.b64 of_a, {{at, {fixed}}};",
                f"add.u32 at, b, {step * move_b >> 4};",
                f"mov.b64 of_b, {{at, {fixed}}};",
                f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{kinds} "
                f"{{{sums}}}, of_a, of_b, add, 1, 1{', ' + last if last else ''};",
            ]
    return "\n".join(["{", *lines, "wgmma.commit_group.sync.aligned;", "}"])


@gluon.constexpr_function
def _constraints(widths, ROWS, ADD):
    """Of the assembly's operands: sums that are written, the same as read (with ADD), two addresses."""
    count = sum(widths) * ROWS // 128
    return ",".join(["=f"] * count + [str(i) for i in range(count)] * ADD + ["r", "r"])


@gluon.constexpr_function
def widths_of(blocks, FIRST, END):
    """The blocks of an instruction."""
    return tuple(blocks[FIRST:END])


@gluon.jit
def begin_products(
    x,
    b,
    sums,
    BLOCKS: gl.constexpr,
    A_T: gl.constexpr,
    B_T: gl.constexpr,
    CTAS: gl.constexpr,
    ADD: gl.constexpr,
):
    """``sums`` (ADD) + x @ B for one to three blocks of columns: an instruction for each 32 bytes of K, all under way.

    ``x``: a cluster's tile of A as it lies in memory; ``b``: what begins where these blocks of B do; ``sums``: of each.
    """
    ROWS: gl.constexpr = (x.shape[1] if A_T else x.shape[0]) // CTAS
    BK: gl.constexpr = x.shape[0] if A_T else x.shape[1]
    asm: gl.constexpr = _multiply_asm(BLOCKS, ROWS, BK, x.dtype.name, A_T, B_T, ADD)
    constraints: gl.constexpr = _constraints(BLOCKS, ROWS, ADD)
    inputs = (x, b)
    if ADD:
        inputs = sums + inputs
    if len(sums) == 1:
        found = (assembly(asm, constraints, inputs, sums[0].type),)
    elif len(sums) == 2:
        found = assembly(asm, constraints, inputs, (sums[0].type, sums[1].type))
    else:
        found = assembly(asm, constraints, inputs, (sums[0].type, sums[1].type, sums[2].type))
    return found
