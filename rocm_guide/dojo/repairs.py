# SPDX-License-Identifier: MIT
"""Puzzles that begin with a kernel that is right and slow; the machine code says what is wrong with its ``starter``."""

from __future__ import annotations

from cdna.grade.puzzle import MASK, Case, Expect, Fault, Puzzle, reserved
from rocm_guide.dojo.elementwise import COLUMNS, PLAIN, beyond, empty, normal
from rocm_guide.dojo.products import PRODUCTS

__all__ = ["REPAIRS"]

_NARROW = """
@triton.jit
def halves_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    even = tl.load(x + 2 * i, mask=2 * i < n, other=0.0)
    odd = tl.load(x + 2 * i + 1, mask=2 * i + 1 < n, other=0.0)
    tl.store(y + i, even + odd, mask=2 * i < n)


def pair_sums(x):
    y = torch.empty(x.numel() // 2, dtype=x.dtype, device=x.device)
    halves_kernel[(triton.cdiv(y.numel(), 2048),)](x, y, x.numel(), BLOCK=2048)
    return y
"""

_SPILLS = """
@triton.jit
def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None].to(tl.int64) * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None].to(tl.int64) * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    place = c + i[:, None].to(tl.int64) * N + j[None, :]
    tl.store(place, total, mask=(i[:, None] < M) & (j[None, :] < N))


def lean_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 256), triton.cdiv(N, 256))
    product_kernel[grid](a, b, c, M, N, K, BM=256, BN=256, BK=64, num_warps=4)
    return c
"""

_ROUND_TRIP = """
@triton.jit
def scale_kernel(x, s, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (i[:, None] < M) & (j[None, :] < N)
    rows = tl.load(x + i[:, None].to(tl.int64) * N + j[None, :], mask=inside, other=0.0)
    # Column by column in one long vector, each column next to its own scale.
    f = tl.arange(0, BN * BM)
    row, column = tl.program_id(0) * BM + f % BM, tl.program_id(1) * BN + f // BM
    flat = tl.reshape(tl.trans(rows), (BN * BM,))
    flat *= tl.load(s + column, mask=column < N, other=0.0)
    tl.store(y + row.to(tl.int64) * N + column, flat, mask=(row < M) & (column < N))


def scale_columns(x, s):
    M, N = x.shape
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](x, s, y, M, N, BM=64, BN=64)
    return y
"""


_MATMUL = next(p for p in PRODUCTS if p.name == "matmul")

REPAIRS = (
    Puzzle(
        name="pair_sums",
        task="pair_sums(x): sums of neighbours of the fp16 vector x, whose length is even, less than 2^31; the starter "
        "loads 16 bits at a time",
        formula="x[0::2] + x[1::2]",
        reference=lambda x: x[0::2] + x[1::2],
        cases=(
            Case("4,096 elements", lambda: (normal(4096),), "element i is x[2 i] + x[2 i + 1]", traffic=True),
            Case("1,002 elements", lambda: (normal(1002),), MASK),
            Case("two elements", lambda: (normal(2),), MASK),
            Case("a view that starts at element 3", lambda: (normal(105)[3:],), "pass x, not the start of its storage"),
            Case("100,002 elements", lambda: (normal(100_002),), "as many programs as there are blocks: triton.cdiv"),
        ),
        small=lambda: (normal(8192),),
        faults=(
            Fault("element i is x[2 i] + x[2 i + 1]: the second of each pair is missing", lambda x: x[0::2]),
            Fault(
                "element i is x[2 i] + x[2 i + 1]: here it is x[i] + x[n / 2 + i]",
                lambda x: x[: x.numel() // 2] + x[x.numel() // 2 :],
            ),
        ),
        shape=lambda device: empty(device, (1 << 26,)),
        expect=Expect(load_bits=128, store_bits=64, waves=4, traffic=1.0, workgroups=1024),
        absolute=1e-3,
        starter=_NARROW,
    ),
    Puzzle(
        name="lean_matmul",
        dtype="float32",
        task="lean_matmul(a, b): the product of two contiguous fp16 matrices in fp32; the starter's tile does not fit "
        "into the registers",
        formula="a.float() @ b.float()",
        reference=lambda a, b: a @ b,
        cases=tuple(c for c in _MATMUL.cases if not any(w in c.name for w in ("view", "apart"))),
        shape=_MATMUL.shape,
        small=_MATMUL.small,
        expect=_MATMUL.expect,
        faults=_MATMUL.faults,
        relative=1e-4,
        starter=_SPILLS,
    ),
    Puzzle(
        name="scale_columns",
        task="scale_columns(x, s): each column of the contiguous fp16 matrix x times its element of s; the starter "
        "takes every tile through LDS, for nothing",
        formula="x * s",
        reference=lambda x, s: x * s,
        cases=(
            Case("64 x 128", lambda: (normal(64, 128), normal(128, seed=1)), PLAIN, traffic=True),
            Case("33 x 70", lambda: (normal(33, 70), normal(70, seed=1)), MASK),
            Case("1 x 1", lambda: (normal(1, 1), normal(1, seed=1)), MASK),
            Case("5 x 300", lambda: (normal(5, 300), normal(300, seed=1)), "one scale for each column, not each row"),
            Case("2 x 8,192, rows as long as the true ones", lambda: (normal(2, 8192), normal(8192, seed=1)), COLUMNS),
            beyond(lambda: (reserved(524_296, 4096), normal(4096, seed=1))),
        ),
        small=lambda: (normal(64, 128), normal(128, seed=1)),
        faults=(
            Fault("the scales are not used", lambda x, s: x),
            Fault("divided by its scale: each column is multiplied by it", lambda x, s: x / s),
        ),
        shape=lambda device: empty(device, (16384, 8192), (8192,)),
        expect=Expect(load_bits=128, store_bits=128, waves=4, traffic=1.6, workgroups=1024, lds=False),
        absolute=1e-3,
        starter=_ROUND_TRIP,
    ),
)
