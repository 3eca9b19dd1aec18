# SPDX-License-Identifier: MIT
"""What the kernels written in Gluon share: names that differ between Triton's releases, and words that it lacks.

Gluon is Triton's language for what its compiler otherwise decides: layouts, shared memory, which warps do what. The
kernels for NVIDIA's Hopper use it (the folders ``hopper`` of rocm_guide/kernels/gemm and rocm_guide/kernels/attention);
no kernel for AMD's GPUs does. Source: https://triton-lang.org/main/gluon/index.html.
"""

from __future__ import annotations

import inspect

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

__all__ = []

#: Names of Triton 3.9 and of 3.6: a tile from or to global memory by TMA, and a barrier of the warps of a partition.
fetch_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
#: Whether one program can fetch a tile for all of its cluster, by a multicast: Triton 3.9 has it, 3.6 has not.
CLUSTERS = "multicast" in inspect.signature(fetch_tile).parameters and hasattr(
    hopper.mbarrier.MBarrierLayout, "multicta"
)


@gluon.constexpr_function
def several(count, shape):
    """The shape of ``count`` tiles."""
    return [count, *shape]


@gluon.jit
def to_int32(x):
    """``x`` as a number of the kernel, not of the compiler: what a loop carries must be one."""
    return gl.to_tensor(x)


@gluon.jit
def to_int64(x):
    """``x`` in 64 bits."""
    return gl.to_tensor(x).to(gl.int64)


@gluon.constexpr_function
def divided(CTAS, ALONG=0):
    """For layouts: how a tile is divided among the programs of a cluster: its rows, its columns (ALONG = 1), or not at
    all, so that each program has the whole (ALONG = None).

    Clusters need Triton 3.9: its layouts say so by ``cga_layout``. Without one nothing is said, as 3.6 has it.
    """
    parts = [[(dim == ALONG) << bit for dim in (0, 1)] for bit in range(CTAS.bit_length() - 1)]
    return {"cga_layout": parts} if CTAS > 1 else {}


@gluon.constexpr_function
def sums_layout(columns, depth, CTAS):
    """How a warpgroup that multiplies holds its sums, with ``columns`` of B and ``depth`` of K for one instruction."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, depth], **divided(CTAS))


@gluon.constexpr_function
def shared_layout(shape, kind, CTAS, ALONG=0):
    """How TMA lays a tile out in shared memory."""
    return gl.NVMMASharedLayout.get_default_for(list(shape), kind, **divided(CTAS, ALONG))


@gluon.constexpr_function
def row_by_row(CTAS, ALONG=0):
    """A layout in which each warp has a row of 32 columns."""
    return gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0], **divided(CTAS, ALONG))


@gluon.constexpr_function
def _barrier_layout(CTAS, OF_ALL):
    parts = [[0 if OF_ALL else 1 << bit] for bit in range(CTAS.bit_length() - 1)]
    return hopper.mbarrier.MBarrierLayout(*([parts] if parts else []))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr, CTAS: gl.constexpr = 1, OF_ALL: gl.constexpr = False):
    """COUNT barriers in shared memory, each of which ARRIVALS partitions (or one fetch) complete.

    Each program of a cluster has its own, or, with OF_ALL, the first one has them and the partitions of all arrive.
    """
    EACH: gl.constexpr = 1 if OF_ALL else CTAS
    found = gl.allocate_shared_memory(gl.int64, [COUNT, EACH], _barrier_layout(CTAS, OF_ALL))
    for i in gl.static_range(COUNT):
        hopper.mbarrier.init(found.index(i), count=ARRIVALS)
    return found


@gluon.jit
def fetch_for_all(desc, at, arrived, room, CTAS: gl.constexpr):
    """Fetch a tile once for all programs of a cluster: one request to the L2 cache, which all receive (multicast)."""
    if CTAS > 1:
        fetch_tile(desc, at, arrived, room, multicast=True)
    else:
        fetch_tile(desc, at, arrived, room)
