# SPDX-License-Identifier: MIT
"""The GEMM of :mod:`rocm_guide.kernels.gemm.tiled` on NVIDIA's Hopper (sm_90), with warps that have different jobs.

One warp does nothing but fetch: it asks the TMA engine for tiles of A and B, as far ahead as shared memory has stages.
One to three warpgroups multiply, each its share of the rows of the tile, with asynchronous ``wgmma`` instructions. They
tell each other through barriers in shared memory: "ready" when a stage has arrived, "empty" when all have read it.
Programs are persistent, as many as fit on the GPU at once, so what the next tile needs arrives while the last one is
being stored.

Three ways to share out the work (``MODE``). "tiles": each tile of C is one program's. "split": so is each of ``share``
parts of K of each tile; the sums of the parts are added in order by a second kernel. "stream": the steps of the first
``share`` tiles are dealt out evenly (see :mod:`rocm_guide.kernels.gemm.stream_k`); all other tiles are whole.

From Triton 3.9 on, programs can go in clusters (``CTAS`` = 2, 4 or 8), on neighbouring multiprocessors. A tile is then
that of the cluster: each program has its part of the rows and fetches its own part of A. Of B, which all need, each
fetches a part for all, by a multicast. It may do so when the warpgroups of all have read what was there before, so
these say "empty" to every program of the cluster. That saves requests for B, and requests are what a product waits for
whose rows lie across sectors. Programs may also stand in two or four columns (``ACROSS``), in which those beside each
other share A in the same way.

A short product starts before the kernel in front of it has ended (a programmatic dependent launch): its programs get
their barriers ready on multiprocessors that have nothing to do any more, and only then wait for what they read.

A product may also be computed flipped, as C^T = B^T A^T, where that fits its sizes better: "A" and "row" are then of
B^T, and only the strips that leave for C are turned round.

fp8 products are added by the matrix unit with about 14 bits. So each sum of BK products is taken out and added to a
total in fp32; while one warpgroup adds, the other one multiplies. One that is alone begins two steps before it adds
the first, so that the matrix unit has something to do meanwhile.

Written in Gluon (:mod:`rocm_guide.kernels.gluon`). Nothing here concerns AMD GPUs.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.hopper.fetch import fetch
from rocm_guide.kernels.gemm.hopper.store import leave_strips, room_for_strips, store_strips
from rocm_guide.kernels.gemm.hopper.sums import (
    add_products,
    add_products_exactly,
    add_steps_exactly,
    columns_before,
    columns_of,
    give_back,
    no_sums,
    when_done,
)
from rocm_guide.kernels.gemm.hopper.wide import blocks_fetched, groups_of, room_for_blocks
from rocm_guide.kernels.gemm.hopper.work import (
    next_stage,
    piece_of_work,
    place_of_tile,
    share_of_work,
    stage_before,
)
from rocm_guide.kernels.gluon import (
    barrier,
    barriers,
    meet,
    rank_in_cluster,
    several,
    shared_layout,
    to_int32,
    to_int64,
    wait_for_kernel_before,
)

__all__ = []


@gluon.jit
def multiply(what, PARTY: gl.constexpr, HOW: gl.constexpr):
    """A warpgroup that multiplies: its share of the rows of every tile of this program."""
    TILE: gl.constexpr = HOW[0]
    BLOCKS: gl.constexpr = HOW[1]
    A_T: gl.constexpr = HOW[2]
    B_T: gl.constexpr = HOW[3]
    MODE: gl.constexpr = HOW[4]
    EXACT: gl.constexpr = HOW[5]
    ENDS: gl.constexpr = HOW[6]
    rooms, c_rooms, bars, targets, pointers, sizes, alpha = what
    a_stages = rooms[0]
    ready, _empty = bars
    bias_ptr, part_ptr, flag_ptr = pointers
    M, N, K, share, group = sizes
    PARTIES: gl.constexpr = TILE[0]
    ROWS: gl.constexpr = TILE[1]
    WIDTH: gl.constexpr = TILE[2]
    BK: gl.constexpr = TILE[3]
    STAGES: gl.constexpr = a_stages.shape[0] // PARTIES
    CTAS: gl.constexpr = TILE[4]
    WIDE: gl.constexpr = TILE[6]
    ACROSS: gl.constexpr = TILE[7]
    DOWN: gl.constexpr = CTAS // ACROSS
    FLIP: gl.constexpr = ENDS[4]
    BM: gl.constexpr = PARTIES * ROWS // ACROSS
    BN: gl.constexpr = WIDTH * ACROSS
    DEPTH: gl.constexpr = 256 // a_stages.dtype.primitive_bitwidth
    WHO: gl.constexpr = PARTIES, PARTY
    FORM: gl.constexpr = BLOCKS, A_T, B_T, WIDE, CTAS, DOWN
    tiles_m, tiles_n, steps = gl.cdiv(M, BM), gl.cdiv(N, BN), gl.cdiv(K, BK)
    begin, end, pieces, more = share_of_work(tiles_m * tiles_n, steps, share, MODE)
    stage, phase = to_int32(0), to_int32(0)
    for i in range(pieces + more):
        tile, first, last, part = piece_of_work(i, begin, end, pieces, share, tiles_m * tiles_n, steps, MODE)
        tile_m, tile_n = place_of_tile(tile, tiles_m, tiles_n, group)
        row, col = tile_m * BM + PARTY * (ROWS // ACROSS), tile_n * BN
        if ACROSS > 1:
            # Triton believes that all programs are below each other, and moves each down by its rank.
            rank = rank_in_cluster()
            row += (rank % DOWN - rank) * (ROWS // CTAS)
            col += rank // DOWN * WIDTH
        if MODE == "split":
            if FLIP:
                col += part * tiles_n * BN
            else:
                row += part * tiles_m * BM
        acc = no_sums(ROWS, BLOCKS, DEPTH, CTAS)
        if EXACT == "pairs":
            acc, stage, phase = add_steps_exactly(rooms, bars, acc, last - first, (stage, phase), STAGES, WHO, FORM)
        else:
            for step in range(first, last):
                hopper.mbarrier.wait(ready.index(stage), phase)
                at = PARTIES * stage + PARTY, stage
                if EXACT == "steps":
                    acc = add_products_exactly(rooms, at, acc, bars, FORM)
                else:
                    # This step's products stay under way; those of the one before it have read their stage.
                    acc = when_done(len(groups_of(BLOCKS, WIDE)), add_products(rooms, at, acc, FORM))
                    give_back(bars, stage_before(stage, STAGES), step > first, CTAS, DOWN)
                stage, phase = next_stage(stage, phase, STAGES)
            if EXACT == "":
                acc = when_done(0, acc)
                give_back(bars, stage_before(stage, STAGES), last > first, CTAS, DOWN)
        STRIP: gl.constexpr = c_rooms[0].shape[1] if FLIP else c_rooms[0].shape[2]
        AREA: gl.constexpr = ROWS * WIDTH if MODE == "stream" else 0
        mine = PARTIES * gl.program_id(0) + PARTY
        target = part_ptr + to_int64(mine) * AREA
        others, whole_sum = to_int32(0), True
        if MODE == "stream":
            whole_sum = last == steps
            if whole_sum:
                missing = first
                while missing > 0:
                    # Waiting and lowering the flag for the next launch are one operation.
                    others += 1
                    while gl.atomic_cas(flag_ptr + mine - PARTIES * others, 1, 0, sem="acquire", scope="gpu") != 1:
                        pass
                    worker = to_int64(gl.program_id(0) - others)
                    missing = (share * steps * worker // gl.num_programs(0)).to(gl.int32) - tile * steps
            else:
                # The tile's end belongs to a program with a higher number: leave the sum for it and raise the flag.
                for block in gl.static_range(len(BLOCKS)):
                    leave_strips(acc[block], target, STRIP, columns_before(BLOCKS, block))
                barrier()
                gl.atomic_xchg(flag_ptr + mine, 1, sem="release", scope="gpu")
        if whole_sum:
            out, sums, ends = (targets, c_rooms, bias_ptr), (target, others), (M, N, alpha)
            for block in gl.static_range(len(BLOCKS)):
                store_strips(
                    acc[block],
                    row,
                    col + columns_before(BLOCKS, block),
                    out,
                    sums,
                    ends,
                    PARTY,
                    columns_before(BLOCKS, block),
                    AREA,
                    CTAS,
                    ENDS,
                )
    if ENDS[3]:
        hopper.tma.store_wait(0)


@gluon.jit
def rooms_for_all(desc, COUNT: gl.constexpr, CTAS: gl.constexpr):
    """Shared memory for COUNT tiles in each program of a cluster; the descriptor may be of a part that one fetches."""
    layout: gl.constexpr = shared_layout(desc.block_type.shape, desc.dtype, CTAS, None)
    return gl.allocate_shared_memory(desc.dtype, several(COUNT, desc.block_type.shape), layout)


@gluon.jit(do_not_specialize=["M", "N", "K", "share", "group"])
def gemm_hopper_kernel(
    a_desc,
    b_desc,
    b_desc_1,
    b_desc_2,
    c,
    c_narrow,
    bias_ptr,
    part_ptr,
    flag_ptr,
    M,
    N,
    K,
    share,
    group,
    alpha,
    TILE: gl.constexpr,
    BLOCKS: gl.constexpr,
    STAGES: gl.constexpr,
    STRIP: gl.constexpr,
    A_T: gl.constexpr,
    B_T: gl.constexpr,
    MODE: gl.constexpr,
    EXACT: gl.constexpr,
    ENDS: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """C = act(alpha * A @ B + bias) in tiles of (parties * rows, width), by persistent programs.

    ``TILE``: parties, rows (of all programs of a cluster), width, bk, ctas and overlap of a
    :class:`rocm_guide.kernels.gemm.hopper.tiles.HopperTile`, how many columns an instruction may have that multiplies
    several of its blocks, or 0 (:mod:`rocm_guide.kernels.gemm.hopper.wide`), and across. ``BLOCKS``: of columns, which
    make up its width: three at most, as each must be a power of two; two of one half are also how fp8 keeps its sums in
    registers. ``b_desc``, ``b_desc_1`` and ``b_desc_2`` fetch one each; what is too many is not looked at. ``c`` takes
    STRIP columns at a time, and ``c_narrow`` a last block that has fewer. ``group``: so many rows of tiles are walked
    together. A_T, B_T: the descriptor is of the transpose. ``ENDS``: whether there is an epilogue and a bias, the
    activation, whether ``c`` is a descriptor, whether C^T is computed. ``EXACT``: for fp8, whether a
    warpgroup begins "steps" one by one or in "pairs"; else "". ``REGISTERS``: of a thread that multiplies, for each but
    the first warpgroup, which gets what is left, and of one that fetches.
    """
    PARTIES: gl.constexpr = TILE[0]
    ROWS: gl.constexpr = TILE[1]
    CTAS: gl.constexpr = TILE[4]
    a_shape: gl.constexpr = [a_desc.block_type.shape[0], ROWS] if A_T else [ROWS, a_desc.block_type.shape[1]]
    a_layout: gl.constexpr = shared_layout(a_shape, a_desc.dtype, CTAS, A_T)
    a_stages = gl.allocate_shared_memory(a_desc.dtype, several(PARTIES * STAGES, a_shape), a_layout)
    size: gl.constexpr = a_desc.dtype.primitive_bitwidth // 8
    b_descs = (b_desc, b_desc_1, b_desc_2)[: blocks_fetched(BLOCKS, B_T, TILE[6], size)]
    b_rooms = b_descs[:0]
    if TILE[6]:
        b_rooms += (room_for_blocks(b_desc, BLOCKS, STAGES, CTAS, B_T),)
    else:
        for i in gl.static_range(len(BLOCKS)):
            b_rooms += (rooms_for_all(b_descs[i], STAGES, CTAS),)
    c_kind: gl.constexpr = c.dtype if ENDS[3] else c.dtype.element_ty
    c_rooms = b_descs[:0]
    c_rooms += (room_for_strips(c_kind, 2 * PARTIES, ROWS, STRIP, CTAS, ENDS[4]),)
    if BLOCKS[-1] < STRIP:
        c_rooms += (room_for_strips(c_kind, PARTIES, ROWS, columns_of(BLOCKS, -1), CTAS, ENDS[4]),)
    ready = barriers(STAGES, 1, CTAS)
    empty = barriers(STAGES, PARTIES * (CTAS // TILE[7] + TILE[7] - 1), CTAS)
    hopper.fence_async_shared()
    meet(CTAS)
    rooms, bars = (a_stages, b_rooms), (ready, empty)
    if TILE[5]:
        wait_for_kernel_before()
    pointers, sizes = (bias_ptr, part_ptr, flag_ptr), (M, N, K, share, group)
    how: gl.constexpr = TILE, BLOCKS, A_T, B_T, MODE, EXACT, ENDS
    what = rooms, c_rooms, bars, (c, c_narrow), pointers, sizes, alpha
    fetched = (a_desc, b_descs), rooms, bars, sizes
    if PARTIES == 3:
        gl.warp_specialize(
            [
                (multiply, (what, 0, how)),
                (multiply, (what, 1, how)),
                (multiply, (what, 2, how)),
                (fetch, (fetched, how)),
            ],
            [4, 4, 1],
            REGISTERS,
        )
    elif PARTIES == 2:
        gl.warp_specialize(
            [(multiply, (what, 0, how)), (multiply, (what, 1, how)), (fetch, (fetched, how))], [4, 1], REGISTERS
        )
    else:
        gl.warp_specialize([(multiply, (what, 0, how)), (fetch, (fetched, how))], [1], REGISTERS)
