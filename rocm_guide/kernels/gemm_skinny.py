# SPDX-License-Identifier: MIT
"""Skinny GEMM: 1 to 32 rows of activations times a large weight, out = scale_x * scale_w * (x @ weight.T).

In decoding every projection is such a product. Nearly all of its time goes into reading the weight once, so the kernel
is built for reading: each workgroup streams a (BN, BK) piece of the weight's rows after another, 128 bits per lane, and
multiplies it with the few columns of x.T. The weight is the *left* operand of the matrix unit, because its N is large
and the unit's left side is the one that must not be padded. To have enough workgroups, K is shared out among SPLIT of
them ("split-K"); each leaves its partial sum in a workspace and one of them adds them up, always in the same order, so
results repeat bit for bit.
Source: "Creating custom kernels for the AMD MI300", https://huggingface.co/blog/mi300kernels (shapes, split-K, the
reasons).
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["SHAPES", "SkinnyTile", "SkinnyWorkspace", "gemm_skinny", "pick_split", "reference_skinny"]

#: The projections of Llama 3.1 405B on one of 8 GPUs, (N, K): QKV, gate and up, down (source: as above).
SHAPES = ((2304, 16384), (13312, 16384), (16384, 6656))
#: The most parts that K is shared out to: one workgroup of a tile has to read them all.
MOST_PARTS = 32


class SkinnyWorkspace(NamedTuple):
    """Room for the partial sums, and a counter per tile that every launch leaves at zero.

    Make one workspace per stream and pass it to every call: a launch then allocates and clears nothing.
    """

    partials: torch.Tensor
    counters: torch.Tensor

    @classmethod
    def on(cls, device: Any, size: int = 1 << 22, tiles: int = 1 << 12) -> SkinnyWorkspace:
        """Return one on ``device`` for ``size`` partial sums (fp32) and ``tiles`` tiles."""
        counters = torch.zeros(tiles, dtype=torch.int32, device=device)
        return cls(torch.empty(size, dtype=torch.float32, device=device), counters)


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
def sum_when_counted(part_ptr, count_ptr, at, acc, piece, SPLIT: tl.constexpr, SIZE: tl.constexpr, AMD: tl.constexpr):
    """Leave ``acc`` in the workspace; who counts that all SPLIT are there gets (their sum, True)."""
    tl.store(part_ptr + piece * SIZE + at, acc)
    wait_for_stores(AMD)
    arrived = tl.atomic_add(count_ptr, 1, sem="acq_rel", scope="gpu")
    if arrived == SPLIT - 1:
        acc = tl.zeros_like(acc)
        for s in tl.static_range(SPLIT):
            acc += tl.load(part_ptr + s * SIZE + at)
        tl.store(count_ptr, 0)
    return acc, arrived == SPLIT - 1


@triton.jit(do_not_specialize=["M"])
def gemm_skinny_kernel(
    x_ptr, w_ptr, out_ptr, part_ptr, count_ptr, M, N, K, stride_x, stride_w, scale,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr, EXACT: tl.constexpr, AMD: tl.constexpr,
) -> None:  # fmt: skip
    """Compute columns ``program_id(0) * BN`` of the output, over the ``program_id(1)``-th part of K."""
    tile, piece = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    steps = tl.cdiv(K, BK)
    first, last = steps * piece // SPLIT, steps * (piece + 1) // SPLIT
    w_ptr += (tile * BN).to(tl.int64) * stride_w + first * BK
    x_ptr += first * BK
    kw, kx = rk[None, :], rk[:, None]
    at_w, at_x = rn[:, None] * stride_w + kw, rm[None, :] * stride_x + kx
    use_w, use_x = (tile * BN + rn < N)[:, None], (rm < M)[None, :]
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    for step in range(first, last):
        left = K - step * BK
        w = tl.load(w_ptr + at_w, mask=use_w if EVEN_K else use_w & (kw < left), other=0.0)
        x = tl.load(x_ptr + at_x, mask=use_x if EVEN_K else use_x & (kx < left), other=0.0)
        acc = tl.dot(w, x, acc, max_num_imprecise_acc=EXACT)
        w_ptr += BK
        x_ptr += BK
    whole = SPLIT == 1
    if SPLIT > 1:
        at = rn[:, None] * BM + rm[None, :]
        part_ptr += tile * (SPLIT * BN * BM)
        acc, whole = sum_when_counted(part_ptr, count_ptr + tile, at, acc, piece, SPLIT, BN * BM, AMD)
    if whole:
        out_ptr += tile * BN
        inside = use_w & use_x
        tl.store(out_ptr + rm[None, :] * N + rn[:, None], (acc * scale).to(out_ptr.dtype.element_ty), mask=inside)


class SkinnyTile(NamedTuple):
    """How a skinny GEMM is launched: ``bn`` rows of the weight by ``bk`` of K per step, ``groups`` workgroups per CU.

    ``exact`` is for fp8 on Hopper, whose matrix unit adds fp8 products with about 14 bits: after that many the sum goes
    on in fp32 (0: always).
    """

    bn: int
    bk: int
    warps: int
    stages: int
    groups: float
    exact: int = 0


#: By architecture and bits of the weight's type. gfx942 was chosen from its compiled code, sm_90 by measurement
#: (benchmarks/kernels/skinny_gemm.py). Other GPUs take gfx942's.
CONFIGS = {
    "gfx942": {8: SkinnyTile(64, 256, 4, 2, 2), 16: SkinnyTile(64, 128, 4, 2, 2)},
    "sm_90": {8: SkinnyTile(64, 256, 4, 4, 1, 128), 16: SkinnyTile(64, 128, 4, 4, 1)},
    "interpreter": {8: SkinnyTile(32, 64, 4, 2, 2), 16: SkinnyTile(32, 32, 4, 2, 2)},
}


def pick_split(n: int, k: int, tile: SkinnyTile, units: int) -> int:
    """Return parts of K such that ``units`` compute units get ``tile.groups`` workgroups each, rounded up; at most 32.

    >>> [pick_split(n, k, CONFIGS["gfx942"][8], 304) * n // 64 for n, k in SHAPES]
    [612, 624, 768]
    """
    tiles = int(triton.cdiv(n, tile.bn))
    return max(1, min(math.ceil(units * tile.groups / tiles), int(triton.cdiv(k, tile.bk)), MOST_PARTS))


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


def gemm_skinny(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale_x: float = 1.0,
    scale_w: float = 1.0,
    *,
    out_dtype: torch.dtype | None = None,
    workspace: SkinnyWorkspace | None = None,
    tile: SkinnyTile | None = None,
) -> torch.Tensor:
    """Return ``scale_x * scale_w * (x @ weight.T)``, (M, N), contiguous, for 1 to 32 rows. It repeats bit for bit.

    Args:
        x: (M, K), M from 1 to 32, in fp8 (FNUZ on gfx942, OCP elsewhere), bfloat16 or float16; contiguous rows.
        weight: (N, K) in x's type, contiguous rows: the layout of ``torch.nn.Linear``.
        scale_x, scale_w: what a stored value must be multiplied by, one number per tensor.
        out_dtype: float16, bfloat16 (default) or float32.
        workspace: see :class:`SkinnyWorkspace`; without one, each call makes and clears what it needs.
        tile: a launch configuration of your own.

    Raises:
        ValueError: shapes, types, devices or strides that do not fit, more than 32 rows, a scale that is not finite,
            a workspace too small.
    """
    scale = check_number("scale_x", scale_x) * check_number("scale_w", scale_w)
    scale = check_number("scale_x * scale_w", scale)
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"x is {x!r:.40}: give a tensor")
    arch = architecture(x)
    check("x", x, (*eight_bit_floats(arch), torch.bfloat16, torch.float16), (None, None), x)
    check("weight", weight, (x.dtype,), (None, x.shape[1]), x)
    if x.dtype == torch.bfloat16 and arch == "interpreter":
        raise ValueError("x is bfloat16, which Triton's interpreter multiplies wrongly: give float16 here")
    for name, rows in (("x", x), ("weight", weight)):
        if rows.shape[1] > 1 and rows.stride(1) != 1:
            raise ValueError(f"{name} has stride {rows.stride(1)} in its last dimension: call .contiguous()")
    (m, k), n = x.shape, weight.shape[0]
    if not 1 <= m <= 32:
        raise ValueError(f"x has {m} rows: a skinny GEMM takes 1 to 32; use gemm() for more")
    out_dtype = out_dtype or torch.bfloat16
    if out_dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"out is {out_dtype}: give float16, bfloat16 or float32".replace("torch.", ""))
    if n == 0 or k == 0:
        return torch.zeros((m, n), dtype=out_dtype, device=x.device)
    t = tile or CONFIGS.get(arch, CONFIGS["gfx942"])[8 * x.element_size()]
    split, tiles = pick_split(n, k, t, unit_count(x)), triton.cdiv(n, t.bn)
    bm = 32 if m > 16 else 16  # the product takes 16 columns at least
    need = (0, 0) if split == 1 else (split * tiles * t.bn * bm, tiles)
    for name, have, least in zip(SkinnyWorkspace._fields, workspace or (), need, strict=workspace is not None):
        if have.device != x.device:
            raise ValueError(f"{name} is on {have.device}, x on {x.device}: put them on one device")
        if have.numel() < least:
            raise ValueError(f"the workspace is too small: make it SkinnyWorkspace.on(device, {need[0]}, {need[1]})")
    out = torch.empty((m, n), dtype=out_dtype, device=x.device)
    room = counters = out  # where nothing is put there
    if workspace:
        room, counters = workspace
    elif split > 1:
        room, counters = SkinnyWorkspace.on(x.device, *need)
    flags = {
        "BM": bm,
        "BN": t.bn,
        "BK": t.bk,
        "SPLIT": split,
        "EVEN_K": k % t.bk == 0,
        "EXACT": t.exact,
        "AMD": arch.startswith("gfx"),
        "num_warps": t.warps,
        "num_stages": t.stages,
    }
    if arch.startswith("gfx"):  # the 16x16 matrix instructions
        flags["matrix_instr_nonkdim"] = 16
    sizes = (m, n, k, x.stride(0), weight.stride(0))
    with sound_schedule():
        gemm_skinny_kernel[(tiles, split)](x, weight, out, room, counters, *sizes, scale, **flags)
    return out


def reference_skinny(x: torch.Tensor, weight: torch.Tensor, scale_x: float = 1.0, scale_w: float = 1.0) -> torch.Tensor:
    """Return the same in float64, as one torch expression.

    >>> reference_skinny(torch.ones(1, 4), torch.ones(2, 4), 0.5, 2.0).tolist()
    [[4.0, 4.0]]
    """
    return scale_x * scale_w * (x.double() @ weight.double().T)
