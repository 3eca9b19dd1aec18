# SPDX-License-Identifier: MIT
"""Split-K: several workgroups share one tile of C = A @ B, each sums a part of K.

For outputs with few tiles and a long K. c_ij = sum over all k = (sum over the first part) + (sum over the second) + …;
the parts run at the same time. Two ways to add them: each part writes its sum and a second kernel adds them in a fixed
order (results repeat bit for bit), or each part adds itself to C with atomic operations (no second kernel and no room
for the parts, but an order that changes from run to run).
Source: "Creating custom kernels for the AMD MI300", https://huggingface.co/blog/mi300kernels.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["choose_split", "gemm_split_k", "reference_split_k"]

#: More parts than this bring nothing.
MOST_PARTS = 64
#: What one workgroup of the second kernel adds up: this many elements of C.
REDUCE_BLOCK = 1024
#: So few steps of K are done before a second kernel has been launched: nothing is gained by sharing them out.
FEW_STEPS = 4


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
def gemm_split_k_kernel(
    a,
    b,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    XCDS: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
    EXACT: tl.constexpr,
    ATOMIC: tl.constexpr,
    UNITS: tl.constexpr,
) -> None:
    """Compute one part (``program_id(1)``) of one tile: written to ``out[part]``, or added to ``out`` atomically."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col = tile_m * BM, tile_n * BN
    part, parts, steps = tl.program_id(1), tl.num_programs(1), tl.cdiv(K, BK)
    first, last = steps * part // parts, steps * (part + 1) // parts
    acc = tile_sum(
        a,
        b,
        row,
        col,
        first * BK,
        tl.minimum(last * BK, K),
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
        INT,
        UNITS,
        EXACT,
    )
    N = hint_multiple(N, UNITS[1])
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    inside = (row + rm < M)[:, None] & (col + rn < N)[None, :]
    out_ptr += row.to(tl.int64) * N + col
    if ATOMIC:
        tl.atomic_add(out_ptr + rm[:, None] * N + rn[None, :], acc, mask=inside, sem="relaxed")
    else:
        out_ptr += to_int64(part) * M * N
        tl.store(out_ptr + rm[:, None] * N + rn[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def add_parts_kernel(part_ptr, c_ptr, size, PARTS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Add up PARTS parts of C in order, ``BLOCK`` elements per program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    acc = tl.load(part_ptr + at, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        acc += tl.load(part_ptr + part * to_int64(size) + at, mask=inside, other=0.0)
    tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=inside)


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
    "gfx942": {32: GemmTile(64, 64, 32, 4), 16: GemmTile(64, 64, 64, 4), 8: GemmTile(64, 64, 128, 4)},
    "sm_90": {32: GemmTile(64, 64, 32, 4, 3), 16: GemmTile(128, 128, 64, 4, 4),
              8: GemmTile(128, 128, 128, 4, 3)},
    "interpreter": {bits: GemmTile(32, 32, 32, 4) for bits in (32, 16, 8)},
}  # fmt: skip
#: Operands without alignment are loaded element by element, and each mask takes scalar registers.
RAGGED = {"gfx942": {32: GemmTile(64, 64, 32, 8), 16: GemmTile(128, 64, 64, 8), 8: GemmTile(128, 64, 64, 8)}}


def choose_split(tiles: int, steps: int, units: int) -> int:
    """Return the smallest power of two that gives every compute unit a workgroup, at most one part per step of K.

    >>> choose_split(tiles=64, steps=128, units=304), choose_split(tiles=512, steps=128, units=304)
    (8, 1)
    """
    return max(1, min(triton.next_power_of_2(triton.cdiv(units, max(tiles, 1))), steps, MOST_PARTS))


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


def gemm_split_k(a: torch.Tensor, b: torch.Tensor, *, split: int | None = None, atomic: bool = False) -> torch.Tensor:
    """Return ``a @ b``, (M, N), with K shared out among ``split`` workgroups per tile.

    Args:
        a: (M, K) in float16, bfloat16, float32, int8 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type (the two fp8 types mix). Any strides for both.
        split: parts, 1 to 64; by default what :func:`choose_split` says, 1 where K has at most FEW_STEPS steps.
        atomic: add atomically; the result is then float32.

    Returns:
        (M, N) in a's type, bfloat16 for fp8; int32 for int8.

    Raises:
        ValueError: what does not fit, or a split outside 1 to 64.
    """
    arch = check_matrices(a, b)
    if split is not None and (isinstance(split, bool) or not isinstance(split, int) or not 1 <= split <= MOST_PARTS):
        raise ValueError(f"split={split!r}: give a whole number from 1 to {MOST_PARTS}")
    (m, k), n, integer = a.shape, b.shape[1], a.dtype == torch.int8
    sums = torch.int32 if integer else torch.float32
    dtype = sums if atomic or integer else a.dtype if a.element_size() > 1 else torch.bfloat16
    c = (torch.zeros if atomic else torch.empty)((m, n), dtype=dtype, device=a.device)
    if m == 0 or n == 0:
        return c
    tables = CONFIGS if is_aligned(a, b) or arch not in RAGGED else RAGGED
    t = tables.get(arch, tables["gfx942"])[8 * a.element_size()]
    tiles, steps = triton.cdiv(m, t.bm) * triton.cdiv(n, t.bn), triton.cdiv(k, t.bk)
    parts = split or (1 if steps <= FEW_STEPS else choose_split(tiles, steps, unit_count(a)))
    parts = min(parts, max(1, steps))
    flags = {
        "BM": t.bm,
        "BN": t.bn,
        "BK": t.bk,
        "GROUP": t.group,
        "XCDS": 8 if arch == "gfx942" and parts == 1 else 1,
        "EVEN_K": k % t.bk == 0,
        "INT": integer,
        "EXACT": promotion_interval(a, arch, t),
        "ATOMIC": atomic,
        "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }
    alone = atomic or parts == 1  # the first kernel writes C itself
    out = c if alone else torch.empty((parts, m, n), dtype=sums, device=a.device)
    with sound_schedule():
        sizes = (m, n, k, *a.stride(), *b.stride())
        gemm_split_k_kernel[(tiles, parts)](a, b, out, *sizes, **flags, **t.options(arch))
    if not alone:
        grid = (triton.cdiv(m * n, REDUCE_BLOCK),)
        add_parts_kernel[grid](out, c, m * n, PARTS=parts, BLOCK=REDUCE_BLOCK)
    return c


def reference_split_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the same in float64: it is a matrix product like any other."""
    return a.double() @ b.double()
