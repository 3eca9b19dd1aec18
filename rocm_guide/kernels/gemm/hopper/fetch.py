# SPDX-License-Identifier: MIT
"""The warp that fetches, in Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`)."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gemm.hopper.wide import columns_in_stage, place_of_block
from rocm_guide.kernels.gemm.hopper.work import next_stage, piece_of_work, place_of_tile, share_of_work
from rocm_guide.kernels.gluon import (
    fetch_for_all,
    let_next_kernel_start,
    place_in_cluster,
    rank_in_cluster,
    to_int32,
)

__all__ = []


@gluon.jit
def fetch(what, HOW: gl.constexpr):
    """The warp that fetches, through all tiles of this program."""
    TILE: gl.constexpr = HOW[0]
    BLOCKS: gl.constexpr = HOW[1]
    A_T: gl.constexpr = HOW[2]
    B_T: gl.constexpr = HOW[3]
    MODE: gl.constexpr = HOW[4]
    descriptors, rooms, bars, sizes = what
    a_desc, b_descs = descriptors
    a_stages, b_rooms = rooms
    ready, empty = bars
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
    BM: gl.constexpr = PARTIES * ROWS // ACROSS
    BN: gl.constexpr = WIDTH * ACROSS
    tiles_m, tiles_n, steps = gl.cdiv(M, BM), gl.cdiv(N, BN), gl.cdiv(K, BK)
    begin, end, pieces, more = share_of_work(tiles_m * tiles_n, steps, share, MODE)
    size: gl.constexpr = a_desc.dtype.primitive_bitwidth // 8
    nbytes: gl.constexpr = (PARTIES * ROWS // CTAS + columns_in_stage(BLOCKS, B_T, WIDE, size)) * BK * size
    nowhere = to_int32(0), to_int32(0), to_int32(0)
    beside, below = nowhere, nowhere
    if ACROSS > 1:
        beside = place_in_cluster(ready.index(0), DOWN, ACROSS, True)
    if CTAS > 1:
        below = place_in_cluster(ready.index(0), DOWN, DOWN, False)
    stage, phase = to_int32(0), to_int32(0)
    for i in range(pieces + more):
        tile, first, last, _part = piece_of_work(i, begin, end, pieces, share, tiles_m * tiles_n, steps, MODE)
        tile_m, tile_n = place_of_tile(tile, tiles_m, tiles_n, group)
        row, col = tile_m * BM, tile_n * BN
        if ACROSS > 1:
            rank = rank_in_cluster()
            row += rank % DOWN * (ROWS // CTAS)
            col += rank // DOWN * WIDTH
        for step in range(first, last):
            k = step * BK
            arrived = ready.index(stage)
            hopper.mbarrier.wait(empty.index(stage), phase ^ 1)
            hopper.mbarrier.expect(arrived, nbytes)
            for party in gl.static_range(PARTIES):
                at = row + party * (ROWS // ACROSS)
                corner, room = (k, at) if A_T else (at, k), a_stages.index(PARTIES * stage + party)
                fetch_for_all(a_desc, corner, arrived, room, beside, CTAS, ACROSS, "gemm_hopper_kernel")
            at = col
            for i_b in gl.static_range(len(b_descs)):
                room = place_of_block(b_rooms[0], stage, BLOCKS, i_b, B_T) if WIDE else b_rooms[i_b].index(stage)
                corner = (at, k) if B_T else (k, at)
                fetch_for_all(
                    b_descs[i_b], corner, arrived, room, below, CTAS, DOWN, "gemm_hopper_kernel", 5 * (i_b + 1), WIDE
                )
                at += BLOCKS[i_b]
            stage, phase = next_stage(stage, phase, STAGES)
    if TILE[5]:
        let_next_kernel_start()
