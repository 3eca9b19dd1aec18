# SPDX-License-Identifier: MIT
"""Puzzles that reduce rows: a sum, softmax in one pass and online, RMSNorm."""

from __future__ import annotations

from typing import Any

import torch

from cdna.grade.puzzle import OFFSET, ONE, Case, Expect, Fault, Puzzle, far_apart
from rocm_guide.dojo.elementwise import COLUMNS, STRIDE, beyond, empty, normal, repeated

__all__ = ["ROWS"]

_HALF = "the reduction runs in fp16: .to(tl.float32) before you add"
_MAXIMUM = "exp overflows: subtract the row's maximum first"
_NEUTRAL = "what masked lanes hold takes part in the reduction: other=-inf for a maximum, 0 for a sum"


def _norm_case(rows: int, columns: int, scale: float = 1.0, eps: float = 1e-5) -> tuple[Any, ...]:
    return normal(rows, columns, scale=scale), normal(columns, seed=1), eps


def _with_nan() -> Any:
    x = normal(3, 60)
    x[1, 30] = float("nan")
    return x


def _with_infinity() -> Any:
    x = normal(3, 60)
    x[0, :20] = float("-inf")
    return x


def _norm_grad(x: Any, w: Any, dy: Any, eps: float) -> Any:
    """Return what RMSNorm passes back to x."""
    r, g = (x.square().mean(1, keepdim=True) + eps).rsqrt(), dy * w
    return r * (g - x * r * r * (g * x).mean(1, keepdim=True))


def _grad_case(rows: int, columns: int, scale: float = 1.0, eps: float = 1e-5) -> tuple[Any, ...]:
    x, w, eps = _norm_case(rows, columns, scale, eps)
    return x, w, normal(rows, columns, seed=2), eps


def _one_above(columns: int) -> Any:
    """Return scores from 0 to 1 and one of 9 in each row: fp16 rounds differences by up to 1/256."""
    x = torch.rand(2, columns, generator=torch.Generator().manual_seed(3)).half()
    x[:, columns // 3] = 9
    return x


def _many_rows() -> Any:
    """Return rows of 4,096, eight more than 2^31 elements have."""
    return repeated((1 << 19) + 8, 4096)


def _softmax_cases(columns: int, true: int) -> tuple[Case, ...]:
    """Return the same cases for softmax in one pass and online."""
    return (
        Case(
            f"4 x {columns}",
            lambda: (normal(4, columns),),
            "exp(x - maximum) / sum of these: which of the three is wrong?",
            traffic=True,
        ),
        Case("3 x 1,000", lambda: (normal(3, 1000) - 8,), _NEUTRAL),
        Case("3 x 1", lambda: (normal(3, 1),), ONE),
        Case("values near 1,000", lambda: (normal(3, 200, scale=20) + 1000,), _MAXIMUM),
        Case("values near -1,000", lambda: (normal(3, 200, scale=20) - 1000,), _MAXIMUM),
        Case("-inf in a third of a row", lambda: (_with_infinity(),), "a maximum that starts at 0 or at -1e4?"),
        Case("rows of 100 in a matrix of 128 columns", lambda: (normal(5, 128)[:, :100],), STRIDE),
        Case("rows 2^30 elements apart", lambda: (far_apart(50),), OFFSET),
        Case("a NaN in a row", lambda: (_with_nan(),), "a NaN makes its whole row NaN, and no other row"),
        Case(f"2 x {true:,}, rows as long as the true ones", lambda: (normal(2, true),), COLUMNS),
        Case("scores from 0 to 1 and one of 9", lambda: (_one_above(2000),), _HALF + " or subtract"),
        beyond(lambda: (_many_rows(),)),
    )


def _not_rescaled(block: int) -> Any:
    """Make softmax whose running sum is not rescaled when a later block of columns has a larger maximum."""

    def wrong(x: Any) -> Any:
        parts = x.split(block, 1)
        tops = torch.stack([p.max(1)[0] for p in parts], 1).cummax(1)[0]
        total = sum((p - tops[:, i, None]).exp().sum(1, keepdim=True) for i, p in enumerate(parts))
        return (x - tops[:, -1:]).exp() / total

    return wrong


_SOFTMAX_FAULTS = (
    Fault("the sum runs down the columns: each row by itself, axis 0 of its vector", lambda x: x.softmax(0)),
    Fault("divide by the sum", lambda x: (x - x.max(1, keepdim=True)[0]).exp()),
    Fault("softmax of the negative scores: the maximum is subtracted from x", lambda x: (-x).softmax(1)),
)


ROWS = (
    Puzzle(
        name="row_sum",
        dtype="float32",
        task="row_sum(x): the sums of the rows of the fp16 matrix x, in fp32",
        formula="x.float().sum(1)",
        reference=lambda x: x.sum(1),
        cases=(
            Case("8 x 64", lambda: (normal(8, 64),), "one sum for each row: check the axis", traffic=True),
            Case("5 x 77", lambda: (normal(5, 77),), "masked lanes must add 0: other=0"),
            Case("3 x 1", lambda: (normal(3, 1),), ONE),
            Case("3 x 4,096, rows as long as the true ones", lambda: (normal(3, 4096),), COLUMNS),
            Case("sums beyond 65,504, the largest fp16", lambda: (normal(4, 1000).abs() * 200,), _HALF),
            Case("many small parts", lambda: (normal(2, 4000, scale=0.01) + 1,), _HALF),
            Case("rows of 40 in a matrix of 64 columns", lambda: (normal(5, 64)[:, :40],), STRIDE),
            Case("rows 2^30 elements apart", lambda: (far_apart(50),), OFFSET),
            Case("a NaN in a row", lambda: (_with_nan(),), "a NaN makes its own sum NaN, and no other"),
        ),
        shape=lambda device: empty(device, (16384, 4096)),
        small=lambda: (normal(4, 4096),),
        faults=(
            Fault("this is the mean: the sum is not divided by the columns", lambda x: x.mean(1)),
            Fault("this is the maximum of each row: tl.sum adds", lambda x: x.max(1)[0]),
            Fault("only the last block's sum is kept: total += tl.sum(…)", lambda x: x[:, x.shape[1] // 2 :].sum(1)),
        ),
        expect=Expect(load_bits=128, waves=4, traffic=1.01, workgroups=1024),
        absolute=2e-3,
        relative=1e-5,
    ),
    Puzzle(
        name="softmax",
        task="softmax(x): softmax of each row of the fp16 matrix x, in fp16; each row is read once",
        formula="torch.softmax(x, 1)",
        reference=lambda x: x.softmax(1),
        cases=_softmax_cases(512, 8192),
        shape=lambda device: empty(device, (4096, 8192)),
        small=lambda: (normal(2, 8192),),
        expect=Expect(load_bits=128, store_bits=128, waves=4, traffic=1.0, workgroups=1024),
        faults=_SOFTMAX_FAULTS,
        absolute=1e-7,
    ),
    Puzzle(
        name="softmax_online",
        task="softmax_online(x): softmax of each row of the fp16 matrix x, in fp16, for rows too long for registers; "
        "each row is read twice at most",
        formula="torch.softmax(x, 1)",
        reference=lambda x: x.softmax(1),
        cases=_softmax_cases(5000, 65_536),
        shape=lambda device: empty(device, (2048, 65536)),
        small=lambda: (normal(2, 4096),),
        expect=Expect(load_bits=128, store_bits=128, waves=4, traffic=1.5, workgroups=304),
        faults=(
            *_SOFTMAX_FAULTS,
            *(
                Fault("when the maximum grows, the running sum is rescaled by exp(old - new)", _not_rescaled(block))
                for block in (256, 512, 1024, 2048, 4096)
            ),
        ),
        absolute=1e-7,
    ),
    Puzzle(
        name="rms_norm",
        task="rms_norm(x, w, eps): x / sqrt(mean(x * x) + eps) * w for each row of the fp16 matrix x, in fp16",
        formula="x * (x.square().mean(1, keepdim=True) + eps).rsqrt() * w",
        reference=lambda x, w, eps: x * (x.square().mean(1, keepdim=True) + eps).rsqrt() * w,
        cases=(
            Case("4 x 512", lambda: _norm_case(4, 512), "divide by the number of columns, and multiply by w", True),
            Case("3 x 100", lambda: _norm_case(3, 100), "the mean divides by the columns of x, not by the block"),
            Case("3 x 1", lambda: _norm_case(3, 1), ONE),
            Case("values near 300", lambda: _norm_case(3, 100, 300), "squares overflow fp16: .to(tl.float32) first"),
            Case("a row of zeros", lambda: _norm_case(3, 64, 0.0), "eps belongs under the root"),
            Case("a large eps", lambda: _norm_case(3, 64, 1.0, 0.5), "eps belongs under the root, added to the mean"),
            Case(
                "rows of 40 in a matrix of 64 columns",
                lambda: (normal(5, 64)[:, :40], normal(40, seed=1), 1e-5),
                STRIDE,
            ),
            Case("rows 2^30 elements apart", lambda: (far_apart(50), normal(50, seed=1), 1e-5), OFFSET),
            Case("a NaN in a row", lambda: (_with_nan(), normal(60), 1e-5), "a NaN makes its own row NaN, no other"),
            Case("2 x 8,192, rows as long as the true ones", lambda: _norm_case(2, 8192), COLUMNS),
            beyond(lambda: (_many_rows(), normal(4096, seed=1), 1e-5)),
        ),
        small=lambda: _norm_case(2, 8192),
        faults=(
            Fault("multiply by w", lambda x, w, eps: x * (x.square().mean(1, keepdim=True) + eps).rsqrt()),
            Fault(
                "the squares are added, and not divided by the number of columns",
                lambda x, w, eps: x * (x.square().sum(1, keepdim=True) + eps).rsqrt() * w,
            ),
            Fault(
                "this is LayerNorm's: RMSNorm subtracts no mean",
                lambda x, w, eps: (x - x.mean(1, keepdim=True)) * (x.var(1, False, keepdim=True) + eps).rsqrt() * w,
            ),
            Fault(
                "eps belongs under the root, added to the mean",
                lambda x, w, eps: x / (x.square().mean(1, keepdim=True).sqrt() + eps) * w,
            ),
        ),
        shape=lambda device: (*empty(device, (4096, 8192), (8192,)), 1e-5),
        expect=Expect(load_bits=128, store_bits=128, waves=4, traffic=1.5, workgroups=1024),
        absolute=1e-4,
    ),
    Puzzle(
        name="rms_norm_backward",
        task="rms_norm_backward(x, w, dy, eps): the gradient of RMSNorm for x, given that of its output, all fp16; "
        "each tensor is read once",
        formula="r * (dy * w - x * r * r * (dy * w * x).mean(1, keepdim=True)), r = (x.square().mean(1) + eps).rsqrt()",
        reference=_norm_grad,
        cases=(
            Case("4 x 512", lambda: _grad_case(4, 512), "two sums for each row: of x * x and of dy * w * x", True),
            Case("3 x 100", lambda: _grad_case(3, 100), "both means divide by the columns of x, not by the block"),
            Case("3 x 1", lambda: _grad_case(3, 1), ONE),
            Case("values near 300", lambda: _grad_case(3, 100, 300), "squares overflow fp16: .to(tl.float32) first"),
            Case("a large eps", lambda: _grad_case(3, 64, 1.0, 0.5), "eps belongs under the root, added to the mean"),
            Case(
                "rows of 40 in matrices of 64 columns",
                lambda: (normal(5, 64)[:, :40], normal(40, seed=1), normal(5, 48, seed=2)[:, :40], 1e-5),
                STRIDE + "; x and dy have one each",
            ),
            Case(
                "rows 2^30 elements apart",
                lambda: (far_apart(50), normal(50, seed=1), normal(3, 50, seed=2), 1e-5),
                OFFSET,
            ),
            Case(
                "rows of dy 2^30 elements apart",
                lambda: (normal(3, 50, seed=2), normal(50, seed=1), far_apart(50), 1e-5),
                OFFSET + "; dy's too",
            ),
            Case("2 x 8,192, rows as long as the true ones", lambda: _grad_case(2, 8192), COLUMNS),
            beyond(lambda: (_many_rows(), normal(4096, seed=1), _many_rows(), 1e-5)),
        ),
        small=lambda: _grad_case(2, 8192),
        faults=(
            Fault(
                "the second term is missing: the root depends on x too",
                lambda x, w, dy, eps: (x.square().mean(1, keepdim=True) + eps).rsqrt() * dy * w,
            ),
            Fault("dy is multiplied by w first", lambda x, w, dy, eps: _norm_grad(x, w * 0 + 1, dy, eps)),
        ),
        shape=lambda device: (*empty(device, (4096, 8192), (8192,), (4096, 8192)), 1e-5),
        expect=Expect(load_bits=128, store_bits=128, waves=4, traffic=1.5, workgroups=1024),
        absolute=2e-3,
    ),
)
