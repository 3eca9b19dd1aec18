# SPDX-License-Identifier: MIT
"""Puzzles with matrix products: without and with the matrix cores, split along K, and with one column."""

from __future__ import annotations

from typing import Any

from cdna.grade.puzzle import MASK, OFFSET, ONE, Case, Expect, Fault, Puzzle, far_apart, reserved
from rocm_guide.dojo.elementwise import beyond, empty, normal

__all__ = ["ACCUMULATE", "LONG", "PRODUCTS", "TAIL", "TILE", "first_block"]

TAIL = "the last block of K reaches past the end: mask it in both operands, other=0"
ACCUMULATE = "the sum runs in fp16: accumulate in fp32 (tl.zeros(..., tl.float32))"
_STRIDES = "an operand is not contiguous: use both of its strides"


def _pair(m: int, n: int, k: int, scale: float = 1.0) -> tuple[Any, ...]:
    return normal(m, k, scale=scale), normal(k, n, seed=1, scale=scale)


LONG = "not all of K is added: the loop over K ends at K, not after a fixed number of steps"
TILE = "each block that is loaded serves one tile: a tile of 64 x 64 or more loads them less often"
_FAULTS = (
    Fault("one block of K is missing at the end: range(0, K, BLOCK)", lambda a, b: a[:, :-16] @ b[:-16]),
    Fault("the same block of b for all of K: its rows move on with k", lambda a, b: first_block(a, b)),
    Fault("a is read with rows and columns exchanged", lambda a, b: a.T @ b if a.shape[0] == a.shape[1] else a @ b),
    Fault("b is read with rows and columns exchanged", lambda a, b: a @ b.T if b.shape[0] == b.shape[1] else a @ b),
)


def first_block(a: Any, b: Any) -> Any:
    """Multiply each block of 32 along K of a with the first of b."""
    return sum(block @ b[: block.shape[1]] for block in a.split(32, 1))


def _product_cases(long: int, counted: int = 64) -> tuple[Case, ...]:
    return (
        Case("64 x 64 x 64", lambda: _pair(64, 64, 64), "row of a times column of b, summed over K"),
        Case("40 x 70 x 64", lambda: _pair(40, 70, 64), MASK + "; M and N need a mask each"),
        Case("32 x 32 x 50", lambda: _pair(32, 32, 50), TAIL),
        Case("1 x 1 x 1", lambda: _pair(1, 1, 1), ONE),
        Case(f"16 x 16 x {long:,}, a long K", lambda: _pair(16, 16, long), LONG),
        Case("sums beyond 65,504", lambda: _pair(32, 32, 64, 60.0), ACCUMULATE),
        Case("a is a transposed view", lambda: (normal(64, 40).T, normal(64, 32, seed=1)), _STRIDES),
        Case("b is a transposed view", lambda: (normal(40, 64), normal(32, 64, seed=1).T), _STRIDES),
        Case("rows of a 2^30 elements apart", lambda: (far_apart(32), normal(32, 16, seed=1)), OFFSET),
        Case("rows of b 2^30 elements apart", lambda: (normal(16, 3), far_apart(32, seed=1)), OFFSET + "; k too"),
        Case(
            f"128 x 128 x {counted}, bytes counted",
            lambda: _pair(128, 128, counted),
            "row of a times column of b",
            traffic=True,
        ),
        beyond(lambda: (reserved(32_832, 2), reserved(2, 65_536)), OFFSET + "; c's too"),
    )


PRODUCTS = (
    Puzzle(
        name="naive_matmul",
        dtype="float32",
        task="naive_matmul(a, b): the product of two fp16 matrices in fp32, without tl.dot",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=_product_cases(1024, counted=16),  # each step takes a millisecond in the interpreter
        shape=lambda device: empty(device, (4096, 4096), (4096, 4096)),
        small=lambda: _pair(64, 64, 64),
        expect=Expect(load_bits=16, waves=4, workgroups=304, traffic=1.4, traffic_fix=TILE),
        faults=_FAULTS,
        relative=1e-4,
    ),
    Puzzle(
        name="matmul",
        dtype="float32",
        task="matmul(a, b): the product of two fp16 matrices in fp32, with the matrix cores (tl.dot)",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=_product_cases(4096),
        shape=lambda device: empty(device, (4096, 4096), (4096, 4096)),
        small=lambda: _pair(128, 128, 64),
        expect=Expect(load_bits=128, mfma=True, waves=2, workgroups=304, traffic=1.7, lines_stored=4, traffic_fix=TILE),
        faults=_FAULTS,
        relative=1e-4,
    ),
    Puzzle(
        name="split_k",
        dtype="float32",
        task="split_k(a, b): the same for a small result and a long K; several programs share one tile",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=(
            Case(
                "32 x 32 x 1,024",
                lambda: _pair(32, 32, 1024),
                "each program adds its own part of K, none twice; the result starts at 0",
            ),
            Case("32 x 48 x 1,000", lambda: _pair(32, 48, 1000), TAIL + "; at the end of each part too"),
            Case("K shorter than the parts", lambda: _pair(16, 16, 20), "a part of K that is empty adds nothing"),
            Case("16 x 16 x 1", lambda: _pair(16, 16, 1), ONE),
            Case("sums beyond 65,504", lambda: _pair(16, 16, 512, 20.0), ACCUMULATE),
            Case("a is a transposed view", lambda: (normal(640, 32).T, normal(640, 32, seed=1)), _STRIDES),
            Case("b is a transposed view", lambda: (normal(32, 640), normal(32, 640, seed=1).T), _STRIDES),
            Case("rows of a 2^30 elements apart", lambda: (far_apart(32), normal(32, 16, seed=1)), OFFSET),
            Case("rows of b 2^30 elements apart", lambda: (normal(16, 3), far_apart(32, seed=1)), OFFSET + "; k too"),
            Case("64 x 64 x 2,048, bytes counted", lambda: _pair(64, 64, 2048), "each part once", traffic=True),
            Case("16 x 16 x 65,536, K as long as the true one", lambda: _pair(16, 16, 65_536), LONG),
        ),
        shape=lambda device: empty(device, (64, 65536), (65536, 64)),
        small=lambda: _pair(64, 64, 512),
        expect=Expect(
            load_bits=128,
            mfma=True,
            waves=2,
            workgroups=304,
            traffic=4,
            lines_stored=4,
            traffic_fix="larger tiles, or fewer parts: each part adds a whole result",
        ),
        faults=_FAULTS,
        absolute=2e-3,
        relative=1e-4,
    ),
    Puzzle(
        name="skinny_gemv",
        dtype="float32",
        task="skinny_gemv(w, x): the fp16 matrix w times the fp16 vector x, in fp32, as in decoding one token",
        formula="w.float() @ x.float()",
        reference=lambda w, x: w @ x,
        cases=(
            Case("16 x 512", lambda: (normal(16, 512), normal(512, seed=1)), "one sum for each row of w"),
            Case("64 x 512", lambda: (normal(64, 512), normal(512, seed=1)), "one sum for each row of w", traffic=True),
            Case("7 x 300", lambda: (normal(7, 300), normal(300, seed=1)), TAIL),
            Case("3 x 1", lambda: (normal(3, 1), normal(1, seed=1)), ONE),
            Case("sums beyond 65,504", lambda: (normal(5, 500, scale=60).abs(), normal(500).abs() * 60), ACCUMULATE),
            Case("rows of 100 in a matrix of 128", lambda: (normal(9, 128)[:, :100], normal(100, seed=1)), _STRIDES),
            Case("x is every second element", lambda: (normal(9, 100), normal(200, seed=1)[::2]), "use x.stride(0)"),
            Case("rows 2^30 elements apart", lambda: (far_apart(32), normal(32, seed=1)), OFFSET),
            Case("3 x 8,192, K as long as the true one", lambda: (normal(3, 8192), normal(8192, seed=1)), LONG),
        ),
        small=lambda: (normal(16, 2048), normal(2048, seed=1)),
        faults=(Fault("x is not used: each row is multiplied by it", lambda w, x: w.sum(1)),),
        shape=lambda device: empty(device, (8192, 8192), (8192,)),
        expect=Expect(load_bits=128, waves=2, workgroups=304, traffic=2.05),
        absolute=2e-3,
        relative=1e-4,
    ),
)
