# SPDX-License-Identifier: MIT
"""A puzzle for Gluon, in which the writer chooses each layout: a linear layer through swizzled LDS."""

from __future__ import annotations

from typing import Any

from cdna.grade.puzzle import MASK, OFFSET, Case, Expect, Fault, Puzzle, far_apart, reserved
from rocm_guide.dojo.elementwise import beyond, empty, normal
from rocm_guide.dojo.products import ACCUMULATE, LONG, TAIL, TILE, first_block

__all__ = ["GLUON", "GLUON_IMPORTS"]

#: What a cell with a Gluon kernel for gfx942 begins with.
GLUON_IMPORTS = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3
"""

_ROW = "row of x times row of w, summed over K"
_TURNED = "w is read with rows and columns exchanged: element (k, n) of the right operand is w[n, k]"


def _operands(m: int, n: int, k: int, scale: float = 1.0) -> tuple[Any, ...]:
    return normal(m, k, scale=scale), normal(n, k, seed=1, scale=scale)


GLUON = (
    Puzzle(
        name="gluon_linear",
        gluon=True,
        dtype="float32",
        task="gluon_linear(x, w): x times w transposed in fp32, as in a linear layer, by a Gluon kernel with the "
        "matrix cores; x [M, K] and w [N, K] are fp16 with contiguous rows, K and both row strides multiples of 16",
        formula="x.float() @ w.float().T",
        reference=lambda x, w: x @ w.T,
        cases=(
            Case("64 x 64 x 64", lambda: _operands(64, 64, 64), _ROW),
            Case("41 x 70 x 64", lambda: _operands(41, 70, 64), MASK + "; M and N need a mask each"),
            Case("32 x 32 x 48", lambda: _operands(32, 32, 48), TAIL),
            Case("16 x 16 x 16", lambda: _operands(16, 16, 16), TAIL + "; K may be shorter than a block"),
            Case("16 x 16 x 4,096, K as long as the true one", lambda: _operands(16, 16, 4096), LONG),
            Case("sums beyond 65,504", lambda: _operands(32, 32, 64, 60.0), ACCUMULATE),
            Case(
                "x: rows of 64 in a matrix of 96 columns",
                lambda: (normal(48, 96)[:, :64], normal(32, 64, seed=1)),
                "the row stride of x is taken for K: use x.stride(0)",
            ),
            Case(
                "w: rows of 64 in a matrix of 96 columns",
                lambda: (normal(48, 64), normal(32, 96, seed=1)[:, :64]),
                "the row stride of w is taken for K: use w.stride(0)",
            ),
            Case("rows of x and of w 2^30 elements apart", lambda: (far_apart(32), far_apart(32, seed=1)), OFFSET),
            Case("128 x 128 x 64, bytes counted", lambda: _operands(128, 128, 64), _ROW, traffic=True),
            beyond(lambda: (reserved(32_832, 16), reserved(65_536, 16)), OFFSET + "; the result's too"),
        ),
        shape=lambda device: empty(device, (8192, 4096), (8192, 4096)),
        small=lambda: _operands(256, 256, 64),
        expect=Expect(
            load_bits=128,
            store_bits=128,
            mfma=True,
            lds=True,
            waves=2,
            workgroups=304,
            traffic=1.7,
            lines_stored=4,
            traffic_fix=TILE,
        ),
        faults=(
            Fault("one block of K is missing at the end: range(0, K, BK)", lambda x, w: x[:, :-16] @ w[:, :-16].T),
            Fault("one block of K is missing at the end: range(0, K, BK)", lambda x, w: x[:, :-32] @ w[:, :-32].T),
            Fault("the same block of w for all of K: it moves on with k", lambda x, w: first_block(x, w.T)),
            Fault(_TURNED, lambda x, w: x @ w if w.shape[0] == w.shape[1] else x @ w.T),
            Fault(
                "the result is stored with rows and columns exchanged: i belongs to SliceLayout(1, …), j to "
                "SliceLayout(0, …)",
                lambda x, w: w @ x.T if x.shape == w.shape else x @ w.T,
            ),
        ),
        relative=1e-4,
    ),
)
