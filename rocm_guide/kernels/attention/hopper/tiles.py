# SPDX-License-Identifier: MIT
"""What attention's kernels for Hopper share: the order of tiles, who is told of them, and the warp that fetches."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.gluon import fetch_tile, to_int32

__all__ = []


@gluon.jit
def locate_tile(tile, sizes, CAUSAL: gl.constexpr, TOGETHER: gl.constexpr):
    """Of a tile's number: batch, head, KV head, number of batch and head, and which tile of queries."""
    heads, group, tiles, all_heads, _, _ = sizes
    first = tile // (TOGETHER * tiles) * TOGETHER
    count = gl.minimum(TOGETHER, all_heads - first)
    inside = tile % (TOGETHER * tiles)
    number = first + inside % count
    m = inside // count
    if CAUSAL:
        m = tiles - 1 - m  # the last queries see the most keys
    return number // heads, number % heads, number % heads // group, number, m


@gluon.jit
def key_tiles(m, sizes, QUERIES: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr):
    """How many tiles of keys the ``m``-th tile of queries sees."""
    len_q, len_k = sizes[4], sizes[5]
    high = len_k
    if CAUSAL:
        high = gl.minimum(len_k, (m + 1) * QUERIES + len_k - len_q)
    return gl.cdiv(high, KEYS)


@gluon.jit
def announce(tile, slot, next_tile):
    """Tell the warpgroups which tile is next: of all queries, or one beyond the last for the end."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    next_tile.index(slot).store(gl.full([1], tile, gl.int32, one))


@gluon.jit
def announced(slot, next_tile):
    """What the fetching warp has told."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    return gl.max(next_tile.index(slot).load(one), 0)


@gluon.jit
def fetch(descriptors, rooms, bars, next_tile, counter, sizes, CAUSAL: gl.constexpr, TOGETHER: gl.constexpr):
    """The warp that fetches, through all tiles of this program: the keys of a tile from the last to the first.

    ``descriptors`` and ``rooms``: those of all that has a row for each query (Q, and dO in the backward pass), K and V.
    """
    of_queries, k_desc, v_desc = descriptors
    query_rooms, k_room, v_room = rooms
    q_ready, q_empty, k_ready, k_empty, v_ready, v_empty = bars
    COUNT: gl.constexpr = len(of_queries)
    ROWS: gl.constexpr = query_rooms[0].shape[3]
    KEYS: gl.constexpr = k_room.shape[3]
    K_STAGES: gl.constexpr = k_room.shape[0]
    V_STAGES: gl.constexpr = v_room.shape[0]
    row_bytes: gl.constexpr = k_room.shape[4] * (k_room.dtype.primitive_bitwidth // 8)
    count = sizes[2] * sizes[3]
    turn, step = to_int32(0), to_int32(0)
    tile = gl.program_id(0)
    while tile < count:
        batch, head, kv_head, _, m = locate_tile(tile, sizes, CAUSAL, TOGETHER)
        slot = turn % 2
        hopper.mbarrier.wait(q_empty.index(slot), turn // 2 % 2 ^ 1)
        announce(tile, slot, next_tile)
        hopper.mbarrier.expect(q_ready.index(slot), 2 * COUNT * ROWS * row_bytes)
        for half in gl.static_range(2):
            row = (2 * m + half) * ROWS
            for i in gl.static_range(COUNT):
                room = query_rooms[i].index(2 * slot + half)
                fetch_tile(of_queries[i], [batch, head, row, 0], q_ready.index(slot), room)
        turn += 1
        steps = key_tiles(m, sizes, 2 * ROWS, KEYS, CAUSAL)
        for j in range(steps):
            at, k_stage, v_stage = (steps - 1 - j) * KEYS, step % K_STAGES, step % V_STAGES
            hopper.mbarrier.wait(k_empty.index(k_stage), step // K_STAGES % 2 ^ 1)
            hopper.mbarrier.expect(k_ready.index(k_stage), KEYS * row_bytes)
            fetch_tile(k_desc, [batch, kv_head, at, 0], k_ready.index(k_stage), k_room.index(k_stage))
            hopper.mbarrier.wait(v_empty.index(v_stage), step // V_STAGES % 2 ^ 1)
            hopper.mbarrier.expect(v_ready.index(v_stage), KEYS * row_bytes)
            fetch_tile(v_desc, [batch, kv_head, at, 0], v_ready.index(v_stage), v_room.index(v_stage))
            step += 1
        if CAUSAL:
            tile = gl.num_programs(0) + gl.atomic_add(counter, 1, sem="relaxed")
        else:
            tile += gl.num_programs(0)
    hopper.mbarrier.wait(q_empty.index(turn % 2), turn // 2 % 2 ^ 1)
    announce(tile, turn % 2, next_tile)
    hopper.mbarrier.arrive(q_ready.index(turn % 2), count=1)
