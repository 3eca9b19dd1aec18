# SPDX-License-Identifier: MIT
"""Puzzles with matrix products: without and with the matrix cores, split along K, and with one column."""

from __future__ import annotations

from typing import Any

from rocm_guide.dojo.elementwise import MASK, OFFSET, normal
from rocm_guide.dojo.puzzle import Case, Expect, Puzzle, rows_far_apart

__all__ = ["PRODUCTS"]

_TAIL = "the last block of K reaches past the end: mask it in both operands, other=0"
_ACCUMULATE = "the sum runs in fp16: accumulate in fp32 (tl.zeros(..., tl.float32))"
_STRIDES = "an operand is not contiguous: use both of its strides"


def _pair(m: int, n: int, k: int, scale: float = 1.0) -> tuple[Any, ...]:
    return normal(m, k, scale=scale), normal(k, n, seed=1, scale=scale)


def _meta(device: str, *shapes: tuple[int, int]) -> tuple[Any, ...]:
    import torch

    return tuple(torch.empty(*s, dtype=torch.float16, device=device) for s in shapes)


def _product_cases() -> tuple[Case, ...]:
    return (
        Case("64 x 64 x 64", lambda: _pair(64, 64, 64), "row of a times column of b, summed over K"),
        Case("40 x 70 x 64", lambda: _pair(40, 70, 64), MASK + "; M and N need a mask each"),
        Case("32 x 32 x 50", lambda: _pair(32, 32, 50), _TAIL),
        Case("1 x 1 x 1", lambda: _pair(1, 1, 1), MASK),
        Case("sums beyond 65,504", lambda: _pair(32, 32, 256, 25.0), _ACCUMULATE),
        Case("a is a transposed view", lambda: (normal(64, 40).T, normal(64, 32, seed=1)), _STRIDES),
        Case("b is a transposed view", lambda: (normal(40, 64), normal(32, 64, seed=1).T), _STRIDES),
        Case("rows of a 2^30 elements apart", lambda: (rows_far_apart(32), normal(32, 16, seed=1)), OFFSET),
    )


PRODUCTS = (
    Puzzle(
        name="naive_matmul",
        task="naive_matmul(a, b): the product of two fp16 matrices in fp32, without tl.dot",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=_product_cases(),
        shape=lambda device: _meta(device, (4096, 4096), (4096, 4096)),
        expect=Expect(),
        relative=1e-4,
    ),
    Puzzle(
        name="matmul",
        task="matmul(a, b): the product of two fp16 matrices in fp32, with the matrix cores (tl.dot)",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=_product_cases(),
        shape=lambda device: _meta(device, (4096, 4096), (4096, 4096)),
        expect=Expect(load_bits=128, mfma=True, waves=2, workgroups=304),
        relative=1e-4,
    ),
    Puzzle(
        name="split_k",
        task="split_k(a, b): the same for a small result and a long K; several programs share one tile",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=(
            Case(
                "32 x 32 x 1,024",
                lambda: _pair(32, 32, 1024),
                "each program adds its own part of K, none twice; the result starts at 0",
            ),
            Case("32 x 48 x 1,000", lambda: _pair(32, 48, 1000), _TAIL + "; at the end of each part too"),
            Case("K shorter than the parts", lambda: _pair(16, 16, 20), "a part of K that is empty adds nothing"),
            Case("sums beyond 65,504", lambda: _pair(16, 16, 512, 20.0), _ACCUMULATE),
            Case("a is a transposed view", lambda: (normal(640, 32).T, normal(640, 32, seed=1)), _STRIDES),
        ),
        shape=lambda device: _meta(device, (64, 65536), (65536, 64)),
        expect=Expect(load_bits=128, mfma=True, workgroups=304),
        absolute=2e-3,
        relative=1e-4,
    ),
    Puzzle(
        name="skinny_gemv",
        task="skinny_gemv(w, x): the fp16 matrix w times the fp16 vector x, in fp32, as in decoding one token",
        formula="w.float() @ x.float()",
        reference=lambda w, x: w @ x,
        cases=(
            Case("16 x 512", lambda: (normal(16, 512), normal(512, seed=1)), "one sum for each row of w"),
            Case("64 x 512", lambda: (normal(64, 512), normal(512, seed=1)), "one sum for each row of w", traffic=True),
            Case("7 x 300", lambda: (normal(7, 300), normal(300, seed=1)), _TAIL),
            Case("sums beyond 65,504", lambda: (normal(5, 500, scale=60).abs(), normal(500).abs() * 60), _ACCUMULATE),
            Case("rows of 100 in a matrix of 128", lambda: (normal(9, 128)[:, :100], normal(100, seed=1)), _STRIDES),
            Case("rows 2^30 elements apart", lambda: (rows_far_apart(32), normal(32, seed=1)), OFFSET),
        ),
        shape=lambda device: (*_meta(device, (8192, 8192)), _meta(device, (1, 8192))[0][0]),
        expect=Expect(load_bits=128, waves=2, workgroups=304, traffic=2.05),
        absolute=2e-3,
        relative=1e-4,
    ),
)
