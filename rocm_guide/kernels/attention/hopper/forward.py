# SPDX-License-Identifier: MIT
r"""Attention, forward, on NVIDIA's Hopper (sm_90): the mathematics of :mod:`rocm_guide.kernels.attention.forward`, with
warps that have different jobs.

One warp does nothing but fetch tiles of Q, K and V by TMA, as far ahead as shared memory has room. Two warpgroups
compute, each for 64 of the tile's 128 queries, and neither waits for the other. A warpgroup asks for the scores of the
next keys and for the product with the values of these, and computes exponentials while the matrix units work:

.. code-block:: text

    matrix units   S[j+1] = Q K^T   O += P[j] V[j]        S[j+2] ...
    other units                     P[j+1] = exp(S[j+1])

Programs are persistent, one per multiprocessor. Without a mask all tiles take the same time, and each program takes
every n-th. With a causal mask the longest come first, and a program asks a counter in global memory for its next one.

Source: J. Shah and others, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision",
https://arxiv.org/abs/2407.08608, algorithm 2. Nothing here concerns AMD GPUs.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from rocm_guide.kernels.attention.hopper.tiles import announced, fetch, key_tiles, locate_tile
from rocm_guide.kernels.gluon import barriers, several, store_tile, to_int32

__all__ = []

_LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def attend(
    o_desc,
    lse,
    rooms,
    bars,
    next_tile,
    sizes,
    scale,
    HALF: gl.constexpr,
    CAUSAL: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """A warpgroup that computes: half the queries of every tile of this program. ``scale`` has log2(e) in it."""
    query_rooms, k_room, v_room = rooms
    q_room = query_rooms[0]
    q_ready, q_empty, k_ready, k_empty, v_ready, v_empty = bars
    ROWS: gl.constexpr = q_room.shape[3]
    D: gl.constexpr = q_room.shape[4]
    KEYS: gl.constexpr = k_room.shape[3]
    STAGES: gl.constexpr = k_room.shape[0]
    kind: gl.constexpr = q_room.dtype
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    of_output: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, of_output, 2)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, of_scores))
    columns = gl.arange(0, KEYS, gl.SliceLayout(0, of_scores))
    nothing = gl.zeros([ROWS, KEYS], gl.float32, of_scores)
    len_q, len_k = sizes[4], sizes[5]
    turn, step = to_int32(0), to_int32(0)
    hopper.mbarrier.wait(q_ready.index(0), 0)
    tile = announced(0, next_tile)
    while tile < sizes[2] * sizes[3]:
        batch, head, _, number, m = locate_tile(tile, sizes, CAUSAL, TOGETHER)
        row0, steps = (2 * m + HALF) * ROWS, key_tiles(m, sizes, 2 * ROWS, KEYS, CAUSAL)
        slot = turn % 2
        q = q_room.index(2 * slot + HALF).reshape([ROWS, D])
        hopper.mbarrier.wait(k_ready.index(step % STAGES), step // STAGES % 2)
        k = k_room.index(step % STAGES).reshape([KEYS, D])
        s = hopper.warpgroup_mma(q, k.permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = hopper.warpgroup_mma_wait(0, deps=[s])
        hopper.mbarrier.arrive(k_empty.index(step % STAGES), count=1)
        # The last keys are the only ones that may be hidden: beyond the end, or from queries before them.
        keys = (steps - 1) * KEYS + columns
        seen = (keys < len_k)[None, :]
        if CAUSAL:
            seen &= keys[None, :] <= (row0 + rows + len_k - len_q)[:, None]
        s = gl.where(seen, s, float("-inf"))
        top = gl.max(s, 1) * scale
        p = gl.exp2(s * scale - top[:, None])
        total = gl.sum(p, 1)
        acc = gl.zeros([ROWS, D], gl.float32, of_output)
        weights = gl.convert_layout(p.to(kind), left)
        hopper.mbarrier.wait(k_ready.index((step + 1) % STAGES), (step + 1) // STAGES % 2, pred=steps > 1)
        for j in range(1, steps):
            following, stage = step + 1, step % STAGES
            k = k_room.index(following % STAGES).reshape([KEYS, D])
            s_to_come = hopper.warpgroup_mma(q, k.permute((1, 0)), nothing, use_acc=False, is_async=True)
            hopper.mbarrier.wait(v_ready.index(stage), step // STAGES % 2)
            v = v_room.index(stage).reshape([KEYS, D])
            acc_to_come = hopper.warpgroup_mma(weights, v, acc, is_async=True)
            s = hopper.warpgroup_mma_wait(1, deps=[s_to_come])
            hopper.mbarrier.arrive(k_empty.index(following % STAGES), count=1)
            new_top = gl.maximum(top, gl.max(s, 1) * scale)
            p = gl.exp2(s * scale - new_top[:, None])
            shrink = gl.exp2(top - new_top)
            total = total * shrink + gl.sum(p, 1)
            top = new_top
            new_weights = gl.convert_layout(p.to(kind), left)
            # Waiting for keys is a loop of its own, and ptxas does not move the exponentials behind it; without it they
            # would be computed after the next wait, while the matrix units stand still.
            hopper.mbarrier.wait(k_ready.index((step + 2) % STAGES), (step + 2) // STAGES % 2, pred=j + 1 < steps)
            acc, weights = hopper.warpgroup_mma_wait(0, deps=[acc_to_come, new_weights])
            hopper.mbarrier.arrive(v_empty.index(stage), count=1)
            acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, of_output))[:, None]
            step = following
        hopper.mbarrier.wait(v_ready.index(step % STAGES), step // STAGES % 2)
        v = v_room.index(step % STAGES).reshape([KEYS, D])
        acc = hopper.warpgroup_mma(weights, v, acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=[acc])
        hopper.mbarrier.arrive(v_empty.index(step % STAGES), count=1)
        step += 1
        acc = acc * (1.0 / gl.convert_layout(total, gl.SliceLayout(1, of_output)))[:, None]
        # The output leaves from where the queries were.
        q.store(acc.to(kind))
        hopper.fence_async_shared()
        store_tile(o_desc, [batch, head, row0, 0], q_room.index(2 * slot + HALF))
        inside = row0 + rows < len_q
        gl.store(lse + number.to(gl.int64) * len_q + row0 + rows, (top + gl.log2(total)) * _LN2, mask=inside)
        hopper.tma.store_wait(0)
        hopper.mbarrier.arrive(q_empty.index(slot), count=1)
        turn += 1
        hopper.mbarrier.wait(q_ready.index(turn % 2), turn // 2 % 2)
        tile = announced(turn % 2, next_tile)


@gluon.jit(do_not_specialize=["heads", "group", "tiles", "all_heads", "len_q", "len_k"])
def attention_hopper_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse,
    counter,
    heads,
    group,
    tiles,
    all_heads,
    len_q,
    len_k,
    scale,
    CAUSAL: gl.constexpr,
    TOGETHER: gl.constexpr,
    STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """All tiles of queries, by persistent programs. Descriptors are of (batch, heads, rows, D): half a tile of queries
    and of the output, a tile of keys and of values. ``lse`` is fp32, ``counter`` an int32 of 0."""
    q_room = gl.allocate_shared_memory(q_desc.dtype, several(4, q_desc.block_type.shape), q_desc.layout)
    k_room = gl.allocate_shared_memory(k_desc.dtype, several(STAGES, k_desc.block_type.shape), k_desc.layout)
    v_room = gl.allocate_shared_memory(v_desc.dtype, several(STAGES, v_desc.block_type.shape), v_desc.layout)
    next_tile = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    # A stage is ready when a fetch has arrived, and empty when both warpgroups have read it.
    k_bars, v_bars = (barriers(STAGES, 1), barriers(STAGES, 2)), (barriers(STAGES, 1), barriers(STAGES, 2))
    bars = (barriers(2, 1), barriers(2, 2), k_bars[0], k_bars[1], v_bars[0], v_bars[1])
    hopper.fence_async_shared()
    descriptors, rooms = ((q_desc,), k_desc, v_desc), ((q_room,), k_room, v_room)
    sizes = heads, group, tiles, all_heads, len_q, len_k
    gl.warp_specialize(
        [
            (attend, (o_desc, lse, rooms, bars, next_tile, sizes, scale, 0, CAUSAL, TOGETHER)),
            (attend, (o_desc, lse, rooms, bars, next_tile, sizes, scale, 1, CAUSAL, TOGETHER)),
            (fetch, (descriptors, rooms, bars, next_tile, counter, sizes, CAUSAL, TOGETHER)),
        ],
        [4, 1],
        REGISTERS,
    )
