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
def _fetch_for_all_asm(kernel, parameter, parts, sharers, CTAS, shape, row_bytes):
    """Assembly for (room, barrier, row, column) and, in a cluster, for what :func:`place_in_cluster` says: a program
    fetches its rows for all that have the same, at most 128 bytes of each at a time. Without a cluster it fetches all
    rows, for itself.

    A descriptor is no operand of Triton's inline assembly, so it is named as the kernel's parameter. The predicate of
    the fetch is the elected thread and nothing else: the assembler then keeps all of this in uniform registers. Mixed
    with a comparison, it moved descriptors to and fro between both kinds of registers, twice as many instructions.
    """
    each, wide = shape[0] // parts, min(row_bytes, 128)
    lines = [
        ".reg .pred mine;",
        ".reg .b32 to, bar, row, column;",
        ".reg .b64 desc;",
        f"mov.b64 desc, {kernel}_param_{parameter};",
        "cvta.param.u64 desc, desc;",
        "mov.b32 column, $3;",
    ]
    if CTAS > 1:
        lines += [
            ".reg .b16 all;",
            "add.u32 bar, $1, $4;",
            f"mad.lo.u32 to, $5, {each * wide}, $0;",
            "add.u32 to, to, $4;",
            f"mad.lo.u32 row, $5, {each}, $2;",
            "cvt.u16.u32 all, $6;",
        ]
        if parts < sharers:
            lines += [".reg .pred idle;", f"setp.ge.u32 idle, $5, {parts};", "@idle bra done;"]
    else:
        lines += ["mov.u32 to, $0;", "mov.u32 bar, $1;", "mov.b32 row, $2;"]
    lines += ["bar.warp.sync -1;", "elect.sync _|mine, -1;"]
    multicast, to_all = (".multicast::cluster", ", all") if sharers > 1 else ("", "")
    for panel in range(row_bytes // wide):
        if panel:
            lines += [f"add.u32 to, to, {shape[0] * wide};", f"add.u32 column, column, {shape[1] * wide // row_bytes};"]
        lines.append(
            f"@mine cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{multicast} "
            f"[to], [desc, {{column, row}}], [bar]{to_all};"
        )
    if parts < sharers:
        lines.append("done:")
    return "\n".join(["{", *lines, "}"])


@gluon.jit
def place_in_cluster(bar, DOWN: gl.constexpr, SHARERS: gl.constexpr, BESIDE: gl.constexpr):
    """What :func:`fetch_for_all` needs to know of this program's place in its cluster, of which ``DOWN`` programs are
    one below the other and SHARERS have the same tile: those below each other, or those BESIDE each other.

    They are numbered down the first column, then down the next. Returns what to add to an address of shared memory
    (``bar`` is some), as Triton gives it as that of the first program; the number among the sharers; and these as bits.
    """
    rank = rank_in_cluster()
    own = assembly(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, $1, $2; sub.u32 $0, there, $1; }",
        "=r,r,r",
        [bar, rank],
        gl.int32,
    )
    if BESIDE:
        number, first, all = rank // DOWN, rank % DOWN, bits_apart(SHARERS, DOWN)
    else:
        number, first, all = rank % DOWN, rank // DOWN * DOWN, bits_apart(SHARERS, 1)
    return own, number, gl.to_tensor(all) << first


@gluon.constexpr_function
def bits_apart(count, step):
    """A number with ``count`` bits, each ``step`` above the one before.

    >>> bin(bits_apart(3, 2))
    '0b10101'
    """
    return sum(1 << i * step for i in range(count))


@gluon.jit
def fetch_for_all(
    desc,
    at,
    arrived,
    room,
    place,
    CTAS: gl.constexpr,
    SHARERS: gl.constexpr,
    KERNEL: gl.constexpr = "",
    PARAMETER: gl.constexpr = 0,
    BY_ADDRESS: gl.constexpr = False,
):
    """Fetch a tile once for all SHARERS of a cluster, a part of its rows by each: one request to the L2 cache, whose
    answer all receive (multicast).

    ``desc`` is of a part (:func:`divided`, :func:`parts_fetched`), and PARAMETER the number that it has in the assembly
    of KERNEL, where a descriptor counts as five. BY_ADDRESS: ``room`` is of any shape and begins where the tile shall.
    ``place``: see :func:`place_in_cluster`.
    """
    if SHARERS > 1 or BY_ADDRESS:
        size: gl.constexpr = room.dtype.primitive_bitwidth // 8
        shape: gl.constexpr = desc.block_type.shape
        asm: gl.constexpr = _fetch_for_all_asm(
            KERNEL, PARAMETER, parts_fetched(SHARERS, shape[0]), SHARERS, CTAS, shape, shape[1] * size
        )
        if CTAS > 1:
            assembly(asm, "r,r,r,r,r,r,r", [room, arrived, at[0], at[1], place[0], place[1], place[2]])
        else:
            assembly(asm, "r,r,r,r", [room, arrived, at[0], at[1]])
    else:
        fetch_tile(desc, at, arrived, room)


@gluon.jit
def rank_in_cluster():
    """The number of this program in its cluster."""
    return assembly("mov.u32 $0, %cluster_ctarank;", "=r", (), gl.int32)


@gluon.constexpr_function
def _arrive_at_all_asm(CTAS, DOWN):
    """Assembly for (barrier, whether to arrive at all): thread i of a warpgroup arrives at program i's barrier, if that
    one fetches for this one: it is in the same column of the cluster, or in the same row.

    It orders no memory beyond the program, as what was read is read: ``.release.cluster`` took a microsecond (H100).
    """
    apart = (
        []
        if DOWN == CTAS
        else [
            ".reg .pred beside, below;",
            ".reg .b32 other;",
            "mov.u32 other, %cluster_ctarank;",
            "xor.b32 other, other, rank;",
            f"setp.lt.u32 below, other, {DOWN};",
            f"and.b32 other, other, {DOWN - 1};",
            "setp.eq.or.u32 beside, other, 0, below;",
            "and.pred does, does, beside;",
        ]
    )
    return "\n".join(
        [
            "{",
            ".reg .pred does;",
            ".reg .b32 rank, there;",
            "mov.u32 rank, %tid.x;",
            "and.b32 rank, rank, 127;",
            "setp.ne.b32 does, $1, 0;",
            f"setp.lt.and.u32 does, rank, {CTAS}, does;",
            *apart,
            "mapa.shared::cluster.u32 there, $0, rank;",
            "@does mbarrier.arrive.shared::cluster.b64 _, [there];",
            "}",
        ]
    )


@gluon.jit
def arrive_at_all(bar, pred, CTAS: gl.constexpr, DOWN: gl.constexpr):
    """A warpgroup's arrival at this barrier of every program of its cluster that fetches for it."""
    if CTAS > 1:
        # The assembly waits for nobody: each warp of the warpgroup must have got here.
        barrier()
        assembly(_arrive_at_all_asm(CTAS, DOWN), "r,r", [bar, gl.to_tensor(pred).to(gl.int32)])
    else:
        hopper.mbarrier.arrive(bar, count=1, pred=pred)
