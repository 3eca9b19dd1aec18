# SPDX-License-Identifier: MIT
"""Launches of Hopper's GEMM (:mod:`rocm_guide.kernels.gemm.hopper.kernel`): which products it fits, with what tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from rocm_guide.kernels.arguments import KernelError, architecture, unit_count
from rocm_guide.kernels.direct import of_stream
from rocm_guide.kernels.gemm.hopper.configs import likely_tiles, pick_hopper_tile
from rocm_guide.kernels.gemm.hopper.helpers import LINE, SECTOR, adder, copier, whole_lines
from rocm_guide.kernels.gemm.hopper.kernel import gemm_hopper_kernel
from rocm_guide.kernels.gemm.hopper.tiles import HopperTile
from rocm_guide.kernels.gemm.hopper.times import ACROSS, IN_LINES, IN_SECTORS, ODD, Operands, at_once, group_of
from rocm_guide.kernels.gemm.hopper.wide import columns_fetched
from rocm_guide.kernels.gemm.stream_k import stream_plan
from rocm_guide.kernels.gemm.tiled import check_operands, usual_type
from rocm_guide.kernels.gluon import CLUSTERS, divided, parts_fetched
from rocm_guide.kernels.launch import Launch, describer, maker, planned

__all__ = []


#: Bytes that a program can have of a multiprocessor's.
SHARED_MEMORY = 227 << 10
#: The types of operands and results.
GLUON_TYPES = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.float8_e5m2: gl.float8e5,
}


@dataclass(frozen=True)
class View:
    """How a matrix is read: ``transposed`` (its rows are columns in memory), and from a copy with ``pad``."""

    transposed: bool
    pad: bool

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` as it lies in memory, row by row."""
        return x.T if self.transposed else x

    def way(self, x: torch.Tensor) -> int:
        """How each 128 bytes of a row that a tile asks for lie in the cache, if the first ones are one line of it."""
        pitch = self.rows(x).stride(0) * x.element_size()
        return ODD if self.pad else ACROSS if pitch % SECTOR else IN_SECTORS if pitch % LINE else IN_LINES


def view_of(x: torch.Tensor, may_pad: bool) -> View | None:
    """How the TMA can read ``x``: rows must be contiguous and start at multiples of 16 bytes. None if it cannot."""
    if min(x.shape) == 0:
        return None
    for transposed, view in ((False, x), (True, x.T)):
        if view.stride(1) == 1 and view.stride(0) >= view.shape[1]:
            if x.data_ptr() % 16 == 0 and view.stride(0) * x.element_size() % 16 == 0:
                return View(transposed, False)
            return View(transposed, True) if may_pad else None
    return None


def operands_of(a: torch.Tensor, b: torch.Tensor, a_view: View, b_view: View, out_dtype: torch.dtype) -> Operands:
    """How A, B and C lie in memory, for the choice of a tile."""
    of_c = ODD if b.shape[1] * out_dtype.itemsize % 16 else IN_LINES
    return Operands(a_view.way(a), b_view.way(b), of_c, not a_view.transposed, b_view.transposed)


def views_of(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, may_pad: bool = True
) -> tuple[View, View] | None:
    """How this kernel reads A and B; None where it does not fit the product."""
    narrow = a.element_size() == 1
    if a.dtype == torch.float32 or a.dtype not in GLUON_TYPES or a.dtype != b.dtype or out_dtype not in GLUON_TYPES:
        return None
    if out_dtype.itemsize == 1:
        return None
    a_view, b_view = (view_of(x, may_pad and not narrow) for x in (a, b))
    if a_view is None or b_view is None or (narrow and (a_view.transposed or not b_view.transposed)):
        return None
    return a_view, b_view


def likely_for(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, most: int) -> list[HopperTile]:
    """The tiles of this kernel that are worth timing for a product, see :func:`likely_tiles`; none if it fits none."""
    views = views_of(a, b, out_dtype)
    if views is None:
        return []
    (m, k), n = a.shape, b.shape[1]
    operands = operands_of(a, b, *views, out_dtype)
    return likely_tiles(m, n, k, 8 * a.element_size(), unit_count(a), operands, most, clusters=CLUSTERS)


def plan_hopper(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    plain: bool,
    out_dtype: torch.dtype,
    shape: Sequence[int] = (),
    tile: HopperTile | None = None,
    may_pad: bool = True,
) -> Callable[..., torch.Tensor] | None:
    """What computes products like this one on (a, b, bias, alpha); None where this kernel does not fit them.

    The operands are checked already (:func:`rocm_guide.kernels.gemm.tiled.check_operands`).
    """
    views = views_of(a, b, out_dtype, may_pad)
    if views is None:
        return None
    a_view, b_view = views
    (m, k), n, device = a.shape, b.shape[1], a.device
    units = unit_count(a)
    t = tile or pick_hopper_tile(
        m, n, k, 8 * a.element_size(), units, operands_of(a, b, a_view, b_view, out_dtype), clusters=CLUSTERS
    )
    if t.ctas > 1 and not CLUSTERS:
        raise KernelError(f"{t}: this Triton has no clusters of programs; give a tile with ctas=1, or use Triton 3.9")
    a_view, b_view = (View(v.transposed, v.pad or name in t.copied) for name, v in (("a", a_view), ("b", b_view)))
    # A flipped product is C^T = B^T A^T: its rows are the columns of C.
    rows, columns = (n, m) if t.flip else (m, n)
    tiles_m, tiles_n, steps = triton.cdiv(rows, t.bm), triton.cdiv(columns, t.bn), triton.cdiv(k, t.bk)
    tiles = tiles_m * tiles_n
    split, stream = t.parts > 1, False
    share, programs = t.parts, min(tiles * t.parts, at_once(t, units))
    if t.stream:
        plan = stream_plan(tiles, steps, units)
        stream = plan.shared_tiles > 0
        if stream:
            share, programs = plan.shared_tiles, plan.workers
    written = torch.float32 if split else out_dtype
    strip = t.strip if written.itemsize == 2 else max(8, t.strip // 2)
    to_c = n * written.itemsize % 16 == 0 or split

    def maker_of(x: torch.Tensor, view: View, size: tuple[int, int], shared: int = 0) -> Callable[[torch.Tensor], Any]:
        """What makes the descriptor of a tensor like ``x``, or of its padded copy, for tiles of ``size``.

        The programs of a cluster divide the rows of the kernel among them, or so many have all of a tile and fetch a
        part of its rows in memory (``shared``).
        """
        seen = view.rows(x)
        block = list(size[::-1] if view.transposed else size)
        stride = whole_lines(seen.shape[1], x.element_size()) if view.pad else seen.stride(0)
        along = 0 if shared else int(t.flip != view.transposed)
        cluster = divided(t.ctas, along, parts_fetched(shared, block[0]) if shared else t.ctas)
        layout = gl.NVMMASharedLayout.get_default_for(block, GLUON_TYPES[x.dtype], **cluster)
        base = torch.empty(0, dtype=x.dtype, device=device) if view.pad else x
        return describer(TensorDescriptor(base, list(seen.shape), [stride, 1], block, layout))

    tall, overlap = t.rows * t.ctas, t.overlaps(2.0 * m * n * k)
    wide = t.columns_at_once(8 * a.element_size()) if CLUSTERS else 0
    along = not a_view.transposed if t.flip else b_view.transposed
    fetched = columns_fetched(t.blocks, along, a.element_size()) if wide else t.blocks
    stages = t.stages_in(SHARED_MEMORY, sum(fetched), a.element_size())
    # Programs beside each other have the same rows.
    each, sharers = (t.rows, t.across) if t.across > 1 else (tall, 0)
    if t.flip:
        as_rows = maker_of(b, b_view, (t.bk, each), sharers)
        as_columns = [maker_of(a, a_view, (columns, t.bk), t.down) for columns in fetched if columns]
    else:
        as_rows = maker_of(a, a_view, (each, t.bk), sharers)
        as_columns = [maker_of(b, b_view, (t.bk, columns), t.down) for columns in fetched if columns]
    new_c = maker(a, shape or (m, n), out_dtype)
    whole_rows, whole_columns = tiles_m * t.bm, tiles_n * t.bn
    sums_rows, sums_columns = (whole_columns, whole_rows) if t.flip else (whole_rows, whole_columns)
    new_sums = maker(a, (t.parts * sums_rows, sums_columns), torch.float32) if split else None
    like_c = new_sums() if new_sums else new_c().view(m, n)
    strips = (strip, t.blocks[-1]) if t.blocks[-1] < strip else (strip,)
    as_c = [maker_of(like_c, View(False, False), (width, tall) if t.flip else (tall, width)) for width in strips * to_c]
    ends = {"EPILOGUE": not plain, "BIAS": bias is not None, "ACT": activation}
    add = adder(m, n, t.parts, sums_rows, sums_columns, ends) if split else None
    constants = {
        "TILE": (t.parties, tall, t.width, t.bk, t.ctas, overlap, wide, t.across),
        "BLOCKS": t.blocks,
        "STAGES": stages,
        "STRIP": strip,
        "A_T": not b_view.transposed if t.flip else a_view.transposed,
        "B_T": along,
        "MODE": "split" if split else "stream" if stream else "tiles",
        "EXACT": t.adds if a.element_size() == 1 else "",
        "ENDS": (*((False, False, "none") if split else ends.values()), to_c, t.flip),
        "REGISTERS": t.registers,
    }
    numbers = rows, columns, k, share, group_of(t, m, n, units)
    launch = Launch(gemm_hopper_kernel, (programs,), numbers, constants, t.options(overlap))
    room, new_room = (t.parties * programs * t.rows * t.width, t.parties * programs), partial(sharing_room, device)
    in_memory = [view.rows(x) for x, view in ((a, a_view), (b, b_view)) if view.pad]
    copies = copier(in_memory) if in_memory else None
    del in_memory, like_c

    def run(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, alpha: float) -> torch.Tensor:
        c = new_c()
        if copies:
            found = copies(*(view.rows(x) for x, view in ((a, a_view), (b, b_view)) if view.pad))
            b = found.pop() if b_view.pad else b
            a = found.pop() if a_view.pad else a
        target = new_sums() if new_sums else c
        some = c if split or bias is None else bias
        parts, flags = of_stream(sharing_room, device, room, new_room) if stream else (c, c)
        left, top = (b, a) if t.flip else (a, b)

        def arguments() -> tuple[Any, ...]:
            # A pointer stands for each block that there is not: a descriptor would cost the host more.
            blocks = *(block(top) for block in as_columns), *(c,) * (3 - len(as_columns))
            out = *(store(target) for store in as_c), *(c,) * (2 - len(as_c))
            return (as_rows(left), *blocks, *out, some, parts, flags, *launch.fixed, alpha, *launch.last)

        launch.described((a, b, target, some, parts, flags), arguments, alpha)
        if add:
            add(target, c, bias, alpha)
        return c

    return run


def sharing_room(device: torch.device, sums: int, flags: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for partial sums, and flags that every launch leaves at zero."""
    return torch.empty(sums, device=device), torch.zeros(flags, dtype=torch.int32, device=device)


def gemm_hopper(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tile: HopperTile | None = None,
) -> torch.Tensor:
    """As :func:`rocm_guide.kernels.gemm.tiled.gemm`, on this kernel or not at all.

    Raises:
        KernelError: this kernel does not fit the product.
    """
    plain = activation == "none" and bias is None and alpha == 1.0
    out_dtype = out_dtype or usual_type(a, plain)
    plan = planned(_checked_plan, (a, b, bias), activation, plain, out_dtype, tile)
    return plan(a, b, bias, alpha)


def _checked_plan(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    plain: bool,
    out_dtype: torch.dtype,
    tile: HopperTile | None,
) -> Callable[..., torch.Tensor]:
    check_operands(a, b, bias, architecture(a))
    plan = plan_hopper(a, b, bias, activation, plain, out_dtype, (), tile)
    if plan is None:
        raise KernelError(f"the TMA cannot read a {tuple(a.shape)} or b {tuple(b.shape)}, or their types: use gemm()")
    return plan
