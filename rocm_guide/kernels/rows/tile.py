# SPDX-License-Identifier: MIT
"""What the row kernels share: a tensor seen as rows, and the tile that a launch uses for a row length.

A program of a row kernel holds a tile of ``rows`` x ``columns`` elements. Short rows are taken several at a time, so
that every lane has a 16-byte load to make; a row that fits into the registers of 16 waves is read once; a longer one
is walked through in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from rocm_guide.kernels.arguments import (
    KernelError,
    check_contiguous,
    check_dtype,
    check_last_contiguous,
    check_shape,
    choose,
    next_power_of_2,
)

__all__ = ["RowTile"]

#: The types of the row kernels' inputs.
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class RowTile:
    """A launch configuration.

    Attributes:
        columns: the longest row (padded to a power of two) that it serves; for ``blocked`` the block's width.
        rows: rows of one program.
        warps: waves of one program.
        stages: loads of this many steps ahead are under way, in kernels that loop over rows; 1 = no pipelining.
        per_unit: programs per compute unit, in kernels that loop over rows.
        blocked: whether the row is walked through in blocks of ``columns``.
        max_rows: serves launches of up to this many rows only; 0 = any number.
        reload: backward kernels only: read the row again after the reduction (from the cache) and keep less in
            registers across it.
        defer_weight: forward norms only: load weight and bias after the reduction, which keeps registers free until
            then.
        split: in backward kernels, sum up the weight's gradient in a kernel of its own.
        aligned: serves only rows whose length and distance are multiples of 8 elements. Others cannot be loaded wide,
            and the many addresses take registers.
        only_16_bit: serves types of 16 bits only: with wider ones it runs out of registers.
        registers: most registers of a thread, so that two programs fit on a multiprocessor (NVIDIA only); 0 = free.
        last_first: in softmax's backward kernel, start with the last rows: what the forward pass wrote last may be in
            the cache still.
        prefetch: LayerNorm on Hopper only: fetch the row that comes this many times the compute units later into the L2
            while this one is computed, and let the kernels of a pass overlap. Serves only whole tiles of aligned rows.
    """

    columns: int
    rows: int
    warps: int
    stages: int = 1
    per_unit: int = 1
    blocked: bool = False
    max_rows: int = 0
    reload: bool = False
    defer_weight: bool = False
    split: bool = False
    aligned: bool = False
    only_16_bit: bool = False
    registers: int = 0
    last_first: bool = False
    prefetch: int = 0

    @property
    def options(self) -> dict[str, int]:
        """What the launch passes to the compiler."""
        return {"num_warps": self.warps} | ({"maxnreg": self.registers} if self.registers else {})

    def fetches(self, *tensors: torch.Tensor) -> bool:
        """Whether rows of these (rows, columns) can be fetched ahead: one per program, which fills the tile.

        All must start at 16 bytes.
        """
        whole = self.prefetch > 0 and self.rows == 1 and all(next_power_of_2(n := t.shape[1]) == n for t in tensors)
        return whole and all(t.data_ptr() % 16 == 0 and t.stride(0) % 8 == 0 for t in tensors)


def as_rows(name: str, x: torch.Tensor) -> torch.Tensor:
    """``x`` (…, columns) seen as (rows, columns) without copying; rows may be any distance apart.

    Raises:
        KernelError: not a float tensor of one dimension or more with columns, or its layout is no list of rows.

    >>> import torch
    >>> as_rows("x", torch.zeros(2, 3, 8)).shape, as_rows("x", torch.zeros(4, 16)[:, :8]).stride()
    (torch.Size([6, 8]), (16, 1))
    """
    check_dtype(name, x, FLOATS)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise KernelError(f"{name} has shape {tuple(x.shape)}: give at least one column")
    check_last_contiguous(name, x)
    try:
        return x.view(-1, x.shape[-1]) if x.numel() else x.new_empty(0, x.shape[-1])
    except RuntimeError as e:
        raise KernelError(f"{name} with strides {x.stride()} is no list of rows: call .contiguous()") from e


def check_vectors(count: int, allowed: Sequence[torch.dtype] = FLOATS, **vectors: torch.Tensor | None) -> None:
    """Each vector (None is skipped) has ``count`` neighbouring elements of an allowed type.

    Raises:
        KernelError: one has not; it is named.
    """
    for name, v in vectors.items():
        if v is not None:
            check_dtype(name, v, allowed)
            check_shape(name, v, (count,))
            check_contiguous(name, v)


def pick_row_tile(
    table: Mapping[str, tuple[RowTile, ...]], arch: str, rows: int, columns: int, stride: int = 0, bits: int = 16
) -> RowTile:
    """The first tile of the architecture's list that serves ``columns`` of ``bits`` and ``rows``; or the blocked one.

    A tile of several rows is cut to one where its last offset (rows x ``stride``) would not fit into 32 bits.

    >>> table = {"gfx942": (RowTile(1024, 8, 4), RowTile(16384, 1, 16), RowTile(4096, 1, 16, blocked=True))}
    >>> pick_row_tile(table, "gfx942", 100, 1000).rows, pick_row_tile(table, "gfx942", 100, 70000).blocked
    (8, True)
    """
    padded, odd = next_power_of_2(columns), columns % 8 or stride % 8
    for tile in choose(table, arch):
        fits = padded <= tile.columns and (not tile.max_rows or rows <= tile.max_rows) and not (tile.aligned and odd)
        fits = fits and not (tile.only_16_bit and bits > 16)
        if tile.blocked or fits:
            if tile.rows * max(stride, columns) >= 1 << 31:
                return replace(tile, rows=1)
            return tile
    raise KernelError(f"{columns} columns: the configuration of {arch} has no blocked tile")
