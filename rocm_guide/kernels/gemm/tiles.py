# SPDX-License-Identifier: MIT
"""What the GEMM kernels share: the order of the tiles, the loop over K of one tile, and the epilogue.

Each is a ``@triton.jit`` function that the kernels call and the compiler inlines.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["tile_dot"]


@triton.jit
def to_int64(x):
    """``x`` in 64 bits. (``x.to`` would not do: an argument that happens to be 1 is a constant.)"""
    return tl.full((), x, tl.int64)


@triton.jit
def hint_multiple(x, UNIT: tl.constexpr):
    """``x``, which is a multiple of UNIT, in a form in which the compiler sees it.

    Triton knows by itself only numbers that are multiples of 16. With a row of 1,000 elements, or a head of 72, it
    would load 16 bits at a time, although 8 elements, 128 bits, lie in a row.
    """
    if UNIT > 1:
        return x // UNIT * UNIT
    return x


@triton.jit
def tile_order(pid, tiles_m, tiles_n, GROUP: tl.constexpr, XCDS: tl.constexpr):
    """Which tile (row, column, counted in tiles) workgroup ``pid`` computes.

    Two ideas. Neighbours in time should share data, so tiles are walked ``GROUP`` rows at a time, column by column.
    And neighbours should share a *cache*: MI300X deals workgroups out to its 8 XCDs in turn, each with an L2 of its
    own, so with ``XCDS = 8`` the numbers are re-dealt such that each XCD works on one stretch of that walk.
    """
    if XCDS > 1:
        total = tiles_m * tiles_n
        each, extra = total // XCDS, total % XCDS
        xcd = pid % XCDS
        # The first `extra` XCDs get one workgroup more than the others.
        pid = xcd * each + tl.minimum(xcd, extra) + pid // XCDS
    per_group = GROUP * tiles_n
    first = pid // per_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    return first + (pid % per_group) % rows, (pid % per_group) // rows


@triton.jit
def tile_dot(
    a,
    b,
    row,
    col,
    first,
    last,
    M,
    N,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    A_DESC: tl.constexpr,
    B_DESC: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
    PRECISION: tl.constexpr,
    UNITS: tl.constexpr,
    EXACT: tl.constexpr = 0,
):
    """The tile of A @ B at (row, col), (BM, BN) in fp32 or int32, summed over k from ``first`` to ``last``.

    ``a`` and ``b`` are pointers (``A_DESC = 0``: any strides), or tensor descriptors of the matrix (1) or of its
    transpose (2), which Hopper's TMA engine reads. ``EVEN_K`` promises that BK divides the range. ``UNITS``: what M, N,
    ``last`` and the four strides are multiples of, where Triton does not see it by itself. ``EXACT`` is for fp8 on
    Hopper, whose matrix unit adds fp8 products with about 14 bits: after that many products the sum goes on in fp32.
    """
    M, N, last = hint_multiple(M, UNITS[0]), hint_multiple(N, UNITS[1]), hint_multiple(last, UNITS[2])
    stride_am, stride_ak = hint_multiple(stride_am, UNITS[3]), hint_multiple(stride_ak, UNITS[4])
    stride_bk, stride_bn = hint_multiple(stride_bk, UNITS[5]), hint_multiple(stride_bn, UNITS[6])
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    in_m, in_n = row + rm < M, col + rn < N
    # One 64-bit address per tile; the offsets inside it are loop invariants that fit into 32 bits.
    start = to_int64(first)
    if A_DESC == 0:
        a += row.to(tl.int64) * stride_am + start * stride_ak
        at_a = rm[:, None] * stride_am + rk[None, :] * stride_ak
    if B_DESC == 0:
        b += col.to(tl.int64) * stride_bn + start * stride_bk
        at_b = rk[:, None] * stride_bk + rn[None, :] * stride_bn
    kind: tl.constexpr = tl.int32 if INT else tl.float32
    acc = tl.zeros((BM, BN), dtype=kind)
    for k in range(first, last, BK):
        in_k = k + rk < last
        if A_DESC == 0:
            x = tl.load(a + at_a, mask=in_m[:, None] if EVEN_K else in_m[:, None] & in_k[None, :], other=0.0)
            a += BK * stride_ak
        elif A_DESC == 1:
            x = a.load([row, k])
        else:
            x = a.load([k, row]).T
        if B_DESC == 0:
            y = tl.load(b + at_b, mask=in_n[None, :] if EVEN_K else in_k[:, None] & in_n[None, :], other=0.0)
            b += BK * stride_bk
        elif B_DESC == 1:
            y = b.load([k, col])
        else:
            y = b.load([col, k]).T
        acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=EXACT, out_dtype=kind)
    return acc


@triton.jit
def activate(x, ACT: tl.constexpr):
    """An activation in fp32: ``none``, ``relu``, ``silu`` (x * sigmoid(x)) or ``gelu`` (exact, with erf)."""
    if ACT == "relu":
        # Not tl.maximum, which would turn NaN into 0: a wrong number must stay visible.
        x = tl.where(x < 0, 0.0, x)
    elif ACT == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACT == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return x


@triton.jit
def wait_for_stores(AMD: tl.constexpr):
    """All stores of this workgroup have reached the cache that other workgroups see; then a barrier.

    A flag may be raised after it. ``tl.debug_barrier`` alone is not enough on AMD GPUs: the machine code has a bare
    ``s_barrier``, and the release before the flag waits for the stores of the one wave that raises it, not for those
    of its neighbours, which may still be on their way. So each wave waits for its own first.
    """
    if AMD:
        lanes = tl.zeros((64,), dtype=tl.int32)
        tl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\n\tv_mov_b32 $0, $1", "=v,v", [lanes], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()
