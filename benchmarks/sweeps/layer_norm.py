# SPDX-License-Identifier: MIT
"""Ways to bring LayerNorm's backward pass nearer to the speed of a copy, each checked and timed on this GPU.

What the pass must move at 2,048 x 16,384 in bf16 is x and dy in, dx out: 201 MB. What ours moves beyond that: the
partial sums of dw and db, 2 x 132 programs x 16,384 x 4 B = 17 MB, written and read again; and x and dy once more, from
L1 at best, because dw and db of a whole row fill half of the registers of a multiprocessor, so that nothing of the row
outlives the reduction. One program fits on a multiprocessor, and while it reduces and maps, nothing is asked of memory.

The ways: ``fetch`` says where the next row is asked for (into the L2, Hopper only): x or dy or both before this row is
read, or after its reduction; ``widen`` turns bf16 into fp32 with fewer instructions; two ``stages`` fetch the next row
into shared memory instead, and read each row once. For the final sum of the parts: ``drop`` what has been read from the
L2, so that it is not written to memory, and ``overlap`` the two launches. The last line is the course's kernel.

    python -m benchmarks.sweeps.layer_norm [--rows 2048,256] [--cols 16384]
    TRITON_INTERPRET=1 python -m benchmarks.sweeps.layer_norm --check      # only check, without a GPU
"""

from __future__ import annotations

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
import triton
import triton.language as tl

from rocm_guide.kernels.arguments import next_power_of_2, unit_count
from rocm_guide.kernels.hopper import fetch_span, let_next_kernel_start, to_float32
from rocm_guide.kernels.rows.layer_norm import layer_norm_forward
from rocm_guide.kernels.rows.layer_norm_grad import layer_norm_backward
from rocm_guide.kernels.rows.weight_grad import column_sum

FETCHES = ("nothing", "both first", "both after", "x first, dy after", "dy first, x after")


@dataclass(frozen=True)
class Way:
    """What one variant does differently; see the top of the file."""

    warps: int
    fetch: str = "nothing"
    widen: bool = False
    stages: int = 1
    drop: bool = True
    overlap: bool = False

    def __str__(self) -> str:
        names = [n for n in ("widen", "drop", "overlap") if getattr(self, n)] + ["2 stages"] * (self.stages > 1)
        return f"{self.warps:>2} warps, fetch {self.fetch}, {' '.join(names)}"


@triton.jit
def backward_rows(
    x_ptr,
    w_ptr,
    dy_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    part_ptr,
    x_stride,
    rows,
    cols,
    X_FETCH: tl.constexpr,
    DY_FETCH: tl.constexpr,
    WIDEN: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    OVERLAP: tl.constexpr,
    COLS: tl.constexpr,
):
    """dx of every so many rows, dw and db of them. X_FETCH and DY_FETCH: 0 never, 1 first, 2 after the reduction."""
    col, programs = tl.arange(0, COLS), tl.num_programs(0).to(tl.int64)
    inside = tl.full((COLS,), 1, tl.int1) if EVEN else col < cols
    dw = tl.zeros((COLS,), tl.float32)
    db = tl.zeros((COLS,), tl.float32)
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, programs, num_stages=STAGES):
        later = tl.minimum(row + programs, rows - 1)
        if X_FETCH == 1:
            fetch_span(x_ptr + later * x_stride, COLS * 2)
        if DY_FETCH == 1:
            fetch_span(dy_ptr + later * cols, COLS * 2)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0)
        dy = tl.load(dy_ptr + row * cols + col, mask=inside, other=0.0)
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        g = to_float32(dy, WIDEN) * to_float32(tl.load(w_ptr + col, mask=inside, other=0.0), WIDEN)
        h = (to_float32(x, WIDEN) - mean) * rstd
        along, level = tl.split(tl.sum(tl.join(g * h, g), 0) * (1.0 / cols))
        if X_FETCH == 2:
            fetch_span(x_ptr + later * x_stride, COLS * 2)
        if DY_FETCH == 2:
            fetch_span(dy_ptr + later * cols, COLS * 2)
        if STAGES == 1:
            x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0, eviction_policy="evict_first")
            dy = tl.load(dy_ptr + row * cols + col, mask=inside, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last")
        h = (to_float32(x, WIDEN) - mean) * rstd
        dy = to_float32(dy, WIDEN)
        dw += dy * h
        db += dy
        dx = rstd * (dy * to_float32(w, WIDEN) - level - h * along)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        if OVERLAP:
            let_next_kernel_start(tl.maximum(rows - row - programs, 0).to(tl.int32))
    part_ptr += tl.program_id(0).to(tl.int64) * cols
    tl.store(part_ptr + col, dw, mask=inside)
    tl.store(part_ptr + programs * cols + col, db, mask=inside)


def backward(way: Way, x, w, dy, mean, rstd):
    """dx, dw, db."""
    rows, cols = x.shape
    programs, padded = min(rows, unit_count(x)), next_power_of_2(cols)
    dx, parts = torch.empty_like(x), torch.empty(2, programs, cols, dtype=torch.float32, device=x.device)
    when = {
        "nothing": (0, 0),
        "both first": (1, 1),
        "both after": (2, 2),
        "x first, dy after": (1, 2),
        "dy first, x after": (2, 1),
    }[way.fetch]
    backward_rows[(programs,)](
        x,
        w,
        dy,
        mean,
        rstd,
        dx,
        parts,
        x.stride(0),
        rows,
        cols,
        X_FETCH=when[0],
        DY_FETCH=when[1],
        WIDEN=way.widen,
        STAGES=way.stages,
        EVEN=padded == cols,
        OVERLAP=way.overlap,
        COLS=padded,
        num_warps=way.warps,
        num_stages=way.stages,
    )
    return dx, *column_sum(parts, w.dtype, last_use=way.drop, overlap=way.overlap)


def ways(cols: int) -> list[Way]:
    """What is worth trying: 32 to 64 elements per thread of 32-lane warps."""
    found = []
    for warps in (w for w in (4, 8, 16, 32) if 32 <= cols / (w * 32) <= 64):
        found += [Way(warps, drop=False), Way(warps, "both first", drop=False)]
        found += [Way(warps, fetch, widen) for fetch in FETCHES for widen in (False, True)]
        found += [Way(warps, widen=True, stages=2), Way(warps, FETCHES[3], True, overlap=True)]
    return found


def inputs(rows: int, cols: int, dtype, copies: int, device: str):
    """x, w, dy, mean and rstd as (copies, …) tensors."""
    g = torch.Generator(device).manual_seed(rows + cols)
    x, dy = (torch.randn(copies, rows, cols, generator=g, device=device).to(dtype) for _ in range(2))
    w = torch.randn(copies, cols, generator=g, device=device).to(dtype)
    mean = x.float().mean(-1)
    return x, w, dy, mean, (x.float().var(-1, correction=0) + 1e-5).rsqrt()


def check(found: list[Way], rows: int, cols: int, dtype, device: str) -> None:
    """Every way gives what the course's kernel gives, up to fp32's rounding."""
    x, w, dy, _, _ = (t[0] for t in inputs(rows, cols, dtype, 1, device))
    _, mean, rstd = layer_norm_forward(x, w)
    wanted = layer_norm_backward(x, w, dy, mean, rstd)
    for way in found:
        for name, got, true in zip(("dx", "dw", "db"), backward(way, x, w, dy, mean, rstd), wanted, strict=True):
            size = true.double().abs() + true.double().abs().mean()
            off = ((got.double() - true.double()).abs() / size).max().item()
            assert off <= 2 * torch.finfo(dtype).eps + 2e-5, f"{way}: {name} off by {off:.2g} at {rows} x {cols}"
    print(f"{len(found)} ways right at {rows} x {cols} in {dtype}", flush=True)


def compile_ahead(job: tuple[Way, int]) -> None:
    """Fill Triton's cache, in a process of its own."""
    way, cols = job
    backward(way, *(t[0] for t in inputs(unit_count(torch.empty(0, device="cuda")), cols, torch.bfloat16, 1, "cuda")))


def measure(rows: int, cols: int) -> None:
    """Time all ways at one size; the course's kernel last."""
    from benchmarks.timing import copies_past_cache, copy_bandwidth, time_graph

    read = 4 * rows * cols
    data = inputs(rows, cols, torch.bfloat16, copies_past_cache(read), "cuda")
    copy, moved = copy_bandwidth(2 * rows * cols), 6 * rows * cols
    print(
        f"\n{rows} x {cols}: must move {moved / 1e6:.0f} MB, {moved / copy / 1e3:.1f} us at the speed of a copy "
        f"of this size ({copy:.0f} GB/s)"
    )
    contenders = {str(w): (lambda *a, w=w: backward(w, *a)) for w in ways(cols)}
    for name, f in {**contenders, "the course's kernel": layer_norm_backward}.items():
        t = time_graph(lambda i, f=f: lambda: f(*(t[i] for t in data)), read, replays=11)
        print(f"{t.us:8.2f} us {t.gb_s(moved) / copy:6.1%} of copy   {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="2048,256")
    parser.add_argument("--cols", default="16384", help="powers of two")
    parser.add_argument("--check", action="store_true", help="check small sizes and end")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    every = [w for w in ways(16384) if gpu or (w.fetch == "nothing" and not w.widen)]
    if options.check:
        for rows, cols in ((1, 64), (5, 300), (7, 1000), (9, 2048)):
            # Rows are fetched whole and by 16 bytes: no way to ask for the next one here.
            check([w for w in every if w.fetch == "nothing"], rows, cols, torch.float32, "cuda" if gpu else "cpu")
        return
    for cols, rows in itertools.product(*(map(int, s.split(",")) for s in (options.cols, options.rows))):
        with ProcessPoolExecutor(8, mp_context=get_context("spawn")) as pool:
            list(pool.map(compile_ahead, [(way, cols) for way in ways(cols)]))
        check(ways(cols), rows, cols, torch.bfloat16, "cuda")
        measure(rows, cols)


if __name__ == "__main__":
    main()
