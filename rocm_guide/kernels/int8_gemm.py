# SPDX-License-Identifier: MIT
"""The five INT8 operators of SmoothQuant models, E = act(alpha * A @ B + beta * D), each one kernel.

| operator | A, B | D | E |
|---|---|---|---|
| ``linear_abde_i8`` | int8, 2-D | int8 | int8 |
| ``linear_relu_abde_i8`` | int8, 2-D | int8 | int8, with ReLU |
| ``linear_ab_i8_de_f32`` | int8, 2-D | float32 | float32 |
| ``bmm_abe_i8`` | int8, 3-D | none | int8 |
| ``bmm_ab_i8_e_f32`` | int8, 3-D | none | float32 |

The sum over K is exact in int32. It is scaled in float32; on the way back to int8 it is rounded to nearest, halves to
even, and limited to -128 … 127. ``linear_scaled`` is the same kernel with a scale for each row of A (a token) and each
column of B (a channel), which is what a W8A8 checkpoint of today asks for.

Source: the ROCm LLM guide, "Develop fused INT8 kernels for SmoothQuant models"; Xiao et al., "SmoothQuant",
https://arxiv.org/abs/2211.10438.
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

__all__ = [
    "bmm_ab_i8_e_f32",
    "bmm_abe_i8",
    "exact_product",
    "linear_ab_i8_de_f32",
    "linear_abde_i8",
    "linear_relu_abde_i8",
    "linear_scaled",
    "pick_int8_tile",
    "reference_operator",
    "reference_scaled",
    "to_int8",
]

#: The longest K whose sums fit into 32 bits whatever the codes are: K * 128 * 128 must stay below 2^31.
LONGEST_K = (1 << 17) - 1


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
def round_to_int8(x):
    """Round float32 to int8: limited to -128 … 127, halves to even, in two additions on every architecture.

    Beyond 1.5 * 2^23 neighbouring float32 numbers are 1 apart, so the addition rounds to a whole number.
    """
    x = tl.minimum(tl.maximum(x, -128.0), 127.0)
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)


@triton.jit
def int8_operator_kernel(
    a, b, d_ptr, e_ptr, rows_ptr, columns_ptr, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_dm, stride_ez, stride_em,
    alpha, beta,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, XCDS: tl.constexpr,
    A_DESC: tl.constexpr, B_DESC: tl.constexpr, EVEN_K: tl.constexpr, UNITS: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, RELU: tl.constexpr,
) -> None:  # fmt: skip
    """Compute one tile of E; the second axis of the grid is the batch.

    ``D`` is "none", "row" (one number for each column of E) or "matrix". ``ROWS`` and ``COLUMNS``: whether the product
    has "none", "one" or "each": a scale for all of its rows or columns, or for each, beside ``alpha``. ``A_DESC``,
    ``B_DESC``: the operand is a pointer (0, any strides), or a descriptor of the matrix (1) or of its transpose (2),
    which Hopper's TMA engine reads. ``UNITS``: what the sizes are multiples of, see :func:`units_of`.
    """
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col, batch = tile_m * BM, tile_n * BN, tl.program_id(1).to(tl.int64)
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    in_m, in_n = row + rm < hint_multiple(M, UNITS[0]), col + rn < hint_multiple(N, UNITS[1])
    K = hint_multiple(K, UNITS[2])
    stride_am, stride_ak = hint_multiple(stride_am, UNITS[3]), hint_multiple(stride_ak, UNITS[4])
    stride_bk, stride_bn = hint_multiple(stride_bk, UNITS[5]), hint_multiple(stride_bn, UNITS[6])
    # One 64-bit address per tile; the offsets inside it are loop invariants that fit into 32 bits.
    if A_DESC == 0:
        a += batch * stride_az + row.to(tl.int64) * stride_am
        at_a = rm[:, None] * stride_am + rk[None, :] * stride_ak
    if B_DESC == 0:
        b += batch * stride_bz + col.to(tl.int64) * stride_bn
        at_b = rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        in_k = k + rk < K
        if A_DESC == 0:
            x = tl.load(a + at_a, mask=in_m[:, None] if EVEN_K else in_m[:, None] & in_k[None, :], other=0)
            a += BK * stride_ak
        elif A_DESC == 1:
            x = a.load([row, k])
        else:
            x = a.load([k, row]).T
        if B_DESC == 0:
            y = tl.load(b + at_b, mask=in_n[None, :] if EVEN_K else in_k[:, None] & in_n[None, :], other=0)
            b += BK * stride_bk
        elif B_DESC == 1:
            y = b.load([k, col])
        else:
            y = b.load([col, k]).T
        acc = tl.dot(x, y, acc, out_dtype=tl.int32)
    in_m, in_n = row + rm < M, col + rn < N
    inside = in_m[:, None] & in_n[None, :]
    x = acc.to(tl.float32) * alpha
    if ROWS == "one":
        x *= tl.load(rows_ptr)
    elif ROWS == "each":
        x *= tl.load(rows_ptr + row + rm, mask=in_m, other=0.0)[:, None]
    if COLUMNS == "one":
        x *= tl.load(columns_ptr)
    elif COLUMNS == "each":
        x *= tl.load(columns_ptr + col + rn, mask=in_n, other=0.0)[None, :]
    if D == "row":
        x += beta * tl.load(d_ptr + col + rn, mask=in_n, other=0.0).to(tl.float32)[None, :]
    elif D == "matrix":
        d_ptr += row.to(tl.int64) * stride_dm + col
        x += beta * tl.load(d_ptr + rm[:, None] * stride_dm + rn[None, :], mask=inside, other=0.0).to(tl.float32)
    if RELU:
        x = tl.where(x < 0, 0.0, x)
    if e_ptr.dtype.element_ty == tl.int8:
        x = round_to_int8(x)
    e_ptr += batch * stride_ez + row.to(tl.int64) * stride_em + col
    tl.store(e_ptr + rm[:, None] * stride_em + rn[None, :], x.to(e_ptr.dtype.element_ty), mask=inside)


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


#: Tiles by architecture. gfx942's and their cycles come from Triton 3.9's code and the model of cdna.predict
#: (benchmarks/kernels/gemm_tiles.py); sm_90's were measured (benchmarks/kernels/int8_gemm.py --search). Other GPUs take
#: gfx942's.
CONFIGS: dict[str, tuple[GemmTile, ...]] = {
    "gfx942": (
        GemmTile(256, 256, 64, 8, cycles=((16334, 2052),)),
        GemmTile(256, 128, 128, 8, cycles=((10144, 1112),)),
        GemmTile(128, 256, 128, 8, cycles=((9789, 1152),)),
        GemmTile(128, 128, 128, 8, cycles=((4801, 1040), (6901, 1598))),
        GemmTile(64, 128, 128, 4, cycles=((3752, 680), (5180, 852))),
        GemmTile(64, 64, 128, 4, cycles=((2808, 596), (3784, 678), (4404, 738), (4643, 1006))),
        GemmTile(32, 32, 128, 2, cycles=((2308, 562), (2392, 562), (3026, 564), (3184, 564), (4153, 569), (3722, 620),
                                         (3785, 711), (3051, 947))),
    ),
    # Few rows wait for memory, and many small workgroups wait together: hence the last two.
    "sm_90": (GemmTile(128, 256, 128, 8, 3, 8, True), GemmTile(128, 128, 128, 8, 3, 8, True, 0.8),
              GemmTile(64, 64, 128, 4, 4, speed=0.62), GemmTile(32, 32, 128, 4, 6, speed=0.25)),
    "interpreter": (GemmTile(32, 32, 32, 4),),
}  # fmt: skip
#: The last two of sm_90 where each unit has one workgroup at most: nobody else is there to wait with, so each step
#: takes more of K.
ALONE = {64: GemmTile(64, 64, 256, 4, 4, descriptors=True), 32: GemmTile(32, 32, 256, 4, 5)}
#: Operands without alignment are loaded element by element, and each mask takes scalar registers: a smaller tile.
RAGGED = {"gfx942": GemmTile(128, 64, 64, 8)}


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


def pick_int8_tile(
    m: int, n: int, batch: int, arch: str, units: int, *, k: int = 0, weight: bool = True, matrix: bool = False
) -> GemmTile:
    """Return the tile with which ``units`` compute units are done first; ``matrix``: with a number of D for each of E.

    Where a tile's cycles are not known, the highest speed times the share of its grid that works, and of its elements
    that are wanted, decides: a model that decodes has few rows, and a tile of 256 would spend most of its products on
    rows that are not there, and leave most of the compute units without a tile.

    >>> [pick_int8_tile(m, 8192, 1, "gfx942", 304).bm for m in (32, 512, 8192)]
    [32, 64, 256]
    """

    def grid(tile: GemmTile) -> int:
        return int(triton.cdiv(m, tile.bm) * triton.cdiv(n, tile.bn) * batch)

    def rate(tile: GemmTile) -> float:
        tiles = grid(tile)
        wanted = m * n * batch / (tiles * tile.bm * tile.bn)
        return float(tile.speed * wanted * tiles / (triton.cdiv(tiles, units) * units))

    tiles = CONFIGS.get(arch, CONFIGS["gfx942"])
    if tiles[0].cycles:  # 256 x 256 would spill up to 65 registers with a matrix D
        return first_done([t for t in tiles if not (matrix and t.bm * t.bn >= 256 * 256)], m, n, k, units, batch)
    if weight and arch == "sm_90":  # B contiguous along K: then the wide tile is better upright (measured)
        tiles = tuple(t._replace(bm=t.bn, bn=t.bm) if t.bn > t.bm else t for t in tiles)
    best = max(tiles, key=rate)
    return ALONE[best.bm] if arch == "sm_90" and best.bm in ALONE and grid(best) <= units else best


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


def operand(x: torch.Tensor, block: tuple[int, int], wanted: bool) -> tuple[Any, int]:
    """Return the kernel's argument for a matrix: itself (0), or if ``wanted`` a descriptor (1) or one of x.T (2)."""
    if wanted and x.data_ptr() % 16 == 0 and min(x.shape) > 0:
        for kind, view, size in ((1, x, list(block)), (2, x.T, list(reversed(block)))):
            if view.stride(1) == 1 and view.stride(0) * x.element_size() % 16 == 0 and view.stride(0) >= view.shape[1]:
                return TensorDescriptor(view, list(view.shape), list(view.stride()), size), kind
    return x, 0


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


def multiply(
    a: Any,
    b: Any,
    dims: int,
    dtype: torch.dtype,
    d: Any = None,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    d_types: Sequence[torch.dtype] = (),
    alpha: float = 1.0,
    beta: float = 1.0,
    relu: bool = False,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """Return E of ``dims`` dimensions in ``dtype``: what all operators are. D is in one of ``d_types``, or None.

    Raises:
        ValueError: operands that do not fit together, K so long that a sum could leave 32 bits, factors not finite.
    """
    alpha, beta = check_number("alpha", alpha), check_number("beta", beta)
    if not isinstance(a, torch.Tensor):
        raise ValueError(f"a is {a!r:.40}: give a tensor")
    check("a", a, (torch.int8,), (None,) * dims, a)
    check("b", b, (torch.int8,), (*a.shape[:-2], a.shape[-1], None), a)
    if a.shape[-1] > LONGEST_K:
        raise ValueError(f"K={a.shape[-1]}: sums of 8-bit products fit into 32 bits up to K={LONGEST_K}; split K")
    shape = (*a.shape[:-1], b.shape[-1])
    if d is not None:
        name, one = ("d", getattr(d, "ndim", 1) == 1) if rows is None else ("bias", True)
        check(name, d, d_types, shape[-1:] if one else shape, a)
        if d.shape[-1] > 1 and d.stride(-1) != 1:
            raise ValueError(f"{name} has stride {d.stride(-1)} in its last dimension: call .contiguous()")
    for name, scale, size in (("row_scale", rows, shape[-2]), ("column_scale", columns, shape[-1])):
        if scale is not None:
            check(name, scale, (torch.float32,), (1,) if getattr(scale, "shape", 0) == (1,) else (size,), a)
    arch, e = architecture(a), torch.empty(shape, dtype=dtype, device=a.device)
    if dims == 2:
        a, b = a[None], b[None]
    (batch, m, k), n = a.shape, b.shape[2]
    if batch > 65_535:  # what CUDA and HIP launch along the second axis of a grid
        raise ValueError(f"a batch of {batch}: give 65535 at most, or call several times")
    if not (batch and m and n):
        return e
    t = tile
    if t is None and not is_aligned(a[0], b[0]):
        t = RAGGED.get(arch)
    wide = d is not None and d.ndim > 1
    t = t or pick_int8_tile(m, n, batch, arch, unit_count(a), k=k, weight=b.stride(1) == 1, matrix=wide)
    left, a_kind = operand(a[0], (t.bm, t.bk), t.descriptors and batch == 1)
    right, b_kind = operand(b[0], (t.bk, t.bn), t.descriptors and batch == 1)
    left, right = left if a_kind else a, right if b_kind else b  # a pointer is to all of the batch
    flags = {
        "BM": t.bm,
        "BN": t.bn,
        "BK": t.bk,
        "GROUP": t.group,
        "XCDS": 8 if arch == "gfx942" else 1,
        "A_DESC": a_kind,
        "B_DESC": b_kind,
        "EVEN_K": k % t.bk == 0,
        "UNITS": units_of(m, n, k, *a.stride()[1:], *b.stride()[1:]),
        "D": "none" if d is None else "row" if d.ndim == 1 else "matrix",
        "RELU": relu,
        "ROWS": "none" if rows is None else "one" if rows.shape == (1,) else "each",
        "COLUMNS": "none" if columns is None else "one" if columns.shape == (1,) else "each",
    }
    grid, sizes = (triton.cdiv(m, t.bm) * triton.cdiv(n, t.bn), batch), (m, n, k, *a.stride(), *b.stride())
    scales = (e if x is None else x.contiguous() for x in (rows, columns))
    ends = (0 if d is None else d.stride(0), m * n, n)
    with sound_schedule():
        int8_operator_kernel[grid](
            left, right, e if d is None else d, e, *scales, *sizes, *ends, alpha, beta, **flags, **t.options(arch)
        )
    return e


def linear_abde_i8(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0) -> torch.Tensor:
    """Return E = alpha * A @ B + beta * D, (M, N), all int8: a linear layer that another INT8 product follows.

    Args:
        a: (M, K), the codes of the activations; any strides.
        b: (K, N); pass ``weight.T``, which is contiguous along K.
        d: (N,), the codes of the bias, or (M, N).
        alpha: scale of A times scale of B, over the scale of E.
        beta: scale of D over the scale of E.

    Raises:
        ValueError: types, shapes or devices that do not fit, K above 131,071, alpha or beta not finite.
    """
    return multiply(a, b, 2, torch.int8, need(d), d_types=(torch.int8,), alpha=alpha, beta=beta)


def linear_relu_abde_i8(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0
) -> torch.Tensor:
    """Return E = ReLU(alpha * A @ B + beta * D), all int8. Arguments and errors are :func:`linear_abde_i8`'s."""
    return multiply(a, b, 2, torch.int8, need(d), d_types=(torch.int8,), alpha=alpha, beta=beta, relu=True)


def linear_ab_i8_de_f32(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0
) -> torch.Tensor:
    """Return E = alpha * A @ B + beta * D, A and B in int8, D and E in float32: a linear layer before a residual.

    Arguments and errors are those of :func:`linear_abde_i8`; alpha is the scale of A times the scale of B.
    """
    return multiply(a, b, 2, torch.float32, need(d), d_types=(torch.float32,), alpha=alpha, beta=beta)


def bmm_abe_i8(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return E = alpha * A @ B, (batch, M, N), all int8: attention's second product, probabilities times values.

    Args:
        a, b: (batch, M, K) and (batch, K, N), any strides.
        alpha: scale of A times scale of B, over the scale of E.

    Raises:
        ValueError: types, shapes or devices that do not fit, K above 131,071, a batch above 65,535, alpha not finite.
    """
    return multiply(a, b, 3, torch.int8, alpha=alpha)


def bmm_ab_i8_e_f32(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return E = alpha * A @ B with A and B in int8 and 3-D, E in float32: attention's scores, which softmax reads.

    Arguments and errors are those of :func:`bmm_abe_i8`; alpha is the scale of A times the scale of B.
    """
    return multiply(a, b, 3, torch.float32, alpha=alpha)


def linear_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor,
    column_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """Return row_scale * column_scale * (A @ B) + bias, (M, N): a W8A8 linear layer with its scales on the device.

    The scales are read by the kernel. Nothing waits for the GPU, which ``alpha = scale.item()`` would do at every call.

    Args:
        a, b: (M, K) and (K, N), int8, any strides.
        row_scale: (M,) float32, a scale for each token; or (1,), one for all of them.
        column_scale: (N,) float32, a scale for each channel of the output; or (1,).
        bias: (N,), floating point, contiguous.
        out_dtype: float32 (the default), bfloat16 or float16.
        tile: a launch configuration of your own.

    Raises:
        ValueError: types, shapes or devices that do not fit, K above 131,071.
    """
    floats = (torch.float32, torch.bfloat16, torch.float16)
    out_dtype = out_dtype or torch.float32
    if out_dtype not in floats:
        raise ValueError(f"out is {out_dtype}: give {' or '.join(map(str, floats))}".replace("torch.", ""))
    return multiply(a, b, 2, out_dtype, bias, need(row_scale), need(column_scale), d_types=floats, tile=tile)


def need(x: Any) -> Any:
    """Return ``x``; None stands for a tensor only where one can be left out."""
    if x is None:
        raise ValueError("None where a tensor is expected: give a tensor")
    return x


def exact_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``a @ b`` of int8 tensors without any rounding, as whole numbers in a floating type.

    A sum of K products of 8-bit numbers is at most K * 2^14, and float32 holds every whole number up to 2^24, float64
    up to 2^53. So the ordinary matrix product of a CPU or GPU is exact here, which ``torch.bmm`` on int8 is not: it
    returns int8, and keeps the lowest 8 bits of each sum.

    Args:
        a, b: (…, M, K) and (…, K, N), int8.

    >>> a, b = torch.full((1, 2, 64), 100, dtype=torch.int8), torch.full((1, 64, 2), 100, dtype=torch.int8)
    >>> exact_product(a, b)[0].tolist(), torch.bmm(a, b)[0].tolist()
    ([[640000.0, 640000.0], [640000.0, 640000.0]], [[0, 0], [0, 0]])
    """
    kind = torch.float32 if a.shape[-1] <= 1024 else torch.float64
    return a.to(kind) @ b.to(kind)


def to_int8(x: torch.Tensor, *, truncate: bool = False) -> torch.Tensor:
    """Return codes of numbers that have been divided by their scale: to nearest, limited to -128 … 127.

    Args:
        x: any floating type.
        truncate: cut the fraction off, as a C++ cast does, and with it Composable Kernel's ``type_convert`` to int8.
            Every code then lies nearer to zero than it should, by half a step on average.

    >>> x = torch.tensor([1.7, -1.7, 2.5, 300.0])
    >>> to_int8(x).tolist(), to_int8(x, truncate=True).tolist()
    ([2, -2, 2, 127], [1, -1, 2, 127])
    """
    return (x.trunc() if truncate else x.round()).clamp(-128, 127).to(torch.int8)


def reference_operator(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    relu: bool = False,
    int8_out: bool = True,
) -> torch.Tensor:
    """Return E = act(alpha * A @ B + beta * D) in float64: int8 codes, or the float64 numbers themselves.

    Args:
        a, b: (…, M, K) and (…, K, N), int8.
        d: (N,) or (…, M, N), any type; None for no D.
        alpha, beta: factors.
        relu: whether negative results become 0.
        int8_out: round to nearest and limit to -128 … 127.

    >>> a, b = torch.tensor([[1, -2]], dtype=torch.int8), torch.tensor([[10, 3], [4, 9]], dtype=torch.int8)
    >>> reference_operator(a, b, torch.tensor([1, 0], dtype=torch.int8), 0.5, 2.0).tolist()
    [[3, -8]]
    """
    e = alpha * exact_product(a, b).double()
    if d is not None:
        e = e + beta * d.double()
    e = torch.relu(e) if relu else e
    return to_int8(e) if int8_out else e


def reference_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor,
    column_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return row_scale * column_scale * (A @ B) + bias in float64: a layer with scales of tokens and channels.

    Args:
        a, b: (M, K) and (K, N), int8.
        row_scale: (M,), or (1,) for one scale of all rows.
        column_scale: (N,), or (1,) for one scale of all columns.
        bias: (N,), or None.

    >>> a, b = torch.tensor([[3, 1]], dtype=torch.int8), torch.tensor([[2], [4]], dtype=torch.int8)
    >>> reference_scaled(a, b, torch.tensor([0.5]), torch.tensor([0.1])).round(decimals=6).tolist()
    [[0.5]]
    """
    e = row_scale.double()[:, None] * column_scale.double()[None, :] * exact_product(a, b).double()
    return e if bias is None else e + bias.double()
