# SPDX-License-Identifier: MIT
"""The GEMM of :mod:`rocm_guide.kernels.gemm.tiled` on NVIDIA's Hopper (sm_90), with warps that have different jobs.

One warp does nothing but fetch: it asks the TMA engine for tiles of A and B, as far ahead as shared memory has stages.
One or two warpgroups multiply, each its share of the rows of the tile, with asynchronous ``wgmma`` instructions. They
tell each other through barriers in shared memory: "ready" when a stage has arrived, "empty" when all have read it.
Programs are persistent, as many as fit on the GPU at once, so what the next tile needs arrives while the last one is
being stored.

Three ways to share out the work (``MODE``). "tiles": each tile of C is one program's. "split": so is each of ``share``
parts of K of each tile; the sums of the parts are added in order by a second kernel. "stream": the steps of the first
``share`` tiles are dealt out evenly (see :mod:`rocm_guide.kernels.gemm.stream_k`); all other tiles are whole.

From Triton 3.9 on, programs can go in pairs (``CTAS`` = 2), on two neighbouring multiprocessors. A tile is then that of
the pair: each program has half of its rows and fetches its own part of A; B, which both need, the first one fetches for
both, by a multicast. It may do so when the warpgroups of both have read what was there before, hence a third kind of
barrier. Half of the requests for B are saved, and requests are what a product waits for whose rows lie across sectors.

A product may also be computed flipped, as C^T = B^T A^T, where that fits its sizes better: "A" and "row" are then of
B^T, and only the strips that leave for C are turned round.

fp8 products are added by the matrix unit with about 14 bits. So each sum of BK products is taken out and added to a
total in fp32; while one warpgroup adds, the other one multiplies.

Written in Gluon (:mod:`rocm_guide.kernels.gluon`). Nothing here concerns AMD GPUs.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.hopper.store import leave_strips, store_strips
from rocm_guide.kernels.gemm.hopper.work import next_stage, piece_of_work, share_of_work, stage_before
from rocm_guide.kernels.gemm.tiles import tile_order
from rocm_guide.kernels.gluon import (
    barrier,
    barriers,
    fetch_for_both,
    fetch_tile,
    several,
    shared_layout,
    sums_layout,
    to_int32,
    to_int64,
)

__all__ = []


@gluon.jit
def fetch(
    descriptors, rooms, bars, sizes, TILE: gl.constexpr, A_T: gl.constexpr, B_T: gl.constexpr, MODE: gl.constexpr
):
    """The warp that fetches, through all tiles of this program."""
    a_desc, b_desc, rest_desc = descriptors
    a_stages, b_stages, rest_stages = rooms
    ready, empty, read_by_both = bars
    M, N, K, share = sizes
    PARTIES: gl.constexpr = TILE[0]
    ROWS: gl.constexpr = TILE[1]
    BN: gl.constexpr = TILE[2]
    REST: gl.constexpr = TILE[3]
    BK: gl.constexpr = TILE[4]
    STAGES: gl.constexpr = b_stages.shape[0]
    GROUP: gl.constexpr = TILE[5]
    CTAS: gl.constexpr = TILE[6]
    BM: gl.constexpr = PARTIES * ROWS
    tiles_m, tiles_n, steps = gl.cdiv(M, BM), gl.cdiv(N, BN + REST), gl.cdiv(K, BK)
    begin, end, pieces, more = share_of_work(tiles_m * tiles_n, steps, share, MODE)
    nbytes: gl.constexpr = (BM // CTAS + BN + REST) * BK * (a_desc.dtype.primitive_bitwidth // 8)
    stage, phase = to_int32(0), to_int32(0)
    for i in range(pieces + more):
        tile, first, last, _part = piece_of_work(i, begin, end, pieces, share, tiles_m * tiles_n, steps, MODE)
        tile_m, tile_n = tile_order(tile, tiles_m, tiles_n, GROUP, 1)
        row, col = tile_m * BM, tile_n * (BN + REST)
        for step in range(first, last):
            k = step * BK
            arrived = ready.index(stage)
            hopper.mbarrier.wait(empty.index(stage), phase ^ 1)
            hopper.mbarrier.expect(arrived, nbytes)
            for half in gl.static_range(PARTIES):
                if A_T:
                    fetch_tile(a_desc, [k, row + half * ROWS], arrived, a_stages.index(PARTIES * stage + half))
                else:
                    fetch_tile(a_desc, [row + half * ROWS, k], arrived, a_stages.index(PARTIES * stage + half))
            if CTAS == 2:
                # The first program fetches B for both of them.
                hopper.mbarrier.wait(read_by_both.index(stage), phase ^ 1)
            if B_T:
                fetch_for_both(b_desc, [col, k], arrived, b_stages.index(stage), CTAS)
                if REST > 0:
                    fetch_for_both(rest_desc, [col + BN, k], arrived, rest_stages.index(stage), CTAS)
            else:
                fetch_for_both(b_desc, [k, col], arrived, b_stages.index(stage), CTAS)
                if REST > 0:
                    fetch_for_both(rest_desc, [k, col + BN], arrived, rest_stages.index(stage), CTAS)
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def operand(stages, at, TRANSPOSED: gl.constexpr):
    """The tile in stage ``at``, seen from the other side if its matrix is stored that way."""
    tile = stages.index(at)
    if TRANSPOSED:
        tile = tile.permute((1, 0))
    return tile


@gluon.jit
def give_back(bars, stage, pred, CTAS: gl.constexpr):
    """Say that this warpgroup has read a stage: to its own program, and to the first one of a pair."""
    hopper.mbarrier.arrive(bars[1].index(stage), count=1, pred=pred)
    if CTAS == 2:
        hopper.mbarrier.arrive(bars[2].index(stage), count=1, pred=pred)


@gluon.jit
def multiply(
    rooms,
    c_stages,
    bars,
    c,
    pointers,
    sizes,
    alpha,
    HALF: gl.constexpr,
    TILE: gl.constexpr,
    A_T: gl.constexpr,
    B_T: gl.constexpr,
    MODE: gl.constexpr,
    EXACT: gl.constexpr,
    ENDS: gl.constexpr,
):
    """A warpgroup that multiplies: its share of the rows of every tile of this program."""
    a_stages, b_stages, rest_stages = rooms
    ready, _empty, _read_by_both = bars
    bias_ptr, part_ptr, flag_ptr = pointers
    M, N, K, share = sizes
    PARTIES: gl.constexpr = TILE[0]
    ROWS: gl.constexpr = TILE[1]
    BN: gl.constexpr = TILE[2]
    REST: gl.constexpr = TILE[3]
    BK: gl.constexpr = TILE[4]
    STAGES: gl.constexpr = b_stages.shape[0]
    GROUP: gl.constexpr = TILE[5]
    CTAS: gl.constexpr = TILE[6]
    FLIP: gl.constexpr = ENDS[4]
    BM: gl.constexpr = PARTIES * ROWS
    tiles_m, tiles_n, steps = gl.cdiv(M, BM), gl.cdiv(N, BN + REST), gl.cdiv(K, BK)
    begin, end, pieces, more = share_of_work(tiles_m * tiles_n, steps, share, MODE)
    depth: gl.constexpr = 256 // a_stages.dtype.primitive_bitwidth
    wide: gl.constexpr = sums_layout(BN, depth, CTAS)
    narrow: gl.constexpr = sums_layout(REST if REST > 0 else 8, depth, CTAS)
    stage, phase = to_int32(0), to_int32(0)
    for i in range(pieces + more):
        tile, first, last, part = piece_of_work(i, begin, end, pieces, share, tiles_m * tiles_n, steps, MODE)
        tile_m, tile_n = tile_order(tile, tiles_m, tiles_n, GROUP, 1)
        row, col = tile_m * BM + HALF * ROWS, tile_n * (BN + REST)
        if MODE == "split":
            if FLIP:
                col += part * tiles_n * (BN + REST)
            else:
                row += part * tiles_m * BM
        acc = gl.zeros([ROWS, BN], gl.float32, wide)
        if REST > 0:
            rest = gl.zeros([ROWS, REST], gl.float32, narrow)
        for step in range(first, last):
            hopper.mbarrier.wait(ready.index(stage), phase)
            x = operand(a_stages, PARTIES * stage + HALF, A_T)
            if EXACT:
                few = gl.zeros([ROWS, BN], gl.float32, wide)
                few = hopper.warpgroup_mma(x, operand(b_stages, stage, B_T), few, use_acc=False, is_async=True)
                few = hopper.warpgroup_mma_wait(0, deps=[few])
                if REST == 0:
                    give_back(bars, stage, True, CTAS)
                acc += few
                if REST > 0:
                    last_few = gl.zeros([ROWS, REST], gl.float32, narrow)
                    last_few = hopper.warpgroup_mma(
                        x, operand(rest_stages, stage, B_T), last_few, use_acc=False, is_async=True
                    )
                    last_few = hopper.warpgroup_mma_wait(0, deps=[last_few])
                    give_back(bars, stage, True, CTAS)
                    rest += last_few
            else:
                acc = hopper.warpgroup_mma(x, operand(b_stages, stage, B_T), acc, is_async=True)
                # One product stays under way; the one before it has read its stage.
                if REST > 0:
                    rest = hopper.warpgroup_mma(x, operand(rest_stages, stage, B_T), rest, is_async=True)
                    acc, rest = hopper.warpgroup_mma_wait(2, deps=[acc, rest])
                else:
                    acc = hopper.warpgroup_mma_wait(1, deps=[acc])
                give_back(bars, stage_before(stage, STAGES), step > first, CTAS)
            stage, phase = next_stage(stage, phase, STAGES)
        if not EXACT:
            if REST > 0:
                acc, rest = hopper.warpgroup_mma_wait(0, deps=[acc, rest])
            else:
                acc = hopper.warpgroup_mma_wait(0, deps=[acc])
            give_back(bars, stage_before(stage, STAGES), last > first, CTAS)
        STRIP: gl.constexpr = c_stages.shape[1] if FLIP else c_stages.shape[2]
        AREA: gl.constexpr = ROWS * (BN + REST) if MODE == "stream" else 0
        mine = PARTIES * gl.program_id(0) + HALF
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
                leave_strips(acc, target, STRIP, 0)
                if REST > 0:
                    leave_strips(rest, target, STRIP, BN // STRIP)
                barrier()
                gl.atomic_xchg(flag_ptr + mine, 1, sem="release", scope="gpu")
        if whole_sum:
            out, sums, ends = (c, c_stages, bias_ptr), (target, others), (M, N, alpha)
            store_strips(acc, row, col, out, sums, ends, HALF, 0, AREA, CTAS, ENDS)
            if REST > 0:
                store_strips(rest, row, col + BN, out, sums, ends, HALF, BN // STRIP, AREA, CTAS, ENDS)
    if ENDS[3]:
        hopper.tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "share"])
def gemm_hopper_kernel(
    a_desc,
    b_desc,
    rest_desc,
    c,
    bias_ptr,
    part_ptr,
    flag_ptr,
    M,
    N,
    K,
    share,
    alpha,
    TILE: gl.constexpr,
    STAGES: gl.constexpr,
    STRIP: gl.constexpr,
    A_T: gl.constexpr,
    B_T: gl.constexpr,
    MODE: gl.constexpr,
    EXACT: gl.constexpr,
    ENDS: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """C = act(alpha * A @ B + bias) in tiles of (parties * rows, bn + rest), by persistent programs.

    ``TILE``: parties, rows (of both programs of a pair), bn, rest, bk, group and ctas of a
    :class:`rocm_guide.kernels.gemm.hopper.configs.HopperTile`. A_T, B_T: the descriptor is of the transpose.
    ``rest_desc`` reads the last ``rest`` columns of a tile of B, for widths that are no power of two; two parts of one
    half are also how fp8 keeps its sums in registers. ``ENDS``: whether there is an epilogue and a bias, the
    activation, whether ``c`` is a descriptor, whether C^T is computed. ``REGISTERS``: of a thread that multiplies, and
    of one that fetches (the first warpgroup gets what is left).
    """
    PARTIES: gl.constexpr = TILE[0]
    ROWS: gl.constexpr = TILE[1]
    kind: gl.constexpr = a_desc.dtype
    a_stages = gl.allocate_shared_memory(kind, several(PARTIES * STAGES, a_desc.block_type.shape), a_desc.layout)
    b_stages = gl.allocate_shared_memory(b_desc.dtype, several(STAGES, b_desc.block_type.shape), b_desc.layout)
    if TILE[3] > 0:
        rest_size: gl.constexpr = several(STAGES, rest_desc.block_type.shape)
        rest_stages = gl.allocate_shared_memory(b_desc.dtype, rest_size, rest_desc.layout)
    else:
        rest_stages = b_stages
    c_kind: gl.constexpr = c.dtype if ENDS[3] else c.dtype.element_ty
    CTAS: gl.constexpr = TILE[6]
    strip: gl.constexpr = [STRIP, ROWS] if ENDS[4] else [ROWS, STRIP]
    c_layout: gl.constexpr = shared_layout(strip, c_kind, CTAS, ENDS[4])
    c_stages = gl.allocate_shared_memory(c_kind, several(2 * PARTIES, strip), c_layout)
    ready = barriers(STAGES, 1, CTAS)
    empty = barriers(STAGES, PARTIES, CTAS)
    read_by_both = barriers(STAGES, PARTIES, CTAS, True) if CTAS == 2 else empty
    hopper.fence_async_shared()
    descriptors, rooms = (a_desc, b_desc, rest_desc), (a_stages, b_stages, rest_stages)
    bars = ready, empty, read_by_both
    pointers, sizes = (bias_ptr, part_ptr, flag_ptr), (M, N, K, share)
    if PARTIES == 2:
        gl.warp_specialize(
            [
                (multiply, (rooms, c_stages, bars, c, pointers, sizes, alpha, 0, TILE, A_T, B_T, MODE, EXACT, ENDS)),
                (multiply, (rooms, c_stages, bars, c, pointers, sizes, alpha, 1, TILE, A_T, B_T, MODE, EXACT, ENDS)),
                (fetch, (descriptors, rooms, bars, sizes, TILE, A_T, B_T, MODE)),
            ],
            [4, 1],
            REGISTERS,
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (rooms, c_stages, bars, c, pointers, sizes, alpha, 0, TILE, A_T, B_T, MODE, EXACT, ENDS)),
                (fetch, (descriptors, rooms, bars, sizes, TILE, A_T, B_T, MODE)),
            ],
            [1],
            REGISTERS,
        )
