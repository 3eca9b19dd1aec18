# SPDX-License-Identifier: MIT
"""Small products of every layout, type and size of one: what the mapping rules of tunableop_blas are learnt from.

Each experiment has sizes of its own, because PyTorch records a product only the first time it sees it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

LAYOUTS = ("row", "col", "row_pad", "col_pad", "gaps", "expand0", "expand1")


class Sizes:
    """Triples of sizes that no other experiment uses."""

    def __init__(self) -> None:
        self.triples = self.pairs = self.singles = 0

    def __call__(self) -> list[int]:
        # Multiples of 8 keep every back end happy.
        i = self.triples
        self.triples += 1
        return [8 * (2 + i % 16), 8 * (18 + i // 16 % 16), 8 * (34 + i // 256)]

    def with_ones(self, ones: tuple[int, int, int]) -> list[int]:
        """Return size 1 where ``ones`` says so; the rest is new as a pair, or as a single number."""
        if sum(ones) > 1:
            self.singles += 1
            rest = [8 * (200 + self.singles)] * 2
        else:
            i = self.pairs
            self.pairs += 1
            rest = [8 * (60 + i % 40), 8 * (101 + i // 40)]
        return [1 if one else rest.pop() for one in ones]


def matrix(rows: int, cols: int, layout: str, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a [rows, cols] tensor in one of LAYOUTS."""
    if layout == "row":
        return torch.zeros(rows, cols, dtype=dtype, device=device)
    if layout == "col":
        return torch.zeros(cols, rows, dtype=dtype, device=device).t()
    if layout == "row_pad":
        return torch.zeros(rows, cols + 8, dtype=dtype, device=device)[:, :cols]
    if layout == "col_pad":
        return torch.zeros(cols, rows + 8, dtype=dtype, device=device)[:, :rows].t()
    if layout == "gaps":
        return torch.zeros(rows, 2 * cols, dtype=dtype, device=device)[:, ::2]
    if layout == "expand0":
        return torch.zeros(1, cols, dtype=dtype, device=device).expand(rows, cols)
    return torch.zeros(rows, 1, dtype=dtype, device=device).expand(rows, cols)


def batched(b: int, rows: int, cols: int, layout: str, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a [b, rows, cols] tensor: the layouts of attention and of broadcast weights."""
    z = {"dtype": dtype, "device": device}
    if layout == "row":
        return torch.zeros(b, rows, cols, **z)
    if layout == "col":
        return torch.zeros(b, cols, rows, **z).transpose(1, 2)
    if layout == "row_pad":
        return torch.zeros(b, rows, cols + 8, **z)[:, :, :cols]
    if layout == "col_pad":
        return torch.zeros(b, cols, rows + 8, **z)[:, :, :rows].transpose(1, 2)
    if layout == "heads":  # [rows, b, cols] seen per head
        return torch.zeros(rows, b, cols, **z).transpose(0, 1)
    if layout == "heads_t":
        return torch.zeros(cols, b, rows, **z).permute(1, 2, 0)
    if layout == "gaps":
        return torch.zeros(b, rows, 2 * cols, **z)[:, :, ::2]
    if layout == "batch0":
        return torch.zeros(1, rows, cols, **z).expand(b, rows, cols)
    if layout == "expand1":
        return torch.zeros(b, rows, 1, **z).expand(b, rows, cols)
    return torch.zeros(b, 1, cols, **z).expand(b, rows, cols)


def experiments() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield (name, function of the device) pairs; each function makes its tensors and runs one operation."""
    sizes = Sizes()
    half, bf16, f32 = torch.float16, torch.bfloat16, torch.float32
    for la, lb in itertools.product(LAYOUTS, LAYOUTS):
        m, n, k = sizes()
        yield (
            f"mm {la} {lb} fp16",
            lambda d, a=(m, k, la), b=(k, n, lb): torch.mm(*(matrix(*x, dtype=half, device=d) for x in (a, b))),
        )
    for dtype in (bf16, f32, torch.float64, torch.complex64):
        for la, lb in (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")):
            m, n, k = sizes()
            yield (
                f"mm {la} {lb} {dtype}",
                lambda d, a=(m, k, la), b=(k, n, lb), t=dtype: torch.mm(
                    *(matrix(*x, dtype=t, device=d) for x in (a, b))
                ),
            )
    ones = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    for one, la, lb in itertools.product(ones, LAYOUTS[:4], LAYOUTS[:4]):
        m, n, k = sizes.with_ones(one)
        yield (
            f"mm ones={one} {la} {lb}",
            lambda d, a=(m, k, la), b=(k, n, lb): torch.mm(*(matrix(*x, dtype=half, device=d) for x in (a, b))),
        )
    for bias, dtype, (la, lb) in itertools.product(
        ("1d", "row", "full", "one", "strided"), (half, f32), (("row", "col"), ("row", "row"), ("col", "row"))
    ):
        m, n, k = sizes()

        def addmm(d, m=m, n=n, k=k, la=la, lb=lb, bias=bias, t=dtype):
            shape = {"1d": (n,), "row": (1, n), "full": (m, n), "one": (1,), "strided": (n,)}[bias]
            c = (
                torch.zeros(*shape, dtype=t, device=d)
                if bias != "strided"
                else torch.zeros(2 * n, dtype=t, device=d)[::2]
            )
            return torch.addmm(c, matrix(m, k, la, t, d), matrix(k, n, lb, t, d))

        yield f"addmm bias={bias} {la} {lb} {dtype}", addmm
    for dtype in (torch.float64, bf16, torch.complex64):
        m, n, k = sizes()
        yield (
            f"addmm bias=1d row col {dtype}",
            lambda d, s=(m, n, k), t=dtype: torch.addmm(
                torch.zeros(s[1], dtype=t, device=d), matrix(s[0], s[2], "row", t, d), matrix(s[2], s[1], "col", t, d)
            ),
        )
    for beta, alpha in ((0, 1), (0.5, 1), (1, 2)):
        m, n, k = sizes()
        yield (
            f"addmm beta={beta} alpha={alpha}",
            lambda d, s=(m, n, k), beta=beta, alpha=alpha: torch.addmm(
                torch.zeros(s[1], dtype=half, device=d),
                matrix(s[0], s[2], "row", half, d),
                matrix(s[2], s[1], "col", half, d),
                beta=beta,
                alpha=alpha,
            ),
        )
    for one, (la, lb) in itertools.product(ones, (("row", "col"), ("row", "row"), ("row_pad", "col"), ("col", "col"))):
        m, n, k = sizes.with_ones(one)
        yield (
            f"addmm ones={one} {la} {lb}",
            lambda d, m=m, n=n, k=k, la=la, lb=lb: torch.addmm(
                torch.zeros(n, dtype=half, device=d), matrix(m, k, la, half, d), matrix(k, n, lb, half, d)
            ),
        )
    m, n, k = sizes()
    yield (
        "addmm in place",
        lambda d, s=(m, n, k): torch.zeros(s[0], s[1], dtype=half, device=d).addmm_(
            matrix(s[0], s[2], "row", half, d), matrix(s[2], s[1], "col", half, d)
        ),
    )
    m, n, k = sizes()
    yield (
        "_addmm_activation relu",
        lambda d, s=(m, n, k): torch._addmm_activation(
            torch.zeros(s[1], dtype=half, device=d),
            matrix(s[0], s[2], "row", half, d),
            matrix(s[2], s[1], "col", half, d),
        ),
    )
    yield from linear_experiments(sizes)
    yield from batched_experiments(sizes)
    yield from attention_experiments(sizes)


def linear_experiments(sizes: Sizes) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield nn.Linear with inputs of two to four dimensions, slices, one token, one feature, and its backward pass."""
    shapes = {"2d": 2, "3d": 3, "4d": 4, "3d last token": 3, "3d one token": 3, "3d batch one": 3, "3d transposed": 3}
    for (what, _), bias, dtype in itertools.product(shapes.items(), (True, False), (torch.bfloat16, torch.float32)):
        t, (_, n, k) = 24, sizes.with_ones((1, 0, 0))

        def run(d, what=what, bias=bias, dtype=dtype, t=t, n=n, k=k, grad=False):
            z = {"dtype": dtype, "device": d}
            x = {
                "2d": lambda: torch.zeros(t, k, **z),
                "3d": lambda: torch.zeros(2, t, k, **z),
                "4d": lambda: torch.zeros(2, 3, t, k, **z),
                "3d last token": lambda: torch.zeros(3, t, k, **z)[:, -1:],
                "3d one token": lambda: torch.zeros(1, 1, k, **z),
                "3d batch one": lambda: torch.zeros(1, t, k, **z),
                "3d transposed": lambda: torch.zeros(t, 2, k, **z).transpose(0, 1),
            }[what]()
            w = torch.zeros(n, k, **z, requires_grad=True)
            b = torch.zeros(n, **z, requires_grad=True) if bias else None
            y = F.linear(x.requires_grad_(grad), w, b)
            return y.sum().backward() if grad else y

        yield f"linear {what} bias={bias} {dtype}", run
        t, (_, n, k) = 24, sizes.with_ones((1, 0, 0))
        yield (
            f"linear+backward {what} bias={bias} {dtype}",
            lambda d, r=run, s=(t, n, k): r(d, t=s[0], n=s[1], k=s[2], grad=True),
        )
    for bias in (True, False):
        t, (_, _, k) = 24, sizes.with_ones((1, 0, 0))
        yield (
            f"linear to one feature bias={bias}",
            lambda d, t=t, k=k, bias=bias: F.linear(
                torch.zeros(2, t, k, dtype=torch.float16, device=d),
                torch.zeros(1, k, dtype=torch.float16, device=d),
                torch.zeros(1, dtype=torch.float16, device=d) if bias else None,
            ),
        )


def batched_experiments(sizes: Sizes) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield bmm, baddbmm, matmul with broadcasting, einsum, matrix-vector."""
    layouts = ("row", "col", "row_pad", "col_pad", "heads", "heads_t", "gaps", "batch0", "expand1", "expand2")
    half = torch.float16
    for la, lb in itertools.product(layouts, layouts):
        m, n, k = sizes()
        yield (
            f"bmm {la} {lb}",
            lambda d, a=(3, m, k, la), b=(3, k, n, lb): torch.bmm(*(batched(*x, dtype=half, device=d) for x in (a, b))),
        )
    ones = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)]
    for one, batch, la, lb in itertools.product(ones, (3, 1), layouts[:6], layouts[:6]):
        m, n, k = sizes.with_ones(one)
        yield (
            f"bmm ones={one} batch={batch} {la} {lb}",
            lambda d, a=(batch, m, k, la), b=(batch, k, n, lb): torch.bmm(
                *(batched(*x, dtype=half, device=d) for x in (a, b))
            ),
        )
    for dtype, batch in itertools.product((torch.float32, torch.bfloat16, torch.float64), (1, 2)):
        m, n, k = sizes()
        yield (
            f"bmm batch={batch} {dtype}",
            lambda d, b=batch, s=(m, n, k), t=dtype: torch.bmm(
                batched(b, s[0], s[2], "row", t, d), batched(b, s[2], s[1], "col", t, d)
            ),
        )
    for shape in ("same", "row"):
        m, n, k = sizes()
        yield (
            f"baddbmm {shape}",
            lambda d, s=(m, n, k), shape=shape: torch.baddbmm(
                torch.zeros(3, s[0] if shape == "same" else 1, s[1], dtype=half, device=d),
                batched(3, s[0], s[2], "row", half, d),
                batched(3, s[2], s[1], "row", half, d),
            ),
        )
    m, n, k = sizes()
    yield (
        "matmul 4d heads",
        lambda d, s=(m, n, k): torch.matmul(
            torch.zeros(2, s[0], 3, s[2], dtype=half, device=d).transpose(1, 2),
            torch.zeros(2, s[1], 3, s[2], dtype=half, device=d).permute(0, 2, 3, 1),
        ),
    )
    m, n, k = sizes()
    yield (
        "einsum",
        lambda d, s=(m, n, k): torch.einsum(
            "bik,bjk->bij",
            torch.zeros(3, s[0], s[2], dtype=half, device=d),
            torch.zeros(3, s[1], s[2], dtype=half, device=d),
        ),
    )
    for dtype, layout in itertools.product((half, torch.bfloat16, torch.float32), LAYOUTS):
        m, _, k = sizes()
        yield (
            f"mv {layout} {dtype}",
            lambda d, m=m, k=k, t=dtype, layout=layout: torch.mv(
                matrix(m, k, layout, t, d), torch.zeros(2 * k, dtype=t, device=d)[::2]
            ),
        )
    for (types, out), rowwise, bias in itertools.product(
        (
            ((torch.float8_e4m3fn, torch.float8_e4m3fn), torch.bfloat16),
            ((torch.float8_e5m2, torch.float8_e4m3fn), torch.float16),
        ),
        (False, True),
        (False, True),
    ):
        m, n, k = (16 * size // 8 for size in sizes())

        def scaled(d, m=m, n=n, k=k, types=types, out=out, rowwise=rowwise, bias=bias):
            scales = [torch.ones((m, 1) if rowwise else (), device=d), torch.ones((1, n) if rowwise else (), device=d)]
            a, b = matrix(m, k, "row", types[0], d), matrix(k, n, "col", types[1], d)
            return torch._scaled_mm(
                a, b, *scales, bias=torch.zeros(n, dtype=out, device=d) if bias else None, out_dtype=out
            )

        yield f"_scaled_mm {types} {out} rowwise={rowwise} bias={bias}", scaled


def attention_experiments(sizes: Sizes) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield the cases that show when scaled_dot_product_attention asks BLAS for products."""
    for dtype, mask, gqa, causal, head in itertools.product(
        (torch.bfloat16, torch.float32), (None, "bool", "float"), (False, True), (False, True), (64, 100, 128, 256, 264)
    ):
        if mask is not None and causal:
            continue
        rows, cols, _ = sizes()

        def run(d, dtype=dtype, mask=mask, gqa=gqa, causal=causal, head=head, rows=rows, cols=cols):
            z = {"dtype": dtype, "device": d}
            cols = rows if causal else cols
            q = torch.zeros(2, 8, rows, head, **z)
            k, v = (torch.zeros(2, 2 if gqa else 8, cols, head, **z) for _ in "kv")
            m = None
            if mask is not None:
                m = torch.ones(2, 1, rows, cols, dtype=torch.bool if mask == "bool" else dtype, device=d)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=m, is_causal=causal, enable_gqa=gqa)

        yield f"sdpa {dtype} mask={mask} gqa={gqa} causal={causal} head={head}", run
