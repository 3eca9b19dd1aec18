# SPDX-License-Identifier: MIT
"""What the kernels written in Gluon share: names that differ between Triton's releases, and words that it lacks.

Gluon is Triton's language for what its compiler otherwise decides: layouts, shared memory, which warps do what. The
kernels for NVIDIA's Hopper use it (the folders ``hopper`` of rocm_guide/kernels/gemm and rocm_guide/kernels/attention);
no kernel for AMD's GPUs does. Source: https://triton-lang.org/main/gluon/index.html.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

__all__ = []

#: Names of Triton 3.9 and of 3.6: a tile from or to global memory by TMA, and a barrier of the warps of a partition.
fetch_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global
barrier = getattr(gl, "barrier", None) or gl.thread_barrier
#: As in :mod:`rocm_guide.kernels.hopper`, for kernels that are launched with ``launch_pdl``.
wait_for_kernel_before, let_next_kernel_start = gdc_wait, gdc_launch_dependents
#: Names that Triton 3.9 has and 3.6 has not: a barrier of a cluster of programs, and assembly that is given addresses
#: of shared memory. By these a program fetches for all of its cluster (a multicast) and tells all that it has read.
cluster_barrier: Any = getattr(getattr(hopper, "cluster", None), "barrier", None)
assembly: Any = getattr(gl, "inline_asm", None)
CLUSTERS = cluster_barrier is not None and assembly is not None


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
def divided(CTAS, ALONG=0, AMONG=None):
    """For layouts: how a tile is divided among the programs of a cluster: its rows, its columns (ALONG = 1), or not at
    all, so that each program has the whole (ALONG = None). AMONG: into fewer parts than there are programs.

    Clusters need Triton 3.9: its layouts say so by ``cga_layout``. Without one nothing is said, as 3.6 has it.
    """
    bits, most = range(CTAS.bit_length() - 1), CTAS if AMONG is None else AMONG
    parts = [[1 << bit if dim == ALONG and 1 << bit < most else 0 for dim in (0, 1)] for bit in bits]
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
def _barrier_layout(CTAS):
    parts = [[1 << bit] for bit in range(CTAS.bit_length() - 1)]
    return hopper.mbarrier.MBarrierLayout(*([parts] if parts else []))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr, CTAS: gl.constexpr = 1):
    """COUNT barriers in shared memory, of each program of a cluster; ARRIVALS complete them, or bring in a fetch."""
    found = gl.allocate_shared_memory(gl.int64, [COUNT, CTAS], _barrier_layout(CTAS))
    for i in gl.static_range(COUNT):
        hopper.mbarrier.init(found.index(i), count=ARRIVALS)
    return found


@gluon.jit
def meet(CTAS: gl.constexpr):
    """The programs of a cluster wait for each other, after which all know of each other's barriers."""
    if CTAS > 1:
        assembly("fence.mbarrier_init.release.cluster;")
        # Nothing but barriers has been written yet: no other memory needs an order, which would take a microsecond.
        cluster_barrier(relaxed=True)


@gluon.constexpr_function
def parts_fetched(CTAS, rows):
    """By how many programs of a cluster a tile of ``rows`` rows is fetched: TMA's pattern of banks takes eight rows."""
    return min(CTAS, rows // 8)


@gluon.constexpr_function
def _fetch_for_all_asm(kernel, parameter, CTAS, DOWN, BESIDE, shape, row_bytes):
    """Assembly for (room, barrier, row, column): each program fetches its rows for all that have the same, at most 128
    bytes of each at a time. Without a cluster it fetches all rows, for itself.

    A descriptor is no operand of Triton's inline assembly, so it is named as the kernel's parameter. Triton gives
    addresses of shared memory as those of the first program; ``mapa`` makes them this one's.
    """
    sharers = CTAS // DOWN if BESIDE else DOWN
    parts = parts_fetched(sharers, shape[0])
    each, wide = shape[0] // parts, min(row_bytes, 128)
    lines = [
        ".reg .pred mine;",
        ".reg .b32 rank, other, mask, to, bar, row, column;",
        ".reg .b64 desc;",
        ".reg .b16 all;",
        "bar.warp.sync -1;",
        "elect.sync _|mine, -1;",
        f"mov.b64 desc, {kernel}_param_{parameter};",
        "cvta.param.u64 desc, desc;",
        "mov.b32 column, $3;",
    ]
    if CTAS > 1:
        # Programs are numbered down the first column of a cluster, then down the next. ``rank``: among the sharers.
        lines += [
            "mov.u32 other, %cluster_ctarank;",
            "mapa.shared::cluster.u32 to, $0, other;",
            "mapa.shared::cluster.u32 bar, $1, other;",
            f"div.u32 rank, other, {DOWN};" if BESIDE else f"rem.u32 rank, other, {DOWN};",
            f"rem.u32 other, other, {DOWN};" if BESIDE else "sub.u32 other, other, rank;",
            f"mov.u32 mask, {sum(1 << i * (DOWN if BESIDE else 1) for i in range(sharers))};",
            "shl.b32 mask, mask, other;",
            "cvt.u16.u32 all, mask;",
            f"setp.lt.and.u32 mine, rank, {parts}, mine;",
            f"mad.lo.u32 to, rank, {each * wide}, to;",
            f"mad.lo.u32 row, rank, {each}, $2;",
        ]
    else:
        lines += ["mov.u32 to, $0;", "mov.u32 bar, $1;", "mov.b32 row, $2;"]
    multicast, to_all = (".multicast::cluster", ", all") if CTAS > 1 else ("", "")
    for panel in range(row_bytes // wide):
        if panel:
            lines += [f"add.u32 to, to, {shape[0] * wide};", f"add.u32 column, column, {shape[1] * wide // row_bytes};"]
        lines.append(
            f"@mine cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{multicast} "
            f"[to], [desc, {{column, row}}], [bar]{to_all};"
        )
    return "\n".join(["{", *lines, "}"])


@gluon.jit
def fetch_for_all(
    desc,
    at,
    arrived,
    room,
    CTAS: gl.constexpr,
    KERNEL: gl.constexpr = "",
    PARAMETER: gl.constexpr = 0,
    BY_ADDRESS: gl.constexpr = False,
    DOWN: gl.constexpr = 0,
    BESIDE: gl.constexpr = False,
):
    """Fetch a tile once for all programs of a cluster, a part of its rows by each: one request to the L2 cache, whose
    answer all receive (multicast).

    ``desc`` is of a part (:func:`divided`, :func:`parts_fetched`), and PARAMETER the number that it has in the assembly
    of KERNEL, where a descriptor counts as five. BY_ADDRESS: ``room`` is of any shape and begins where the tile shall.
    DOWN: of a cluster's programs so many are one below the other, and these share the tile; or those BESIDE each other
    do. By default, all are below each other.
    """
    if CTAS > 1 or BY_ADDRESS:
        size: gl.constexpr = room.dtype.primitive_bitwidth // 8
        shape: gl.constexpr = desc.block_type.shape
        asm: gl.constexpr = _fetch_for_all_asm(
            KERNEL, PARAMETER, CTAS, DOWN if DOWN else CTAS, BESIDE, shape, shape[1] * size
        )
        assembly(asm, "r,r,r,r", [room, arrived, at[0], at[1]])
    else:
        fetch_tile(desc, at, arrived, room)


@gluon.jit
def rank_in_cluster():
    """The number of this program in its cluster."""
    return assembly("mov.u32 $0, %cluster_ctarank;", "=r", (), gl.int32)


@gluon.constexpr_function
def _arrive_at_all_asm(CTAS):
    """Assembly for (barrier, whether to arrive at all): thread i of a warpgroup arrives at program i's barrier.

    It orders no memory beyond the program, as what was read is read: ``.release.cluster`` took a microsecond (H100).
    """
    return f"""{{
.reg .pred does;
.reg .b32 rank, there;
mov.u32 rank, %tid.x;
and.b32 rank, rank, 127;
setp.ne.b32 does, $1, 0;
setp.lt.and.u32 does, rank, {CTAS}, does;
mapa.shared::cluster.u32 there, $0, rank;
@does mbarrier.arrive.shared::cluster.b64 _, [there];
}}"""


@gluon.jit
def arrive_at_all(bar, pred, CTAS: gl.constexpr):
    """A warpgroup's arrival at this barrier of every program of its cluster."""
    if CTAS > 1:
        # The assembly waits for nobody: each warp of the warpgroup must have got here.
        barrier()
        assembly(_arrive_at_all_asm(CTAS), "r,r", [bar, gl.to_tensor(pred).to(gl.int32)])
    else:
        hopper.mbarrier.arrive(bar, count=1, pred=pred)
