# SPDX-License-Identifier: MIT
"""One matrix product as a ladder of kernels, each complete, from one element at a time to eight waves in turns.

C = A B for contiguous fp16 matrices A (M, K) and B (K, N); C is fp16, the sums are fp32. K must be a multiple of the
block along K; M and N may be any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl

__all__ = ["RUNGS", "Rung", "multiply"]


@triton.jit
def naive_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + row * K + k).to(tl.float32)
        b = tl.load(b_ptr + k * N + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += a * b
    tl.store(c_ptr + row * N + cols, total.to(tl.float16), mask=cols < N)


@triton.jit
def tiled_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + (rows % M) * K + k).to(tl.float32)
        b = tl.load(b_ptr + k * N + cols % N).to(tl.float32)
        total += a[:, None] * b[None, :]
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    place = rows[:, None].to(tl.int64) * N + cols[None, :]
    tl.store(c_ptr + place, total.to(tl.float16), mask=inside)


@triton.jit
def dot_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_tile = a_ptr + (rows % M)[:, None] * K + k[None, :]
    b_tile = b_ptr + k[:, None] * N + (cols % N)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BK
        b_tile += BK * N
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    place = rows[:, None].to(tl.int64) * N + cols[None, :]
    tl.store(c_ptr + place, total.to(tl.float16), mask=inside)


@triton.jit
def tile_of(t, tiles_m, tiles_n, GROUP: tl.constexpr, XCDS: tl.constexpr):
    # Workgroup t runs on die t % XCDS: give each die a stretch of the walk that has no gaps.
    each = tl.cdiv(tiles_m * tiles_n, XCDS)
    full = tiles_m * tiles_n - (each - 1) * XCDS  # dies with a whole stretch; the others have one tile less
    t = t % XCDS * each - tl.maximum(t % XCDS - full, 0) + t // XCDS
    # Walk GROUP rows of tiles together, column by column, so that neighbours share A and B.
    first = t // (GROUP * tiles_n) * GROUP
    high = tl.minimum(tiles_m - first, GROUP)
    return first + t % (GROUP * tiles_n) % high, t % (GROUP * tiles_n) // high


@triton.jit
def xcd_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             GROUP: tl.constexpr, XCDS: tl.constexpr):  # fmt: skip
    row, col = tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP, XCDS)
    rows, cols, k = row * BM + tl.arange(0, BM), col * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_tile = a_ptr + (rows % M)[:, None] * K + k[None, :]
    b_tile = b_ptr + k[:, None] * N + (cols % N)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BK
        b_tile += BK * N
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    place = rows[:, None].to(tl.int64) * N + cols[None, :]
    tl.store(c_ptr + place, total.to(tl.float16), mask=inside)


@triton.jit
def persistent_gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    XCDS: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    k = tl.arange(0, BK)
    for t in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        row, col = tile_of(t, tiles_m, tiles_n, GROUP, XCDS)
        rows, cols = row * BM + tl.arange(0, BM), col * BN + tl.arange(0, BN)
        a_tile = a_ptr + (rows % M)[:, None] * K + k[None, :]
        b_tile = b_ptr + k[:, None] * N + (cols % N)[None, :]
        total = tl.zeros((BM, BN), tl.float32)
        for _ in range(0, K, BK):
            total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
            a_tile += BK
            b_tile += BK * N
        inside = (rows[:, None] < M) & (cols[None, :] < N)
        place = rows[:, None].to(tl.int64) * N + cols[None, :]
        tl.store(c_ptr + place, total.to(tl.float16), mask=inside)


@dataclass(frozen=True)
class Rung:
    """One step of the ladder: a kernel, its constants and its options.

    ``block`` is the step along K; ``grid`` names how the workgroups are numbered: ``rows`` (one for each row and
    piece of columns), ``tiles`` (two dimensions), ``line`` (one dimension, row by row), ``walk`` (one dimension, by
    ``tile_of``), ``units`` (one for each compute unit).
    """

    name: str
    kernel: Any
    constants: dict[str, int]
    grid: str
    options: dict[str, int] = field(default_factory=dict)

    @property
    def block(self) -> int:
        """Elements along K of one turn of the loop."""
        return self.constants.get("BK", 1)

    def workgroups(self, m: int, n: int, units: int = 304) -> tuple[int, ...]:
        """Return the grid for a product of that size on a GPU with ``units`` compute units."""
        down, across = triton.cdiv(m, self.constants.get("BM", 1)), triton.cdiv(n, self.constants["BN"])
        if self.grid in ("rows", "tiles"):
            return down, across
        return (down * across,) if self.grid in ("line", "walk") else (min(units, down * across),)

    def order(self, m: int, n: int) -> list[tuple[int, int]]:
        """Return the row and column of each tile in the order in which they begin: of ``tile_of`` or of the grid.

        >>> RUNGS[5].order(1024, 1024)[:3]
        [(0, 0), (2, 0), (0, 1)]
        >>> Rung("row by row", None, {"BM": 256, "BN": 256}, "line").order(512, 768)[:4]
        [(0, 0), (0, 1), (0, 2), (1, 0)]
        """
        down, across = triton.cdiv(m, self.constants.get("BM", 1)), triton.cdiv(n, self.constants["BN"])
        if self.grid in ("rows", "tiles"):
            return [(p % down, p // down) for p in range(down * across)]
        if self.grid == "line":
            return [(p // across, p % across) for p in range(down * across)]
        group, xcds = self.constants["GROUP"], self.constants["XCDS"]
        each = triton.cdiv(down * across, xcds)
        full = down * across - (each - 1) * xcds
        found = []
        for p in range(down * across):
            die, turn = p % xcds, p // xcds
            t = die * each - max(die - full, 0) + turn
            first = t // (group * across) * group
            high = min(down - first, group)
            found.append((first + t % (group * across) % high, t % (group * across) // high))
        return found


_SMALL, _LARGE = {"BM": 128, "BN": 128, "BK": 32}, {"BM": 256, "BN": 256, "BK": 32}
_WALKED = {**_LARGE, "GROUP": 4, "XCDS": 8}
_PIPED = {"num_stages": 2, "matrix_instr_nonkdim": 16}
_EIGHT = {**_PIPED, "num_warps": 8}
#: The ladder, from the bottom.
RUNGS = (
    Rung("naive", naive_gemm, {"BN": 256}, "rows"),
    Rung("tiled", tiled_gemm, {"BM": 64, "BN": 64}, "tiles"),
    Rung("matrix cores", dot_gemm, _SMALL, "tiles", {"num_stages": 1}),
    Rung("pipelined", dot_gemm, _SMALL, "tiles", _PIPED),
    Rung("ping-pong", dot_gemm, _LARGE, "tiles", _EIGHT),
    Rung("XCD order", xcd_gemm, _WALKED, "walk", _EIGHT),
    Rung("persistent", persistent_gemm, _WALKED, "units", _EIGHT),
)


def multiply(rung: Rung, a: Any, b: Any) -> Any:
    """Multiply by one rung; ``a`` (M, K) and ``b`` (K, N) contiguous fp16 on a GPU or in the interpreter.

    Options that only AMD's compiler knows are left out on other GPUs.
    """
    import torch

    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=torch.float16, device=a.device)
    options = dict(rung.options)
    if torch.version.hip is None and a.device.type == "cuda":
        options.pop("matrix_instr_nonkdim", None)
    units = torch.cuda.get_device_properties(a.device).multi_processor_count if a.device.type == "cuda" else 304
    rung.kernel[rung.workgroups(m, n, units)](a, b, c, m, n, k, **rung.constants, **options)
    return c
