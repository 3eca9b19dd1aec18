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
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["StreamWorkspace", "gemm_stream_k", "reference_stream_k", "stream_plan"]

#: A worker gets at least this many steps of K: below, adding partial sums costs more than sharing saves.
LEAST_STEPS = 4


def stream_plan(tiles: int, steps: int, units: int) -> tuple[int, int]:
    """Return how many workers share ``tiles`` tiles of ``steps`` steps, and how many of the tiles are cut.

    The first tiles are cut into equal stretches, one for each worker; the others are dealt out whole. Where the tiles
    come out even on ``units`` compute units, nothing is cut; otherwise one full round and the rest are.

    >>> stream_plan(140, 64, 132), stream_plan(3 * 132, 64, 132), stream_plan(3 * 132 + 1, 64, 132)
    ((132, 140), (132, 0), (132, 133))
    """
    ragged = tiles % units
    if ragged == 0:
        return min(units, max(tiles, 1)), 0
    shared = ragged + units if tiles > units else ragged
    return units if tiles > units else max(ragged, min(units, shared * steps // LEAST_STEPS)), shared


class StreamWorkspace(NamedTuple):
    """A slot for the partial tile of each worker, and its flag, which every launch leaves at zero. One per stream."""

    partials: torch.Tensor
    flags: torch.Tensor

    @classmethod
    def on(cls, device: Any, workers: int, size: int = 128 * 256) -> StreamWorkspace:
        """Return a workspace on ``device`` for ``workers`` workers with tiles of ``size`` elements."""
        flags = torch.zeros(workers, dtype=torch.int32, device=device)
        return cls(torch.empty(workers * size, dtype=torch.float32, device=device), flags)


@triton.jit
def to_int64(x):
    """Return ``x`` in 64 bits. (``x.to`` would not do: an argument that happens to be 1 is a constant.)"""
    return tl.full((), x, tl.int64)


@triton.jit
def hint_multiple(x, UNIT: tl.constexpr):
    """Return ``x``, which is a multiple of UNIT, in a form in which the compiler sees it.

    Triton knows by itself only numbers that are multiples of 16. With a row of 1,000 elements, or a head of 72, it
    would load 16 bits at a time, although 8 elements, 128 bits, lie in a row.
    """
    if UNIT > 1:
        return x // UNIT * UNIT
    return x


@triton.jit
def tile_order(pid, tiles_m, tiles_n, GROUP: tl.constexpr, XCDS: tl.constexpr):
    """Return which tile (row, column, counted in tiles) workgroup ``pid`` computes.

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
def tile_sum(
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
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
    UNITS: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Return the tile of A @ B at (row, col), (BM, BN) in fp32 or int32, summed over k from ``first`` to ``last``.

    ``EVEN_K`` promises that BK divides the range. ``UNITS``: what M, N, ``last`` and the four strides are multiples of,
    where Triton does not see it by itself. ``EXACT`` is for fp8 on Hopper, whose matrix unit adds fp8 products with
    about 14 bits: after that many products the sum goes on in fp32.
    """
    M, N, last = hint_multiple(M, UNITS[0]), hint_multiple(N, UNITS[1]), hint_multiple(last, UNITS[2])
    stride_am, stride_ak = hint_multiple(stride_am, UNITS[3]), hint_multiple(stride_ak, UNITS[4])
    stride_bk, stride_bn = hint_multiple(stride_bk, UNITS[5]), hint_multiple(stride_bn, UNITS[6])
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    in_m, in_n = row + rm < M, col + rn < N
    # One 64-bit address per tile; the offsets inside it are loop invariants that fit into 32 bits.
    start = to_int64(first)
    a += row.to(tl.int64) * stride_am + start * stride_ak
    b += col.to(tl.int64) * stride_bn + start * stride_bk
    at_a = rm[:, None] * stride_am + rk[None, :] * stride_ak
    at_b = rk[:, None] * stride_bk + rn[None, :] * stride_bn
    kind: tl.constexpr = tl.int32 if INT else tl.float32
    acc = tl.zeros((BM, BN), dtype=kind)
    for k in range(first, last, BK):
        in_k = k + rk < last
        x = tl.load(a + at_a, mask=in_m[:, None] if EVEN_K else in_m[:, None] & in_k[None, :], other=0.0)
        a += BK * stride_ak
        y = tl.load(b + at_b, mask=in_n[None, :] if EVEN_K else in_k[:, None] & in_n[None, :], other=0.0)
        b += BK * stride_bk
        acc = tl.dot(x, y, acc, input_precision="ieee", max_num_imprecise_acc=EXACT, out_dtype=kind)
    return acc


@triton.jit
def wait_for_stores(AMD: tl.constexpr):
    """Wait until all stores of this workgroup have reached the cache that other workgroups see; then a barrier.

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


@triton.jit
def gemm_stream_k_kernel(
    a,
    b,
    c_ptr,
    part_ptr,
    flag_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    shared_tiles,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    XCDS: tl.constexpr,
    EVEN_K: tl.constexpr,
    EXACT: tl.constexpr,
    AMD: tl.constexpr,
    UNITS: tl.constexpr,
) -> None:
    """Do the work of one worker: its stretch of the shared tiles from the end to the beginning, then whole tiles."""
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
        acc = tile_sum(
            a,
            b,
            row,
            col,
            k_first * BK,
            tl.minimum(k_last * BK, K),
            M,
            N,
            stride_am,
            stride_ak,
            stride_bk,
            stride_bn,
            BM,
            BN,
            BK,
            EVEN_K,
            False,
            UNITS,
            EXACT,
        )
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


class GemmTile(NamedTuple):
    """How one GEMM is launched."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int = 2
    group: int = 8  #: rows of tiles that are walked together

    def options(self, arch: str) -> dict[str, int]:
        """Return the compile options of a launch on ``arch``."""
        # AMD's 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        own = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}
        return {"num_warps": self.warps, "num_stages": self.stages, **own}


#: One tile by architecture and bits of the element type; other GPUs take gfx942's.
CONFIGS = {
    "gfx942": {32: GemmTile(128, 128, 32, 8), 16: GemmTile(128, 128, 64, 8), 8: GemmTile(128, 128, 128, 8)},
    "sm_90": {32: GemmTile(64, 64, 32, 4, 3), 16: GemmTile(128, 256, 64, 8, 3),
              8: GemmTile(128, 256, 128, 8, 3)},
    "interpreter": {bits: GemmTile(32, 32, 32, 4) for bits in (32, 16, 8)},
}  # fmt: skip
#: Operands without alignment are loaded element by element, and each mask takes scalar registers: a smaller tile.
RAGGED = {"gfx942": {32: GemmTile(64, 64, 32, 8), 16: GemmTile(128, 64, 64, 8), 8: GemmTile(128, 64, 64, 8)}}


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for: ``gfx942``, ``sm_90``, ``interpreter``.

    Raises:
        ValueError: on the CPU without Triton's interpreter, or on another GPU than the current one.
    """
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def unit_count(x: torch.Tensor) -> int:
    """Return the compute units of the GPU that ``x`` is on; 2 in the interpreter."""
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count) if x.device.type == "cuda" else 2


def is_aligned(*matrices: torch.Tensor) -> bool:
    """Return whether 128-bit loads are possible: one stride is 1, the other and the address multiples of 16 bytes."""
    return all(
        min(x.stride()) == 1 and max(x.stride()) * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
        for x in matrices
    )


def units_of(*sizes: int) -> tuple[int, ...]:
    """Return what the compiler is told of each size: 8 for a multiple of 8 that is none of 16, which Triton sees.

    >>> units_of(1000, 4096, 333, 1)
    (8, 1, 1, 1)
    """
    return tuple(8 if size % 16 == 8 else 1 for size in sizes)


def promotion_interval(a: torch.Tensor, arch: str, tile: GemmTile) -> int:
    """Return after how many fp8 products a sum goes on in fp32 (Hopper only; 0 elsewhere: always there)."""
    return min(tile.bk, 128) if arch == "sm_90" and a.element_size() == 1 and a.is_floating_point() else 0


def eight_bit_floats(arch: str) -> tuple[torch.dtype, ...]:
    """Return the fp8 types that the matrix units of ``arch`` multiply: FNUZ on gfx942, none on gfx90a, else OCP."""
    ocp, fnuz = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    return {"gfx942": fnuz, "interpreter": ocp + fnuz, "gfx90a": (), "sm_80": ()}.get(arch, ocp)


def check(name: str, x: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int | None], like: torch.Tensor) -> None:
    """Check that ``x`` is a tensor of one of these types and of this shape (None: any size), where ``like`` is.

    Raises:
        ValueError: it is not; the message names it.
    """
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is {x!r:.40}: give a tensor")
    if x.dtype not in dtypes:
        raise ValueError(f"{name} is {x.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if x.ndim != len(shape) or any(s not in (None, have) for s, have in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} has shape {tuple(x.shape)}: give ({wanted})")
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, what came before on {like.device}: put them on one device")


def check_matrices(a: Any, b: Any) -> str:
    """Check types, shapes and devices of the operands; return what is compiled for.

    Raises:
        ValueError: they do not fit together, or the architecture cannot multiply the type.
    """
    if not isinstance(a, torch.Tensor):
        raise ValueError(f"a is {a!r:.40}: give a tensor")
    arch = architecture(a)
    eights = eight_bit_floats(arch)
    check("a", a, (torch.float16, torch.bfloat16, torch.float32, torch.int8, *eights), (None, None), a)
    check("b", b, eights if a.dtype in eights else (a.dtype,), (a.shape[1], None), a)
    if a.dtype == torch.bfloat16 and arch == "interpreter":
        raise ValueError("a is bfloat16, which Triton's interpreter multiplies wrongly: give float16 or float32 here")
    return arch


@contextlib.contextmanager
def sound_schedule() -> Iterator[None]:
    """Compile without AMD's block ping-pong where Triton is older than 3.9; a setting of the user's own is kept.

    In loops of eight waves older releases let one half store into LDS while loads of the other may be under way, which
    can spoil a product on an MI300X: https://github.com/triton-lang/triton/issues/11696.
    """
    newer = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)
    if newer or triton.knobs.amd.use_block_pingpong is not None:
        yield
        return
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_block_pingpong = False
        yield


def gemm_stream_k(a: torch.Tensor, b: torch.Tensor, *, workspace: StreamWorkspace | None = None) -> torch.Tensor:
    """Return ``a @ b``, (M, N), contiguous, in a's type (bfloat16 for fp8), shared out by :func:`stream_plan`.

    Args:
        a: (M, K) in float16, bfloat16, float32 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type (the two fp8 types mix). Any strides for both.
        workspace: a :class:`StreamWorkspace` to use again; without one, each call makes its own.

    The order of additions is fixed, so the result repeats bit for bit.

    Raises:
        ValueError: shapes, types or devices that do not fit, or a workspace too small.
    """
    if isinstance(a, torch.Tensor) and a.dtype == torch.int8:
        raise ValueError("a is int8: stream-K adds floating-point sums; use gemm() or gemm_split_k()")
    arch = check_matrices(a, b)
    (m, k), n = a.shape, b.shape[1]
    dtype = a.dtype if a.element_size() > 1 else torch.bfloat16
    if m == 0 or n == 0 or k == 0:
        return torch.zeros((m, n), dtype=dtype, device=a.device)
    tables = CONFIGS if is_aligned(a, b) or arch not in RAGGED else RAGGED
    t = tables.get(arch, tables["gfx942"])[8 * a.element_size()]
    tiles = triton.cdiv(m, t.bm) * triton.cdiv(n, t.bn)
    workers, shared_tiles = stream_plan(tiles, triton.cdiv(k, t.bk), unit_count(a))
    partials, flags = workspace or StreamWorkspace.on(a.device, workers, t.bm * t.bn)
    for name, room, least in (("partials", partials, workers * t.bm * t.bn), ("flags", flags, workers)):
        if room.device != a.device:
            raise ValueError(f"the workspace's {name} is on {room.device}, a on {a.device}: put them on one device")
        if room.numel() < least:
            raise ValueError(
                f"the workspace is too small: make it StreamWorkspace.on(device, {workers}, {t.bm * t.bn})"
            )
    c = torch.empty((m, n), dtype=dtype, device=a.device)
    constants = {
        "BM": t.bm,
        "BN": t.bn,
        "BK": t.bk,
        "GROUP": t.group,
        "XCDS": 8 if arch == "gfx942" else 1,
        "EVEN_K": k % t.bk == 0,
        "EXACT": promotion_interval(a, arch, t),
        "AMD": arch.startswith("gfx"),
        "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }
    sizes = (m, n, k, *a.stride(), *b.stride(), shared_tiles)
    with sound_schedule():
        gemm_stream_k_kernel[(workers,)](a, b, c, partials, flags, *sizes, **constants, **t.options(arch))
    return c


def reference_stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the same in float64: it is a matrix product like any other."""
    return a.double() @ b.double()
