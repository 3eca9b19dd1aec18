# SPDX-License-Identifier: MIT
"""Puzzles that take elements one by one: a sum of vectors, copies, a transpose, a store in FP8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cdna.grade.puzzle import MASK, OFFSET, Case, Expect, Fault, Puzzle, far_apart

__all__ = ["COLUMNS", "ELEMENTWISE", "PLAIN", "STRIDE", "beyond", "empty", "normal", "repeated"]


def normal(*shape: int, seed: int = 0, scale: float = 1.0, dtype: str = "float16") -> Any:
    """Return normally distributed numbers, the same every time.

    >>> normal(2, 3).shape
    torch.Size([2, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).to(getattr(torch, dtype))


def repeated(rows: int, columns: int) -> Any:
    """Return a matrix whose rows are one row of memory, so that only what is made of it can be large."""
    return normal(1, columns).expand(rows, columns)


def empty(device: str, *shapes: tuple[int, ...], dtype: str = "float16") -> tuple[Any, ...]:
    """Return tensors of these shapes on a device.

    >>> empty("meta", (2, 3))[0].shape
    torch.Size([2, 3])
    """
    return tuple(torch.empty(shape, dtype=getattr(torch, dtype), device=device) for shape in shapes)


def beyond(make: Callable[[], tuple[Any, ...]], hint: str = OFFSET) -> Case:
    """Return the case whose output has more than 2^31 elements: only the addresses of the last program are judged."""
    return Case("an output beyond 2^31 elements", make, hint, last=True, wanted=False)


def _two(n: int) -> tuple[Any, ...]:
    return normal(n, dtype="float32"), normal(n, seed=1, dtype="float32")


def _quantise(x: Any, scale: Any) -> Any:
    # The products are rounded to fp32 first, as on the GPU: from float64 a tie could fall the other way.
    scaled = (x.float() / scale.float()).clamp(-240, 240)
    return torch.where(torch.isnan(x), torch.nan, scaled).to(torch.float8_e4m3fnuz).double()


def _with_infinities() -> Any:
    x = normal(2, 40)
    x[0, 3], x[0, 5], x[1, 7] = float("inf"), float("-inf"), float("nan")
    return x


STRIDE = "the row stride is taken for the row length: use x.stride(0), not x.shape[1]"
_COLUMN = "the column stride is taken for 1: multiply the column by x.stride(1)"
COLUMNS = "not all of a long row is covered: a loop over blocks of columns, or as many programs as there are blocks"
PLAIN = "compare your offsets with the reference on paper for 4 x 8 elements"

ELEMENTWISE = (
    Puzzle(
        name="add",
        dtype="float32",
        task="add(x, y): x + y for two contiguous fp32 vectors of one length below 2^31, in fp32",
        formula="x + y",
        reference=lambda x, y: x + y,
        cases=(
            Case("4,096 elements", lambda: _two(4096), "element i of x plus element i of y, each once", traffic=True),
            Case("1,000 elements, no multiple of any block", lambda: _two(1000), MASK),
            Case("one element", lambda: _two(1), MASK),
            Case(
                "views that start at element 3",
                lambda: tuple(t[3:] for t in _two(103)),
                "pass x and y, not the start of their storage",
            ),
            Case("100,003 elements", lambda: _two(100_003), "as many programs as there are blocks: triton.cdiv"),
        ),
        shape=lambda device: empty(device, (1 << 26,), (1 << 26,), dtype="float32"),
        small=lambda: _two(8192),
        expect=Expect(load_bits=128, store_bits=128, waves=8, traffic=1.0, workgroups=1024),
        absolute=1e-6,
        relative=1e-6,
    ),
    Puzzle(
        name="copy",
        task="copy(x): a new tensor with the elements of x, which is contiguous, fp16, of one dimension, and has fewer "
        "than 2^31 elements",
        formula="x.clone()",
        reference=lambda x: x.clone(),
        cases=(
            Case("4,096 elements", lambda: (normal(4096),), "which elements does program 1 copy?", traffic=True),
            Case("1,000 elements, no multiple of any block", lambda: (normal(1000),), MASK),
            Case("one element", lambda: (normal(1),), MASK),
            Case("a view that starts at element 3", lambda: (normal(103)[3:],), "pass x, not the start of its storage"),
            Case("100,003 elements", lambda: (normal(100_003),), "as many programs as there are blocks: triton.cdiv"),
        ),
        shape=lambda device: empty(device, (1 << 26,)),
        small=lambda: (normal(8192),),
        expect=Expect(load_bits=128, store_bits=128, waves=8, traffic=1.0, workgroups=1024),
        moves=True,
        absolute=0,
        relative=0,
    ),
    Puzzle(
        name="strided_copy",
        task="strided_copy(x): a new contiguous tensor with the elements of the fp16 matrix x, whose strides are any",
        formula="x.clone(memory_format=torch.contiguous_format)",
        reference=lambda x: x.contiguous(),
        cases=(
            Case("8 x 64, contiguous", lambda: (normal(8, 64),), PLAIN, traffic=True),
            Case("5 x 100", lambda: (normal(5, 100),), MASK),
            Case("rows of 100 in a matrix of 128 columns", lambda: (normal(5, 128)[:, :100],), STRIDE),
            Case("every second column", lambda: (normal(5, 80)[:, ::2],), _COLUMN),
            Case("a transposed view", lambda: (normal(40, 7).T,), _COLUMN),
            Case("rows 2^30 elements apart", lambda: (far_apart(50),), OFFSET),
            Case("3 x 4,096, rows as long as the true ones", lambda: (normal(3, 4224)[:, :4096],), COLUMNS),
            beyond(lambda: (repeated(524_296, 4096),)),
        ),
        shape=lambda device: (empty(device, (16384, 4224))[0][:, :4096],),
        small=lambda: (normal(64, 640)[:, :512],),
        expect=Expect(load_bits=128, store_bits=128, waves=8, traffic=1.0, workgroups=1024),
        moves=True,
        absolute=0,
        relative=0,
    ),
    Puzzle(
        name="transpose",
        task="transpose(x): a new contiguous tensor, the fp16 matrix x with rows and columns exchanged",
        formula="x.T.contiguous()",
        reference=lambda x: x.T.contiguous(),
        cases=(
            Case("64 x 64", lambda: (normal(64, 64),), "which of the two offsets has rows and columns exchanged?"),
            Case("64 x 128", lambda: (normal(64, 128),), "the output has as many columns as x has rows", traffic=True),
            Case("33 x 70", lambda: (normal(33, 70),), MASK + "; the store needs its own mask, transposed too"),
            Case("rows of 40 in a matrix of 64 columns", lambda: (normal(20, 64)[:, :40],), STRIDE),
            Case("a transposed view", lambda: (normal(40, 24).T,), _COLUMN),
            Case("rows 2^30 elements apart", lambda: (far_apart(50),), OFFSET),
            Case("5 x 8,192, rows as long as the true ones", lambda: (normal(5, 8192),), COLUMNS),
            beyond(lambda: (repeated(540_672, 4096),)),
        ),
        shape=lambda device: empty(device, (8192, 8192)),
        small=lambda: (normal(128, 128),),
        expect=Expect(load_bits=128, store_bits=128, waves=2, traffic=1.0, workgroups=1024, lds=True, conflicts=2.0),
        moves=True,
        absolute=0,
        relative=0,
    ),
    Puzzle(
        name="quantise",
        dtype="float8_e4m3fnuz",
        task="quantise(x, scale): x / scale in float8_e4m3fnuz; values beyond the largest, 240, become the largest; "
        "x is a contiguous fp16 matrix of fewer than 2^31 elements, scale an fp32 tensor with one number",
        formula="(x / scale).clamp(-240, 240).to(torch.float8_e4m3fnuz)",
        reference=_quantise,
        cases=(
            Case("8 x 64", lambda: (normal(8, 64), normal(1, dtype="float32").abs()), PLAIN, traffic=True),
            Case("5 x 51", lambda: (normal(5, 51), normal(1, dtype="float32").abs()), MASK),
            Case(
                "values beyond 240",
                lambda: (normal(4, 64, scale=400), normal(1, dtype="float32").abs() * 0 + 1),
                "clamp before you convert: what does not fit becomes NaN",
            ),
            Case(
                "infinities and a NaN",
                lambda: (_with_infinities(), normal(1, dtype="float32").abs()),
                "tl.minimum and tl.maximum turn NaN into a number unless propagate_nan=tl.PropagateNan.ALL",
            ),
            Case(
                "a small scale",
                lambda: (normal(4, 32, scale=1e-4), normal(1, dtype="float32") * 0 + 1e-6),
                "divide in fp32: fp16 loses x or overflows",
            ),
            Case(
                "3 x 8,192, rows as long as the true ones",
                lambda: (normal(3, 8192), normal(1, dtype="float32").abs()),
                COLUMNS,
            ),
        ),
        shape=lambda device: (*empty(device, (16384, 8192)), *empty(device, (1,), dtype="float32")),
        small=lambda: (normal(8, 1024), normal(1, dtype="float32").abs()),
        expect=Expect(load_bits=128, store_bits=64, waves=4, traffic=1.05, workgroups=1024),
        faults=(
            Fault("divide by the scale, do not multiply", lambda x, scale: _quantise(x, 1 / scale)),
            Fault("the scale is not used: divide by it", lambda x, scale: _quantise(x, scale * 0 + 1)),
            Fault(
                "the largest float8_e4m3fnuz is 240; 224 and 448 belong to other formats",
                lambda x, scale: _quantise(x, scale).clamp(-224, 224),
            ),
        ),
        moves=True,
        absolute=0,
        relative=0,
    ),
)
