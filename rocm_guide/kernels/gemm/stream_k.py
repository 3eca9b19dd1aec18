# SPDX-License-Identifier: MIT
"""Stream-K: a GEMM that shares out loop steps, not tiles, so that every compute unit finishes at the same time.

A GEMM of 140 tiles on 132 units takes as long as one of 264: the last 8 tiles keep 8 units busy, and 124 wait. Stream-K
lays the K loops of all tiles end to end and cuts that line into as many equal stretches as there are units. A stretch
may begin or end inside a tile; then several workgroups hold parts of the tile's sum, and one of them adds them up.

This is the "two-tile" hybrid: whole tiles are dealt out as usual, except for the last full round and the ragged rest.
A worker walks its stretch *backwards*. So what it owes to others (the beginning of a tile that somebody with a higher
number finishes) is done first, and what it waits for comes last: nobody waits long, and nobody ever waits for a
workgroup with a higher number, which makes a deadlock impossible even where workgroups run one after the other.

Source: M. Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the
GPU", https://arxiv.org/abs/2301.03598.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import KernelError, architecture, check_dtype, check_same_device, choose, unit_count
from rocm_guide.kernels.gemm.configs import RAGGED, GemmTile, is_aligned, promotion_interval, units_of
from rocm_guide.kernels.gemm.tiled import check_operands, operand_maker
from rocm_guide.kernels.gemm.tiles import hint_multiple, tile_dot, tile_order, to_int64, wait_for_stores
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["StreamWorkspace", "gemm_stream_k", "stream_plan"]

#: One tile by architecture and bits of the element type.
CONFIGS: dict[str, dict[int, GemmTile]] = {
    "gfx942": {32: GemmTile(128, 128, 32, 8), 16: GemmTile(128, 128, 64, 8), 8: GemmTile(128, 128, 128, 8)},
    "sm_90": {
        32: GemmTile(64, 64, 32, 4, 3),
        16: GemmTile(128, 256, 64, 8, 3, 8, True),
        8: GemmTile(128, 256, 128, 8, 3, 8, True),
    },
    "interpreter": {bits: GemmTile(32, 32, 32, 4) for bits in (32, 16, 8)},
}

#: A worker gets at least this many steps of K: below, adding partial sums costs more than sharing saves.
LEAST_STEPS = 4


@dataclass(frozen=True)
class StreamPlan:
    """How the work is shared: the grid model of stream-K.

    ``workers`` workgroups; the first ``shared_tiles`` tiles of ``steps`` steps each are cut into equal stretches, the
    other ``whole_tiles`` are dealt out whole.
    """

    workers: int
    steps: int
    shared_tiles: int
    whole_tiles: int

    def stretch(self, worker: int) -> tuple[int, int]:
        """The steps (from, to) of the shared tiles that ``worker`` does, counted over all of them."""
        total = self.shared_tiles * self.steps
        return total * worker // self.workers, total * (worker + 1) // self.workers

    def load(self, worker: int) -> int:
        """All steps of ``worker``, those of its whole tiles included."""
        first, last = self.stretch(worker)
        return last - first + len(range(worker, self.whole_tiles, self.workers)) * self.steps

    @property
    def busy(self) -> float:
        """Average load over the largest: 1.0 when all workers finish together, additions not counted."""
        loads = [self.load(w) for w in range(self.workers)]
        return sum(loads) / (len(loads) * max(loads)) if max(loads, default=0) else 1.0


def stream_plan(tiles: int, steps: int, units: int) -> StreamPlan:
    """Share ``tiles`` tiles of ``steps`` steps among ``units`` compute units.

    Where the tiles come out even, nothing is shared. Otherwise one full round and the rest are.

    Raises:
        KernelError: no units, or negative sizes.

    >>> stream_plan(140, 64, 132)
    StreamPlan(workers=132, steps=64, shared_tiles=140, whole_tiles=0)
    >>> round(stream_plan(140, 64, 132).busy, 3), round(140 / 264, 3)
    (0.998, 0.53)
    >>> stream_plan(3 * 132, 64, 132).shared_tiles, stream_plan(3 * 132 + 1, 64, 132).shared_tiles
    (0, 133)
    """
    if units < 1 or tiles < 0 or steps < 0:
        raise KernelError(f"tiles={tiles}, steps={steps}, units={units}: give at least one unit and no negative size")
    ragged = tiles % units
    if ragged == 0:
        return StreamPlan(min(units, max(tiles, 1)), steps, 0, tiles)
    shared = ragged + units if tiles > units else ragged
    workers = units if tiles > units else max(ragged, min(units, shared * steps // LEAST_STEPS))
    return StreamPlan(workers, steps, shared, tiles - shared)


@dataclass(frozen=True)
class StreamWorkspace:
    """A slot for the partial tile of each worker, and its flag, which every launch leaves at zero. One per stream."""

    partials: torch.Tensor
    flags: torch.Tensor

    @classmethod
    def on(cls, device: Any, workers: int, size: int = 128 * 256) -> StreamWorkspace:
        """A workspace on ``device`` for ``workers`` workers with tiles of ``size`` elements."""
        import torch

        return cls(torch.empty(workers * size, device=device), torch.zeros(workers, dtype=torch.int32, device=device))


@triton.jit
def gemm_stream_k_kernel(
    a, b, c_ptr, part_ptr, flag_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    shared_tiles,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, XCDS: tl.constexpr,
    A_DESC: tl.constexpr, B_DESC: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, EXACT: tl.constexpr,
    AMD: tl.constexpr, UNITS: tl.constexpr,
) -> None:  # fmt: skip
    """A worker: its stretch of the shared tiles from the end to the beginning, then its whole tiles."""
    worker, workers = tl.program_id(0), tl.num_programs(0)
    N = hint_multiple(N, UNITS[1])
    tiles_m, tiles_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    begin = (to_int64(shared_tiles * steps) * worker // workers).to(tl.int32)
    end = (to_int64(shared_tiles * steps) * (worker + 1) // workers).to(tl.int32)
    pieces = tl.where(end > begin, tl.cdiv(end, steps) - begin // steps, 0)
    whole = tl.maximum(tl.cdiv(tiles_m * tiles_n - shared_tiles - worker, workers), 0)
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    inner = rm[:, None] * BN + rn[None, :]
    for i in range(pieces + whole):
        mine = i < pieces
        tile = tl.where(mine, begin // steps + pieces - 1 - i, shared_tiles + worker + (i - pieces) * workers)
        k_first = tl.where(mine, tl.maximum(begin - tile * steps, 0), 0)
        k_last = tl.where(mine, tl.minimum(end - tile * steps, steps), steps)
        tile_m, tile_n = tile_order(tile, tiles_m, tiles_n, GROUP, XCDS)
        row, col = tile_m * BM, tile_n * BN
        acc = tile_dot(
            a, b, row, col, k_first * BK, tl.minimum(k_last * BK, K), M, N,
            stride_am, stride_ak, stride_bk, stride_bn, BM, BN, BK, A_DESC, B_DESC, EVEN_K, False, PRECISION, UNITS,
            EXACT,
        )  # fmt: skip
        if k_last < steps:
            # The tile's end belongs to a worker with a higher number: leave the sum for it and raise the flag.
            tl.store(part_ptr + worker.to(tl.int64) * (BM * BN) + inner, acc)
            wait_for_stores(AMD)
            tl.atomic_xchg(flag_ptr + worker, 1, sem="release", scope="gpu")
        else:
            missing, other = k_first, worker - 1
            while missing > 0:
                # Waiting and lowering the flag for the next launch are one operation.
                while tl.atomic_cas(flag_ptr + other, 1, 0, sem="acquire", scope="gpu") != 1:
                    pass
                acc += tl.load(part_ptr + other.to(tl.int64) * (BM * BN) + inner)
                missing = (to_int64(shared_tiles * steps) * other // workers).to(tl.int32) - tile * steps
                other -= 1
            inside = (row + rm < M)[:, None] & (col + rn < N)[None, :]
            target = c_ptr + row.to(tl.int64) * N + col + rm[:, None] * N + rn[None, :]
            tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=inside)


def gemm_stream_k(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    tf32: bool = False,
    workspace: StreamWorkspace | None = None,
    tile: GemmTile | None = None,
    workers: int | None = None,
) -> torch.Tensor:
    """``a @ b``, the work shared out by :func:`stream_plan`.

    Args:
        a, b: (M, K) and (K, N) as for :func:`rocm_guide.kernels.gemm.tiled.gemm`, without int8.
        out_dtype: float16, bfloat16 or float32; by default a's type, bfloat16 for fp8.
        tf32: see there.
        workspace: a :class:`StreamWorkspace` to use again; without one, each call makes its own.
        tile: a launch configuration of your own.
        workers: workgroups; by default one for each compute unit.

    Returns:
        C, (M, N), contiguous. The order of additions is fixed, so the result repeats bit for bit.

    Raises:
        KernelError: shapes, types or devices that do not fit, or a workspace too small.
    """
    if workspace is None and (product := operator("gemm_stream_k")) is not None:
        return product(a, b, out_dtype, tf32)
    own = (None, None) if workspace is None else (workspace.partials, workspace.flags)
    return planned(_plan, (a, b, *own), out_dtype, tf32, tile, workers)(a, b, *own)


def _plan(
    a: torch.Tensor,
    b: torch.Tensor,
    partials: torch.Tensor | None,
    flags: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    tf32: bool,
    tile: GemmTile | None,
    workers: int | None,
) -> Callable[..., torch.Tensor]:
    import torch

    arch = architecture(a)
    if a.dtype == torch.int8:
        raise KernelError("a is int8: stream-K adds floating-point sums; use gemm() or gemm_split_k()")
    check_operands(a, b, None, arch)
    (m, k), n, device = a.shape, b.shape[1], a.device
    out_dtype = out_dtype or (a.dtype if a.element_size() > 1 else torch.bfloat16)
    allowed = torch.float16, torch.bfloat16, torch.float32
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=device), allowed)
    if m == 0 or n == 0 or k == 0:
        return lambda *_: torch.zeros(m, n, dtype=out_dtype, device=device)
    if tile is None:
        bits = 8 * a.element_size()
        tile = choose(CONFIGS, arch)[bits] if is_aligned(a, b) or arch not in RAGGED else RAGGED[arch][bits]
    tiles, area = triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn), tile.bm * tile.bn
    plan = stream_plan(tiles, triton.cdiv(k, tile.bk), workers or unit_count(a))
    check_same_device(a=a, workspace=partials, flags=flags)
    small = ((partials, plan.workers * area), (flags, plan.workers))
    if any(room is not None and room.numel() < least for room, least in small):
        raise KernelError(f"the workspace is too small: make it StreamWorkspace.on(device, {plan.workers}, {area})")
    (as_a, a_kind), (as_b, b_kind) = (
        operand_maker(x, block, tile.descriptors) for x, block in ((a, (tile.bm, tile.bk)), (b, (tile.bk, tile.bn)))
    )
    constants = {
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group, "XCDS": 8 if arch == "gfx942" else 1,
        "A_DESC": a_kind, "B_DESC": b_kind, "EVEN_K": k % tile.bk == 0, "PRECISION": "tf32" if tf32 else "ieee",
        "EXACT": promotion_interval(a, arch, tile), "AMD": arch.startswith("gfx"),
        "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }  # fmt: skip
    fixed = m, n, k, *a.stride(), *b.stride(), plan.shared_tiles
    launch = Launch(gemm_stream_k_kernel, (plan.workers,), fixed, constants, tile.options(arch))

    new_c = maker(a, (m, n), out_dtype)

    def run(a: torch.Tensor, b: torch.Tensor, partials: Any, flags: Any) -> torch.Tensor:
        c = new_c()
        if partials is None:
            fresh = StreamWorkspace.on(device, plan.workers, area)
            partials, flags = fresh.partials, fresh.flags
        rest = c, partials, flags
        launch.with_arguments((a, b, *rest), (as_a(a), as_b(b), *rest, *launch.fixed, *launch.last))
        return c

    return run


def reference_stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same in float64: it is a matrix product like any other."""
    return a.double() @ b.double()
