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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
    compiler_options,
    unit_count,
)
from rocm_guide.kernels.direct import of_stream
from rocm_guide.kernels.gemm.skinny_configs import SkinnyTile, pick_config, pick_split
from rocm_guide.kernels.gemm.tiled import eight_bit_floats
from rocm_guide.kernels.gemm.tiles import wait_for_stores
from rocm_guide.kernels.launch import Launch, maker, planned
from rocm_guide.kernels.tracing import traced

if TYPE_CHECKING:
    import torch

__all__ = ["SkinnyWorkspace", "gemm_skinny"]


@dataclass(frozen=True)
class SkinnyWorkspace:
    """Room for the partial sums, a counter per tile that every launch leaves at zero, and ``slots`` for direct tiles.

    A slot holds the bits of -1, a NaN that no sum has, until a partial sum is put there; every launch empties what it
    filled. Make one workspace per stream and pass it to every call: a launch then allocates and clears nothing.
    """

    partials: torch.Tensor
    counters: torch.Tensor
    slots: torch.Tensor

    @classmethod
    def on(cls, device: Any, size: int = 1 << 22, tiles: int = 1 << 12, slots: int | None = None) -> SkinnyWorkspace:
        """A workspace on ``device`` for ``size`` partial sums (fp32), ``tiles`` tiles, and ``slots``, or ``size``."""
        import torch

        counters = torch.zeros(tiles, dtype=torch.int32, device=device)
        empty = torch.full((size if slots is None else slots,), -1, dtype=torch.int32, device=device)
        return cls(torch.empty(size, device=device), counters, empty.view(torch.float32))


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


@triton.jit
def sum_when_there(slot_ptr, at, acc, piece, SPLIT: tl.constexpr, SIZE: tl.constexpr):
    """Leave ``acc`` in a slot; the last piece looks until all slots are full, empties them and gets (the sum, True).

    A number is its own sign of having arrived, so nothing must be ordered: no fence, no counter.
    """
    if piece < SPLIT - 1:
        tl.store(slot_ptr + piece * SIZE + at, tl.where(acc == acc, acc, float("nan")))  # never the bits of "empty"
    else:
        own, missing = acc, 1
        while missing != 0:
            acc, some = own, tl.zeros(at.shape, tl.int32)
            for s in tl.static_range(SPLIT - 1):
                part = tl.load(slot_ptr + s * SIZE + at, volatile=True)
                some |= (part.to(tl.int32, bitcast=True) == -1).to(tl.int32)
                acc += part
            missing = tl.max(tl.max(some, 1), 0)
        for s in tl.static_range(SPLIT - 1):
            tl.store(slot_ptr + s * SIZE + at, tl.full(at.shape, -1, tl.int32).to(tl.float32, bitcast=True))
    return acc, piece == SPLIT - 1


@triton.jit(do_not_specialize=["M"])
def gemm_skinny_kernel(
    x_ptr, w_ptr, out_ptr, part_ptr, count_ptr, M, N, K, stride_x, stride_w, scale,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHUNKS: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr, EXACT: tl.constexpr, DIRECT: tl.constexpr, AMD: tl.constexpr,
) -> None:  # fmt: skip
    """Columns ``program_id(0) * BN`` of the output, over the ``program_id(1)``-th part of K."""
    tile, piece = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    # Pieces of a row stand one below the other in w, side by side in x.
    wn, wc = tl.arange(0, BN * CHUNKS) // CHUNKS, tl.arange(0, BN * CHUNKS) % CHUNKS
    xm, xc = tl.arange(0, BM * CHUNKS) // CHUNKS, tl.arange(0, BM * CHUNKS) % CHUNKS
    STEP: tl.constexpr = BK * CHUNKS
    steps = tl.cdiv(K, STEP)
    first, last = steps * piece // SPLIT, steps * (piece + 1) // SPLIT
    w_ptr += (tile * BN).to(tl.int64) * stride_w + first * STEP
    x_ptr += first * STEP
    kw, kx = wc[:, None] * BK + rk[None, :], xc[None, :] * BK + rk[:, None]
    at_w, at_x = wn[:, None] * stride_w + kw, xm[None, :] * stride_x + kx
    use_w, use_x = (tile * BN + wn < N)[:, None], (xm < M)[None, :]
    acc = tl.zeros((BN * CHUNKS, BM * CHUNKS), dtype=tl.float32)
    for step in range(first, last):
        left = K - step * STEP
        w = tl.load(w_ptr + at_w, mask=use_w if EVEN_K else use_w & (kw < left), other=0.0)
        x = tl.load(x_ptr + at_x, mask=use_x if EVEN_K else use_x & (kx < left), other=0.0)
        acc = tl.dot(w, x, acc, max_num_imprecise_acc=EXACT)
        w_ptr += STEP
        x_ptr += STEP
    if CHUNKS > 1:  # what belongs together is a piece of w with the same piece of x
        acc = tl.where(wc[:, None] == xc[None, :], acc, 0.0)
        acc = tl.sum(tl.sum(tl.reshape(acc, (BN, CHUNKS, BM, CHUNKS)), 3), 1)
    whole = SPLIT == 1
    at = rn[:, None] * BM + rm[None, :]
    if SPLIT > 1 and DIRECT:
        acc, whole = sum_when_there(part_ptr + tile * ((SPLIT - 1) * BN * BM), at, acc, piece, SPLIT, BN * BM)
    elif SPLIT > 1:
        part_ptr += tile * (SPLIT * BN * BM)
        acc, whole = sum_when_counted(part_ptr, count_ptr + tile, at, acc, piece, SPLIT, BN * BM, AMD)
    if whole:
        out_ptr += tile * BN
        inside = (tile * BN + rn < N)[:, None] & (rm < M)[None, :]
        tl.store(out_ptr + rm[None, :] * N + rn[:, None], (acc * scale).to(out_ptr.dtype.element_ty), mask=inside)


def check_types(x: torch.Tensor, weight: torch.Tensor, arch: str) -> None:
    """fp8 in the form of ``arch``, bfloat16 or float16, the same for both.

    Raises:
        KernelError: another type.
    """
    import torch

    check_dtype("x", x, (*eight_bit_floats(arch), torch.bfloat16, torch.float16))
    check_dtype("weight", weight, (x.dtype,))
    if x.dtype == torch.bfloat16 and arch == "interpreter":
        raise KernelError("x is bfloat16, which Triton's interpreter multiplies wrongly: give float16 here")


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
    """``scale_x * scale_w * (x @ weight.T)`` for 1 to 32 rows.

    Args:
        x: (M, K), M from 1 to 32, in fp8 (FNUZ on gfx942, OCP elsewhere), bfloat16 or float16; contiguous rows.
        weight: (N, K) in x's type, contiguous rows: the layout of ``torch.nn.Linear``.
        scale_x, scale_w: what a stored value must be multiplied by, one number per tensor.
        out_dtype: float16, bfloat16 (default) or float32.
        workspace: see :class:`SkinnyWorkspace`; without one, the calls of a stream share one.
        tile: a launch configuration of your own.

    Returns:
        (M, N), contiguous. The result repeats bit for bit.

    Raises:
        KernelError: shapes, types, devices or strides that do not fit, more than 32 rows, a scale that is not finite,
            a workspace too small.
    """
    scale = check_number("scale_x * scale_w", check_number("scale_x", scale_x) * check_number("scale_w", scale_w))
    if traced():
        import torch

        return torch.ops.rocm_guide.gemm_skinny(x, weight, scale_x, scale_w, out_dtype)
    own = (None,) * 3 if workspace is None else (workspace.partials, workspace.counters, workspace.slots)
    return planned(_plan, (x, weight, *own), out_dtype, tile)(x, weight, scale, *own)


def _plan(
    x: torch.Tensor,
    weight: torch.Tensor,
    partials: torch.Tensor | None,
    counters: torch.Tensor | None,
    slots: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    tile: SkinnyTile | None,
) -> Callable[..., torch.Tensor]:
    import torch

    arch = architecture(x)
    check_types(x, weight, arch)
    check_shape("x", x, (None, None))
    (m, k), n, device = x.shape, weight.shape[0], x.device
    check_shape("weight", weight, (None, k))
    check_same_device(x=x, weight=weight)
    check_last_contiguous("x", x)
    check_last_contiguous("weight", weight)
    if not 1 <= m <= 32:
        raise KernelError(f"x has {m} rows: a skinny GEMM takes 1 to 32; use gemm() for more")
    out_dtype = out_dtype or torch.bfloat16
    allowed = torch.float16, torch.bfloat16, torch.float32
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=device), allowed)
    if n == 0 or k == 0:
        return lambda *_: torch.zeros(m, n, dtype=out_dtype, device=device)
    t = tile or pick_config(n, 8 * x.element_size(), arch, unit_count(x))
    split, tiles = pick_split(n, k, t, unit_count(x)), triton.cdiv(n, t.bn)
    bm = 32 if m > 16 else 16 if m > 8 or t.chunks == 1 else 8  # the product takes 16 columns at least
    size = split * tiles * t.bn * bm
    need = (0, 0, 0) if split == 1 else (0, 0, size) if t.direct else (size, tiles, 0)
    room = {"workspace": partials, "counters": counters, "slots": slots}
    check_same_device(x=x, **room)
    if any(r is not None and r.numel() < least for r, least in zip(room.values(), need, strict=True)):
        raise KernelError(f"the workspace is too small: make it SkinnyWorkspace.on(device, {size}, {tiles})")
    options = compiler_options(arch, {"num_warps": t.warps, "num_stages": t.stages}, matrix=True)
    constants = {
        "BM": bm, "BN": t.bn, "BK": t.bk, "CHUNKS": t.chunks, "SPLIT": split,
        "EVEN_K": k % (t.bk * t.chunks) == 0, "EXACT": t.exact, "DIRECT": t.direct, "AMD": arch.startswith("gfx"),
    }  # fmt: skip
    launch = Launch(gemm_skinny_kernel, (tiles, split), (m, n, k, x.stride(0), weight.stride(0)), constants, options)

    new_out, workspace = maker(x, (m, n), out_dtype), partial(SkinnyWorkspace.on, device)

    def run(x: torch.Tensor, weight: torch.Tensor, scale: float, *own: torch.Tensor | None) -> torch.Tensor:
        out = new_out()
        partials, counters, slots = own
        if partials is None:
            kept = of_stream(SkinnyWorkspace, device, need, workspace)
            partials, counters, slots = kept.partials, kept.counters, kept.slots
        launch(x, weight, out, slots if t.direct else partials, counters, floats=(scale,))
        return out

    return run


def reference_skinny(x: torch.Tensor, weight: torch.Tensor, scale_x: float = 1.0, scale_w: float = 1.0) -> torch.Tensor:
    """The same in float64, as one torch expression.

    >>> import torch
    >>> reference_skinny(torch.ones(1, 4), torch.ones(2, 4), 0.5, 2.0).tolist()
    [[4.0, 4.0]]
    """
    return scale_x * scale_w * (x.double() @ weight.double().T)
