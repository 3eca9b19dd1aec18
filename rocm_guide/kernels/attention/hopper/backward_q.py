# SPDX-License-Identifier: MIT
r"""Attention, backward, the queries' part on NVIDIA's Hopper (sm_90): dQ of 128 queries, summed over the keys.

The mathematics is that of :mod:`rocm_guide.kernels.attention.backward_q`, the division of labour that of
:mod:`rocm_guide.kernels.attention.hopper.forward`: a warp that fetches, two warpgroups of 64 queries each, persistent
programs. Each step asks the matrix units for three products at once: the scores and dP of the next keys, and dQ of
these. The exponentials of the next keys are computed while the last two are under way.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithm 2.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.attention.hopper.tiles import announced, fetch, key_tiles, locate_tile
from rocm_guide.kernels.gluon import barriers, several, store_tile, to_int32

__all__ = []


@gluon.jit
def hide(s, keys, queries, sizes, CAUSAL: gl.constexpr):
    """Scores of keys that do not exist or are not seen become minus infinity."""
    seen = (keys < sizes[5])[None, :]
    if CAUSAL:
        seen &= keys[None, :] <= (queries + sizes[5] - sizes[4])[:, None]
    return gl.where(seen, s, float("-inf"))


@gluon.jit
def next_keys(
    acc,
    p,
    dp,
    step,
    j,
    steps,
    vectors,
    places,
    scale,
    tiles,
    bars,
    sizes,
    MASKED: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Add the ``j - 1``-th tile of keys to dQ, and prepare p and dP of the ``j``-th."""
    q, do, k_room, v_room = tiles
    top, delta = vectors
    keys, queries = places
    k_ready, k_empty, v_ready, v_empty = bars[2], bars[3], bars[4], bars[5]
    KEYS: gl.constexpr = k_room.shape[3]
    D: gl.constexpr = k_room.shape[4]
    K_STAGES: gl.constexpr = k_room.shape[0]
    V_STAGES: gl.constexpr = v_room.shape[0]
    of_scores: gl.constexpr = p.type.layout
    nothing = gl.zeros([p.shape[0], KEYS], gl.float32, of_scores)
    left: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 2)
    ds = gl.convert_layout((p * (dp - delta[:, None])).to(q.dtype), left)
    following, more = step + 1, j < steps
    k = k_room.index(step % K_STAGES).reshape([KEYS, D])
    next_k = k_room.index(following % K_STAGES).reshape([KEYS, D])
    next_v = v_room.index(following % V_STAGES).reshape([KEYS, D])
    hopper.mbarrier.wait(v_ready.index(following % V_STAGES), following // V_STAGES % 2, pred=more)
    # After the last tile these two read what happens to be there, and nobody looks at the result.
    s_to_come = hopper.warpgroup_mma(q, next_k.permute((1, 0)), nothing, use_acc=False, is_async=True)
    dp_to_come = hopper.warpgroup_mma(do, next_v.permute((1, 0)), nothing, use_acc=False, is_async=True)
    acc_to_come = hopper.warpgroup_mma(ds, k, acc, is_async=True)
    s = hopper.warpgroup_mma_wait(2, deps=[s_to_come])
    if MASKED:
        s = hide(s, keys, queries, sizes, CAUSAL)
    p = gl.exp2(s * scale - top[:, None])
    # A loop of its own, behind which ptxas does not move the exponentials.
    hopper.mbarrier.wait(k_ready.index((step + 2) % K_STAGES), (step + 2) // K_STAGES % 2, pred=j + 1 < steps)
    dp, acc, ds, p = hopper.warpgroup_mma_wait(0, deps=[dp_to_come, acc_to_come, ds, p])
    hopper.mbarrier.arrive(k_empty.index(step % K_STAGES), count=1)
    hopper.mbarrier.arrive(v_empty.index(following % V_STAGES), count=1, pred=more)
    return acc, p, dp, following


@gluon.jit
def collect(
    dq_desc,
    vectors,
    rooms,
    bars,
    next_tile,
    sizes,
    padded,
    factors,
    HALF: gl.constexpr,
    CAUSAL: gl.constexpr,
    MASKS: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """A warpgroup that computes: half the queries of every tile of this program."""
    query_rooms, k_room, v_room = rooms
    q_room, do_room = query_rooms
    q_ready, q_empty, k_ready, v_ready, v_empty = bars[0], bars[1], bars[2], bars[4], bars[5]
    ROWS: gl.constexpr = q_room.shape[3]
    D: gl.constexpr = q_room.shape[4]
    KEYS: gl.constexpr = k_room.shape[3]
    K_STAGES: gl.constexpr = k_room.shape[0]
    V_STAGES: gl.constexpr = v_room.shape[0]
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    of_dq: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, of_scores))
    columns = gl.arange(0, KEYS, gl.SliceLayout(0, of_scores))
    nothing = gl.zeros([ROWS, KEYS], gl.float32, of_scores)
    scale, factor = factors
    turn, step = to_int32(0), to_int32(0)
    hopper.mbarrier.wait(q_ready.index(0), 0)
    tile = announced(0, next_tile)
    while tile < sizes[2] * sizes[3]:
        batch, head, _, number, m = locate_tile(tile, sizes, CAUSAL, TOGETHER)
        row0, steps = (2 * m + HALF) * ROWS, key_tiles(m, sizes, 2 * ROWS, KEYS, CAUSAL)
        slot = turn % 2
        q, do = q_room.index(2 * slot + HALF).reshape([ROWS, D]), do_room.index(2 * slot + HALF).reshape([ROWS, D])
        at = number.to(gl.int64) * padded + row0
        top, delta = gl.load(vectors[0] + at + rows), gl.load(vectors[1] + at + rows)
        hopper.mbarrier.wait(k_ready.index(step % K_STAGES), step // K_STAGES % 2)
        k = k_room.index(step % K_STAGES).reshape([KEYS, D])
        s = hopper.warpgroup_mma(q, k.permute((1, 0)), nothing, use_acc=False, is_async=True)
        hopper.mbarrier.wait(v_ready.index(step % V_STAGES), step // V_STAGES % 2)
        v = v_room.index(step % V_STAGES).reshape([KEYS, D])
        dp = hopper.warpgroup_mma(do, v.permute((1, 0)), nothing, use_acc=False, is_async=True)
        s, dp = hopper.warpgroup_mma_wait(0, deps=[s, dp])
        hopper.mbarrier.arrive(v_empty.index(step % V_STAGES), count=1)
        acc = gl.zeros([ROWS, D], gl.float32, of_dq)
        # The last keys may be hidden: beyond the end, or from queries before them.
        masked = gl.minimum(MASKS, steps)
        if MASKS > 0:
            s = hide(s, (steps - 1) * KEYS + columns, row0 + rows, sizes, CAUSAL)
        p = gl.exp2(s * scale - top[:, None])
        hopper.mbarrier.wait(k_ready.index((step + 1) % K_STAGES), (step + 1) // K_STAGES % 2, pred=steps > 1)
        tiles = (q, do, k_room, v_room)
        for j in range(1, masked):
            places = ((steps - 1 - j) * KEYS + columns, row0 + rows)
            acc, p, dp, step = next_keys(
                acc, p, dp, step, j, steps, (top, delta), places, scale, tiles, bars, sizes, True, CAUSAL
            )
        places = (columns, row0 + rows)
        for j in range(gl.maximum(masked, 1), steps + 1):
            acc, p, dp, step = next_keys(
                acc, p, dp, step, j, steps, (top, delta), places, scale, tiles, bars, sizes, False, CAUSAL
            )
        q.store((acc * factor).to(q.dtype))
        hopper.fence_async_shared()
        store_tile(dq_desc, [batch, head, row0, 0], q_room.index(2 * slot + HALF))
        hopper.tma.store_wait(0)
        hopper.mbarrier.arrive(q_empty.index(slot), count=1)
        turn += 1
        hopper.mbarrier.wait(q_ready.index(turn % 2), turn // 2 % 2)
        tile = announced(turn % 2, next_tile)


@gluon.jit(do_not_specialize=["heads", "group", "tiles", "all_heads", "len_q", "len_k", "padded"])
def backward_q_hopper_kernel(
    q_desc,
    do_desc,
    k_desc,
    v_desc,
    dq_desc,
    top,
    delta,
    counter,
    heads,
    group,
    tiles,
    all_heads,
    len_q,
    len_k,
    padded,
    scale,
    factor,
    CAUSAL: gl.constexpr,
    MASKS: gl.constexpr,
    TOGETHER: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """All tiles of queries, by persistent programs. Of ``top`` and ``delta`` the rows of a head are ``padded`` numbers
    apart. The last MASKS tiles of keys of each tile may have hidden ones."""
    q_room = gl.allocate_shared_memory(q_desc.dtype, several(4, q_desc.block_type.shape), q_desc.layout)
    do_room = gl.allocate_shared_memory(q_desc.dtype, several(4, q_desc.block_type.shape), q_desc.layout)
    k_room = gl.allocate_shared_memory(k_desc.dtype, several(K_STAGES, k_desc.block_type.shape), k_desc.layout)
    v_room = gl.allocate_shared_memory(v_desc.dtype, several(V_STAGES, v_desc.block_type.shape), v_desc.layout)
    next_tile = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    k_bars, v_bars = (barriers(K_STAGES, 1), barriers(K_STAGES, 2)), (barriers(V_STAGES, 1), barriers(V_STAGES, 2))
    bars = (barriers(2, 1), barriers(2, 2), k_bars[0], k_bars[1], v_bars[0], v_bars[1])
    hopper.fence_async_shared()
    descriptors, rooms = ((q_desc, do_desc), k_desc, v_desc), ((q_room, do_room), k_room, v_room)
    sizes = heads, group, tiles, all_heads, len_q, len_k
    vectors, factors = (top, delta), (scale, factor)
    gl.warp_specialize(
        [
            (collect, (dq_desc, vectors, rooms, bars, next_tile, sizes, padded, factors, 0, CAUSAL, MASKS, TOGETHER)),
            (collect, (dq_desc, vectors, rooms, bars, next_tile, sizes, padded, factors, 1, CAUSAL, MASKS, TOGETHER)),
            (fetch, (descriptors, rooms, bars, next_tile, counter, sizes, CAUSAL, TOGETHER)),
        ],
        [4, 1],
        REGISTERS,
    )
