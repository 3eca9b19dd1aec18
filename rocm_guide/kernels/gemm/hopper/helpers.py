# SPDX-License-Identifier: MIT
"""Two small kernels around the GEMM of Hopper: one copies matrices before it, one adds up partial sums after it.

The TMA engine reads rows that start at multiples of 16 bytes. A matrix with other rows is copied first. So are some
large ones whose rows are not whole lines of the cache: it asks for 128 bytes of a row at a time, once where they lie in
one line, twice where they lie across two, and these requests are then what a product waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.gemm.tiles import activate, to_int64
from rocm_guide.kernels.hopper import let_next_kernel_start, wait_for_kernel_before
from rocm_guide.kernels.launch import Launch, maker

__all__ = []

#: Bytes of a line of the cache: rows of copies start at multiples of it.
LINE = 128
#: Bytes of a sector, of which a line has four: what the cache hands out at least.
SECTOR = 32
#: The same for the kernel that copies, and bytes of what it reads at a time.
LINE_BYTES, WORD = tl.constexpr(LINE), tl.constexpr(8)
#: Elements that one program copies.
COPIED = 8192
#: Rows and columns that one program adds up.
ADDED = 8, 128


@triton.jit
def copy_block(x_ptr, y_ptr, program, sizes, FORM: tl.constexpr):
    """Block ``program`` of a copy, with sizes (rows, bytes of a row, bytes from row to row), to rows of whole lines.

    It reads whole words of 8 bytes: also the first and the last of a row, of which other bytes may belong to others.
    FORM: whether words of the copy consist of two that are read, as rows start at any byte; words of a block, of a row
    of it and in all.
    """
    rows, nbytes, stride = sizes
    SHIFTED: tl.constexpr = FORM[0]
    ACROSS: tl.constexpr = FORM[1]
    DOWN: tl.constexpr = FORM[2] // ACROSS
    words = tl.cdiv(nbytes, WORD)
    across = tl.cdiv(words, ACROSS)
    row = (program // across) * DOWN + tl.arange(0, DOWN)
    at = (program % across) * ACROSS + tl.arange(0, ACROSS)
    inside = (row < rows)[:, None] & (at < words)[None, :]
    begin = x_ptr.to(tl.int64, bitcast=True) + row.to(tl.int64) * stride
    place = (begin & -WORD)[:, None] + at[None, :] * WORD
    source = place.to(tl.pointer_type(tl.uint64), bitcast=True)
    x = tl.load(source, mask=inside)
    if SHIFTED:
        bits = ((begin & (WORD - 1)) * 8).to(tl.uint64)[:, None]
        # No bits of the next word are needed where a row starts with a word: 64 of them cannot be shifted out.
        more = inside & (bits > 0) & (place + WORD < (begin + nbytes)[:, None])
        following = tl.load(source + 1, mask=more, other=0)
        x = (x >> bits) | (following << tl.where(bits > 0, 64 - bits, 0))
    target = y_ptr.to(tl.pointer_type(tl.uint64), bitcast=True)
    target += row.to(tl.int64)[:, None] * (tl.cdiv(nbytes, LINE_BYTES) * (LINE_BYTES // WORD)) + at[None, :]
    tl.store(target, x, mask=inside)


@triton.jit(do_not_specialize=["blocks", "rows", "nbytes", "stride", "other_rows", "other_nbytes", "other_stride"])
def copy_rows_kernel(
    x_ptr,
    y_ptr,
    other_x_ptr,
    other_y_ptr,
    blocks,
    rows,
    nbytes,
    stride,
    other_rows,
    other_nbytes,
    other_stride,
    FORM: tl.constexpr,
    OTHER_FORM: tl.constexpr,
    PDL: tl.constexpr,
):
    """Copy one matrix by the first ``blocks`` programs, and another one by the others.

    PDL: the kernel starts while the one before it is still finishing, and lets the next one do so.
    """
    if PDL:
        wait_for_kernel_before()
        let_next_kernel_start(0)
    program = tl.program_id(0)
    if program < blocks:
        copy_block(x_ptr, y_ptr, program, (rows, nbytes, stride), FORM)
    else:
        other_sizes = (other_rows, other_nbytes, other_stride)
        copy_block(other_x_ptr, other_y_ptr, program - blocks, other_sizes, OTHER_FORM)


@triton.jit(do_not_specialize=["M", "part_rows"])
def add_tiles_kernel(
    part_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    part_rows,
    part_columns,
    alpha,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
    ACT: tl.constexpr,
    PDL: tl.constexpr,
):
    """C = act(alpha * (sum of PARTS parts) + bias), added in order; each part is a matrix of whole tiles.

    PDL: as of the kernel that copies.
    """
    if PDL:
        wait_for_kernel_before()
        let_next_kernel_start(0)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < M)[:, None] & (col < N)[None, :]
    # Parts have whole tiles, so nothing is outside them as long as the tile of a program divides theirs.
    part_ptr += row.to(tl.int64)[:, None] * part_columns + col[None, :]
    x = tl.load(part_ptr, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        x += tl.load(part_ptr + part * (to_int64(part_rows) * part_columns), mask=inside, other=0.0)
    if EPILOGUE:
        x = x * alpha
        if BIAS:
            x += tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)[None, :]
        x = activate(x, ACT)
    tl.store(c_ptr + row.to(tl.int64)[:, None] * N + col[None, :], x.to(c_ptr.dtype.element_ty), mask=inside)


def whole_lines(columns: int, size: int) -> int:
    """The pitch of a copy: at least ``columns`` elements of ``size`` bytes, in whole lines of the cache."""
    return triton.cdiv(columns * size, LINE) * LINE // size


def copier(matrices: Sequence[torch.Tensor], overlap: bool = True) -> Callable[..., list[torch.Tensor]]:
    """For a plan: what copies one or two matrices like these, so that rows are whole lines of the cache.

    ``overlap``: whether it starts while the kernel before it is still finishing.
    """
    makers, sizes, forms = [], [], []
    for x in matrices:
        size = x.element_size()
        nbytes, stride = x.shape[1] * size, x.stride(0) * size
        words = triton.cdiv(nbytes, WORD.value)
        across = 128 if words < 1024 else 1024
        area = COPIED * size // WORD.value
        blocks = triton.cdiv(words, across) * triton.cdiv(x.shape[0], area // across)
        makers.append(maker(x, (x.shape[0], whole_lines(x.shape[1], size))))
        sizes.append((blocks, x.shape[0], nbytes, stride))
        forms.append(((stride | x.data_ptr()) % WORD.value > 0, across, area))
    first, last = sizes[0], sizes[-1]
    launch = Launch(
        copy_rows_kernel,
        (sum(blocks for blocks, *_ in sizes),),
        (*first, *last[1:]),
        {"FORM": forms[0], "OTHER_FORM": forms[-1], "PDL": overlap},
        {"num_warps": 8} | ({"launch_pdl": True} if overlap else {}),
    )

    def copies(*matrices: torch.Tensor) -> list[torch.Tensor]:
        found = [make() for make in makers]
        launch(matrices[0], found[0], matrices[-1], found[-1])
        return found

    return copies


def adder(
    m: int, n: int, parts: int, rows: int, columns: int, constants: dict[str, Any], overlap: bool = True
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, float], None]:
    """For a plan: what adds ``parts`` matrices of (rows, columns) in fp32 and stores (m, n) of the result.

    ``overlap``: whether it starts while the kernel before it is still finishing.
    """
    sizes = {"PARTS": parts, "ROWS": ADDED[0], "COLUMNS": ADDED[1]}
    launch = Launch(
        add_tiles_kernel,
        (triton.cdiv(m, ADDED[0]), triton.cdiv(n, ADDED[1])),
        (m, n, rows, columns),
        {**sizes, **constants, "PDL": overlap},
        {"launch_pdl": True} if overlap else {},
    )

    def add(sums: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None, alpha: float) -> None:
        launch(sums, c, c if bias is None else bias, floats=(alpha,))

    return add
