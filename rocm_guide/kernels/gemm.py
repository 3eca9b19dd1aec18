# SPDX-License-Identifier: MIT
"""General matrix multiplication (GEMM), C = act(alpha * A @ B + bias), for every type that the matrix units take.

Each workgroup computes one tile of C: it walks along K, multiplies a (BM, BK) piece of A with a (BK, BN) piece of B on
the matrix units, and adds into fp32 (int32 for int8). Any strides are accepted, so a transposed operand costs no copy.
Source of the tile order: Triton's matrix multiplication tutorial,
https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html; of the XCD order: "ROCm workload
optimization guide", https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["CONFIGS", "GemmTile", "gemm", "reference_gemm", "tile_dot"]

#: The epilogues.
ACTIVATIONS = ("none", "relu", "silu", "gelu")


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
    EXACT: tl.constexpr,
):
    """Return the tile of A @ B at (row, col), (BM, BN) in fp32 or int32, summed over k from ``first`` to ``last``.

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
    """Apply an activation in fp32: ``none``, ``relu``, ``silu`` (x * sigmoid(x)) or ``gelu`` (exact, with erf)."""
    if ACT == "relu":
        # Not tl.maximum, which would turn NaN into 0: a wrong number must stay visible.
        x = tl.where(x < 0, 0.0, x)
    elif ACT == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACT == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return x


@triton.jit
def gemm_kernel(
    a,
    b,
    c_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    alpha,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    XCDS: tl.constexpr,
    A_DESC: tl.constexpr,
    B_DESC: tl.constexpr,
    EVEN_K: tl.constexpr,
    INT: tl.constexpr,
    PRECISION: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
    ACT: tl.constexpr,
    UNITS: tl.constexpr,
    EXACT: tl.constexpr,
) -> None:
    """Compute one tile of C = act(alpha * A @ B + bias). C has contiguous rows, ``stride_cm`` apart.

    ``UNITS``: see ``tile_dot``; the one of N is of ``stride_cm`` too.
    """
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col = tile_m * BM, tile_n * BN
    acc = tile_dot(
        a,
        b,
        row,
        col,
        0,
        K,
        M,
        N,
        stride_am,
        stride_ak,
        stride_bk,
        stride_bn,
        BM,
        BN,
        BK,
        A_DESC,
        B_DESC,
        EVEN_K,
        INT,
        PRECISION,
        UNITS,
        EXACT,
    )
    N, stride_cm = hint_multiple(N, UNITS[1]), hint_multiple(stride_cm, UNITS[1])
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    in_n = col + rn < N
    if EPILOGUE:
        acc = acc.to(tl.float32) * alpha
        if BIAS:
            acc += tl.load(bias_ptr + col + rn, mask=in_n, other=0.0).to(tl.float32)[None, :]
        acc = activate(acc, ACT)
    c_ptr += row.to(tl.int64) * stride_cm + col
    inside = (row + rm < M)[:, None] & in_n[None, :]
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=inside)


class GemmTile(NamedTuple):
    """How one GEMM is launched."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int = 2
    group: int = 8  #: rows of tiles that are walked together
    descriptors: bool = False  #: let the hardware fetch whole tiles (TMA, from Hopper on) where alignment allows it
    speed: float = 1.0  #: on a full GPU, relative to the best, as measured on sm_90
    #: On gfx942 instead: cycles beside the loop, and of 64 elements of K, with 1, 2, ... workgroups on a compute unit.
    cycles: tuple[tuple[int, int], ...] = ()

    def options(self, arch: str) -> dict[str, int]:
        """Return the compile options of a launch on ``arch``."""
        # AMD's 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        own = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}
        return {"num_warps": self.warps, "num_stages": self.stages, **own}


#: Tiles by architecture and bits of the element type. gfx942's and their cycles come from Triton 3.9's code and the
#: model of cdna.predict (benchmarks/kernels/gemm_tiles.py); sm_90's were measured (benchmarks/kernels/gemm.py). Other
#: GPUs take gfx942's.
CONFIGS: dict[str, dict[int, tuple[GemmTile, ...]]] = {
    "gfx942": {
        32: (
            GemmTile(128, 128, 32, 8, cycles=((2656, 11248), (5132, 20461))),
            GemmTile(64, 64, 32, 4, cycles=((2268, 3616), (2540, 5440), (2796, 7264), (2824, 9444))),
            GemmTile(32, 32, 32, 2, cycles=((2716, 2264), (2876, 2264), (2832, 2842), (2920, 3136), (2272, 4052),
                                            (1752, 4336), (3476, 5075), (2888, 5256))),
        ),
        16: (
            GemmTile(256, 256, 64, 8, cycles=((10328, 4100),)),
            GemmTile(256, 256, 32, 8, cycles=((11536, 4192),)),
            GemmTile(256, 128, 64, 8, cycles=((7948, 2228),)),
            GemmTile(128, 256, 64, 8, cycles=((7444, 2324),)),
            GemmTile(128, 128, 64, 8, cycles=((4712, 1636), (6148, 2658))),
            GemmTile(64, 64, 64, 4, cycles=((2248, 1204), (3140, 1208), (3536, 1574), (4364, 2034))),
            GemmTile(32, 32, 64, 2, cycles=((2004, 1028), (2084, 1028), (2556, 1028), (2636, 1028), (2420, 1115),
                                            (3756, 1161), (3264, 1522), (1836, 1900))),
        ),
        8: (
            GemmTile(256, 256, 64, 8, cycles=((11824, 2056),)),
            GemmTile(256, 128, 128, 8, cycles=((8432, 1114),)),
            GemmTile(128, 256, 128, 8, cycles=((7936, 1154),)),
            GemmTile(128, 128, 128, 8, cycles=((4028, 1040), (5920, 1605))),
            GemmTile(64, 128, 128, 4, cycles=((3148, 678), (4848, 848))),
            GemmTile(64, 64, 128, 4, cycles=((2432, 596), (2248, 743), (4052, 759), (2716, 1128))),
            GemmTile(32, 32, 128, 2, cycles=((1992, 562), (2072, 562), (2544, 564), (2544, 580), (2392, 672),
                                             (3096, 640), (3188, 779), (3156, 863))),
        ),
    },
    "sm_90": {
        32: (GemmTile(128, 128, 32, 8, 3), GemmTile(64, 64, 32, 4, 3, speed=0.8)),
        16: (GemmTile(128, 256, 64, 8, 3, 8, True), GemmTile(128, 128, 64, 8, 4, 8, True, 0.91),
             GemmTile(64, 64, 64, 4, 4, speed=0.5)),
        8: (GemmTile(128, 256, 128, 8, 3, 8, True), GemmTile(128, 128, 128, 8, 3, 8, True, 0.8),
            GemmTile(64, 64, 128, 4, 4, speed=0.4)),
    },
    "interpreter": {bits: (GemmTile(32, 32, 32, 4),) for bits in (32, 16, 8)},
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


def first_done(tiles: Sequence[GemmTile], m: int, n: int, k: int, units: int, batch: int = 1) -> GemmTile:
    """Return, of tiles with which ``units`` compute units are done within 5 % of the first, the one that loads least.

    Workgroups share a compute unit, and come in rounds; the last may be of fewer.
    """

    def cycles(tile: GemmTile) -> float:
        most = -(-(batch * -(-m // tile.bm) * -(-n // tile.bn)) // units)  # workgroups that one compute unit gets
        shared = min(len(tile.cycles), most)
        rounds = (most - 1) // shared  # before the last
        (start, step), (start_last, step_last) = tile.cycles[shared - 1], tile.cycles[most - rounds * shared - 1]
        return rounds * start + start_last + (rounds * step + step_last) * (k or 4096) / 64

    needed = {tile: cycles(tile) for tile in tiles}
    near = [tile for tile, its in needed.items() if its <= 1.05 * min(needed.values())]
    return max(near, key=lambda tile: 1 / (1 / tile.bm + 1 / tile.bn))


def pick_gemm_tile(
    m: int,
    n: int,
    bits: int,
    arch: str,
    units: int,
    *,
    k: int = 0,
    aligned: bool = True,
    weight: bool = False,
    activation: str = "none",
) -> GemmTile:
    """Return the tile with which ``units`` compute units are done first.

    Where a tile's cycles are not known, the highest speed times the share of the units that its grid keeps busy
    decides.

    Operands that are not ``aligned`` get the tile of :data:`RAGGED` where there is one. ``k``: where it is no multiple
    of a tile's, masks are needed, for which the deepest tile has no registers. ``weight``: B is contiguous along K.

    Raises:
        ValueError: no configuration for elements of that many bits.

    >>> pick_gemm_tile(8192, 8192, 16, "gfx942", 304).bm, pick_gemm_tile(1024, 1024, 16, "gfx942", 304).bm
    (256, 32)
    """
    table = CONFIGS.get(arch, CONFIGS["gfx942"])
    if bits not in table:
        raise ValueError(f"elements of {bits} bits: the tables have {', '.join(map(str, table))}")
    if not aligned and arch in RAGGED:
        return RAGGED[arch][bits]

    def fits(tile: GemmTile) -> bool:
        # erf needs many registers beside the accumulator: on gfx942 a tile of 256 x 256 would spill more than 200 of
        # them. Masks along K would spill up to 18 of one with a side of 256 that is 128 bytes deep, or 34 scalar ones.
        large, deep = tile.bm * tile.bn >= 256 * 256, max(tile.bm, tile.bn) >= 256 and tile.bk * bits >= 64 * 16
        return not (large and activation == "gelu") and not (deep and k % tile.bk)

    def rate(tile: GemmTile) -> float:
        tiles = -(-m // tile.bm) * -(-n // tile.bn)
        return tile.speed * tiles / (-(-tiles // units) * units)

    tiles = [tile for tile in table[bits] if fits(tile)]
    if tiles[0].cycles:
        return first_done(tiles, m, n, k, units)
    best = max(tiles, key=rate)
    if weight and arch == "sm_90" and bits <= 16 and best.bn > best.bm:  # measured: then the tile is better upright
        return best._replace(bm=best.bn, bn=best.bm)
    return best


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


def operand(x: torch.Tensor, block: tuple[int, int], wanted: bool) -> tuple[Any, int]:
    """Return the kernel's argument for a matrix: itself (0), or if ``wanted`` a descriptor (1) or one of x.T (2)."""
    if wanted and x.data_ptr() % 16 == 0 and min(x.shape) > 0:
        for kind, view, size in ((1, x, list(block)), (2, x.T, list(reversed(block)))):
            if view.stride(1) == 1 and view.stride(0) * x.element_size() % 16 == 0 and view.stride(0) >= view.shape[1]:
                return TensorDescriptor(view, list(view.shape), list(view.stride()), size), kind
    return x, 0


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


def check_operands(a: Any, b: Any, bias: Any = None) -> str:
    """Check types, shapes and devices of a GEMM's inputs; return what is compiled for.

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
    if bias is not None:
        check("bias", bias, (torch.float16, torch.bfloat16, torch.float32), (b.shape[1],), a)
        if bias.stride(0) != 1:
            raise ValueError(f"bias has stride {bias.stride(0)}: call .contiguous()")
    return arch


def check_out(dtype: Any, allowed: Sequence[torch.dtype]) -> None:
    """Check that a result of type ``dtype`` can be written.

    Raises:
        ValueError: it is not among ``allowed``.
    """
    if dtype not in allowed:
        raise ValueError(f"out is {dtype}: give {' or '.join(map(str, allowed))}".replace("torch.", ""))


def check_number(name: str, value: float) -> float:
    """Check that ``value`` is a number that fp32 holds; return it as a float, for Triton compiles ints anew.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 3.4028234663852886e38:
        raise ValueError(f"{name}={value!r}: give a finite number")
    return 1.0 * value


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


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tf32: bool = False,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """Return ``act(alpha * a @ b + bias)``, (M, N), contiguous, without autograd.

    Args:
        a: (M, K) in float16, bfloat16, float32, int8 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type (the two fp8 types mix). Any strides for both: pass ``weight.T`` as it is.
        bias: (N,), floating point, added before the activation.
        activation: ``none``, ``relu``, ``silu`` or ``gelu``.
        alpha: a factor, for example the product of two fp8 scales.
        out_dtype: the type of C; by default a's, bfloat16 for fp8, int32 for int8 without bias, activation and alpha.
        tf32: let float32 operands lose mantissa bits (10 remain) for speed, where the hardware has that.
        tile: a launch configuration of your own; by default the one of the table that is expected to be fastest.

    Raises:
        ValueError: shapes, types or devices that do not fit, an unknown activation, alpha not finite.
    """
    alpha, arch = check_number("alpha", alpha), check_operands(a, b, bias)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r}: give one of {', '.join(ACTIVATIONS)}")
    (m, k), n, integer = a.shape, b.shape[1], a.dtype == torch.int8
    plain = activation == "none" and bias is None and alpha == 1.0
    if out_dtype is None:
        out_dtype = a.dtype if a.element_size() > 1 else torch.int32 if integer and plain else torch.bfloat16
    floats = (torch.float16, torch.bfloat16, torch.float32)
    check_out(out_dtype, (*floats, torch.int32) if integer and plain else floats)
    c = torch.empty((m, n), dtype=out_dtype, device=a.device)
    if m == 0 or n == 0:
        return c
    kind: dict[str, Any] = {"k": k, "aligned": is_aligned(a, b), "weight": b.stride(0) == 1, "activation": activation}
    t = tile or pick_gemm_tile(m, n, 8 * a.element_size(), arch, unit_count(a), **kind)
    # A descriptor costs the host microseconds. Below 1e9 operations the host is what one waits for.
    described = t.descriptors and (tile is not None or 2 * m * n * k >= 1e9)
    left, a_kind = operand(a, (t.bm, t.bk), described)
    right, b_kind = operand(b, (t.bk, t.bn), described)
    flags = {
        "BM": t.bm,
        "BN": t.bn,
        "BK": t.bk,
        "GROUP": t.group,
        "XCDS": 8 if arch == "gfx942" else 1,
        "A_DESC": a_kind,
        "B_DESC": b_kind,
        "EVEN_K": k % t.bk == 0,
        "INT": integer,
        "PRECISION": "tf32" if tf32 else "ieee",
        "EPILOGUE": not plain,
        "BIAS": bias is not None,
        "ACT": activation,
        "EXACT": promotion_interval(a, arch, t),
        "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }
    grid = (triton.cdiv(m, t.bm) * triton.cdiv(n, t.bn),)
    sizes, rest = (m, n, k, *a.stride(), *b.stride(), n), c if bias is None else bias
    with sound_schedule():
        gemm_kernel[grid](left, right, c, rest, *sizes, alpha, **flags, **t.options(arch))
    return c


def reference_gemm(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, *, activation: str = "none", alpha: float = 1.0
) -> torch.Tensor:
    """Return the same in float64, as torch expressions: what the kernel is judged against.

    >>> reference_gemm(torch.tensor([[1.0, -2.0]]), torch.eye(2), activation="relu").tolist()
    [[1.0, 0.0]]
    """
    acts = {"relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}
    c = alpha * (a.double() @ b.double())
    c = c if bias is None else c + bias.double()
    return acts[activation](c) if activation != "none" else c
