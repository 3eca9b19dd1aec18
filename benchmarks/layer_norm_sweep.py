# SPDX-License-Identifier: MIT
"""Ways to bring LayerNorm's backward pass nearer to the speed of a copy, each checked and timed on this GPU.

What the pass must move at 2,048 x 16,384 in bf16 is x and dy in, dx out: 201 MB. What ours moves beyond that: the
partial sums of dw and db, 2 x 132 programs x 16,384 x 4 B = 17 MB, written and read again (the L2 holds them); and x
and dy once more, from L1 at best, because dw and db of a whole row fill half of the registers of a multiprocessor, so
that nothing of the row outlives the reduction. One program fits on a multiprocessor, and while it reduces and maps,
nothing is asked of memory.

The ways: ``fold`` needs fewer operations after the reduction; ``ahead`` asks for the next rows before it (into the L2,
NVIDIA only); ``pairs`` reduces two rows at once; ``halves`` gives half of the columns to a program, so that two fit;
two ``stages`` fetch the next row into shared memory; ``reload`` reads the row again after the reduction; ``even`` drops
the masks of rows that fill the tile (the course's kernel does). A way that wins belongs into
rocm_guide/kernels/layer_norm_grad.py.

    python benchmarks/layer_norm_sweep.py [--rows 2048,256] [--cols 16384]
    TRITON_INTERPRET=1 python benchmarks/layer_norm_sweep.py --check      # only check, without a GPU
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
import triton
import triton.language as tl

from rocm_guide.kernels import norm_weight_grad
from rocm_guide.kernels.hopper import fetch_span
from rocm_guide.kernels.launch import architecture, next_power_of_2, unit_count
from rocm_guide.kernels.layer_norm import layer_norm_forward
from rocm_guide.kernels.layer_norm_grad import layer_norm_backward
from rocm_guide.kernels.norm_weight_grad import column_sum


@dataclass(frozen=True)
class Way:
    """What one variant does differently; see the top of the file."""

    warps: int
    fold: bool = False
    ahead: int = 0
    even: bool = False
    stages: int = 1
    reload: bool = True
    pairs: bool = False
    halves: bool = False

    def __str__(self) -> str:
        names = [n for n in ("fold", "even", "reload", "pairs", "halves") if getattr(self, n)]
        names += [f"{self.ahead} ahead in L2"] * bool(self.ahead) + [f"{self.stages} stages"] * (self.stages > 1)
        return f"{self.warps:>2} warps {' '.join(names)}"


@triton.jit
def products(x_ptr, w_ptr, dy_ptr, mean, rstd, col, inside):
    """Of one row: what is summed for dx, dy * w * h and dy * w, side by side."""
    x = tl.load(x_ptr + col, mask=inside, other=0.0)
    dy = tl.load(dy_ptr + col, mask=inside, other=0.0)
    g = dy.to(tl.float32) * tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
    return x, dy, tl.join(g * ((x.to(tl.float32) - mean) * rstd), g)  # beyond the row's end g is 0


@triton.jit
def finish(x, dy, x_ptr, w_ptr, dy_ptr, dx_ptr, mean, rstd, along, level, dw, db, col, inside,
           FOLD: tl.constexpr, RELOAD: tl.constexpr):  # fmt: skip
    """dx of one row; dw and db with it."""
    if RELOAD:
        x = tl.load(x_ptr + col, mask=inside, other=0.0, eviction_policy="evict_first")
        dy = tl.load(dy_ptr + col, mask=inside, other=0.0, eviction_policy="evict_first")
    w = tl.load(w_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    centred, dy = x.to(tl.float32) - mean, dy.to(tl.float32)
    dw += dy * (centred * rstd)
    db += dy
    if FOLD:
        dx = dy * w * rstd - (level * rstd + centred * (along * rstd * rstd))
    else:
        dx = rstd * (dy * w - level - centred * rstd * along)
    tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    return dw, db


@triton.jit
def backward_rows(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, x_stride, rows, cols,
    FOLD: tl.constexpr, AHEAD: tl.constexpr, EVEN: tl.constexpr, RELOAD: tl.constexpr, PAIRS: tl.constexpr,
    STAGES: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """dx of every so many rows, dw and db of them; one row at a time, or two with one reduction."""
    col, programs = tl.arange(0, COLS), tl.num_programs(0).to(tl.int64)
    inside = tl.full((COLS,), 1, tl.int1) if EVEN else col < cols
    dw = tl.zeros((COLS,), tl.float32)
    db = tl.zeros((COLS,), tl.float32)
    start = tl.program_id(0).to(tl.int64)
    GROUP: tl.constexpr = 2 if PAIRS else 1
    for step in tl.static_range(GROUP, AHEAD):  # what no round of the loop asks for
        early = tl.minimum(start + step * programs, rows - 1)
        fetch_span(x_ptr + early * x_stride, COLS * 2)
        fetch_span(dy_ptr + early * cols, COLS * 2)
    for row in tl.range(start, rows, programs * GROUP, num_stages=STAGES):
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        x0, dy0, both = products(x_ptr + row * x_stride, w_ptr, dy_ptr + row * cols, mean, rstd, col, inside)
        second = tl.minimum(row + programs, rows - 1)
        if PAIRS:
            mean1, rstd1 = tl.load(mean_ptr + second), tl.load(rstd_ptr + second)
            x1, dy1, more = products(
                x_ptr + second * x_stride, w_ptr, dy_ptr + second * cols, mean1, rstd1, col, inside
            )
            both = tl.join(both, more)
        if AHEAD > 0:
            for step in tl.static_range(GROUP):
                later = tl.minimum(row + (AHEAD + step) * programs, rows - 1)
                fetch_span(x_ptr + later * x_stride, COLS * 2)
                fetch_span(dy_ptr + later * cols, COLS * 2)
        sums = tl.sum(both, 0) * (1.0 / cols)
        if PAIRS:
            first, last = tl.split(sums)
            along1, level1 = tl.split(last)
            along, level = tl.split(first)
        else:
            along, level = tl.split(sums)
        dw, db = finish(x0, dy0, x_ptr + row * x_stride, w_ptr, dy_ptr + row * cols, dx_ptr + row * cols,
                        mean, rstd, along, level, dw, db, col, inside, FOLD, RELOAD)  # fmt: skip
        if PAIRS and row + programs < rows:
            dw, db = finish(x1, dy1, x_ptr + second * x_stride, w_ptr, dy_ptr + second * cols,
                            dx_ptr + second * cols, mean1, rstd1, along1, level1, dw, db, col, inside,
                            FOLD, RELOAD)  # fmt: skip
    part_ptr += start * cols
    tl.store(part_ptr + col, dw, mask=inside)
    tl.store(part_ptr + programs * cols + col, db, mask=inside)


@triton.jit
def backward_halves(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, x_stride, rows, cols,
    FOLD: tl.constexpr, AHEAD: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """dx, dw and db of one half of the columns; each of two programs sums up the whole row. Rows fill the tile."""
    col, programs = tl.arange(0, HALF), tl.num_programs(0).to(tl.int64) // 2
    inside = tl.full((HALF,), 1, tl.int1)
    dw = tl.zeros((HALF,), tl.float32)
    db = tl.zeros((HALF,), tl.float32)
    start, half = tl.program_id(0) % programs, tl.program_id(0) // programs * HALF
    for row in tl.range(start, rows, programs):
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        x_row, dy_row = x_ptr + row * x_stride, dy_ptr + row * cols
        other = HALF - half
        _, _, both = products(x_row + other, w_ptr + other, dy_row + other, mean, rstd, col, inside)
        x, dy, own = products(x_row + half, w_ptr + half, dy_row + half, mean, rstd, col, inside)
        if AHEAD > 0:
            later = tl.minimum(row + programs, rows - 1)
            fetch_span(x_ptr + later * x_stride + half, HALF * 2)
            fetch_span(dy_ptr + later * cols + half, HALF * 2)
        along, level = tl.split((tl.sum(both, 0) + tl.sum(own, 0)) * (1.0 / cols))
        dw, db = finish(x, dy, x_row + half, w_ptr + half, dy_row + half, dx_ptr + row * cols + half,
                        mean, rstd, along, level, dw, db, col, inside, FOLD, True)  # fmt: skip
    part_ptr += start * cols + half
    tl.store(part_ptr + col, dw)
    tl.store(part_ptr + programs * cols + col, db)


def rows_alone(way: Way, x, w, dy, mean, rstd):
    """dx and the partial sums (2, programs, columns)."""
    rows, cols = x.shape
    programs = min(rows, unit_count(x))
    dx, parts = torch.empty_like(x), torch.empty(2, programs, cols, dtype=torch.float32, device=x.device)
    padded = next_power_of_2(cols)
    if way.halves:
        assert padded == cols and rows >= programs
        backward_halves[(2 * programs,)](
            x, w, dy, mean, rstd, dx, parts, x.stride(0), rows, cols,
            FOLD=way.fold, AHEAD=way.ahead, HALF=cols // 2, num_warps=way.warps, maxnreg=min(255, 1024 // way.warps),
        )  # fmt: skip
        return dx, parts
    backward_rows[(programs,)](
        x, w, dy, mean, rstd, dx, parts, x.stride(0), rows, cols,
        FOLD=way.fold, AHEAD=way.ahead, EVEN=way.even and padded == cols, RELOAD=way.reload, PAIRS=way.pairs,
        STAGES=way.stages, COLS=padded, num_warps=way.warps, num_stages=way.stages,
    )  # fmt: skip
    return dx, parts


def whole(way: Way, x, w, dy, mean, rstd):
    """dx, dw, db."""
    dx, parts = rows_alone(way, x, w, dy, mean, rstd)
    return dx, *column_sum(parts, w.dtype)


def ways(cols: int) -> list[Way]:
    """What is worth trying: 32 to 64 elements per thread of 32-lane warps."""
    found = []
    for warps in (4, 8, 16, 32):
        if not 32 <= cols / (warps * 32) <= 64:
            continue
        for fold in (False, True):
            for ahead in (0, 1, 2, 3):
                found.append(Way(warps, fold, ahead, True))
            for ahead in (0, 1):
                found.append(Way(warps, fold, ahead, True, halves=True))
                found.append(Way(warps // 2, fold, ahead, True, halves=True))
            found.append(Way(warps, fold, 2, True, pairs=True))
            found.append(Way(warps, fold, 0, True, stages=2, reload=False))
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
        for name, got, true in zip(("dx", "dw", "db"), whole(way, x, w, dy, mean, rstd), wanted, strict=True):
            size = true.double().abs() + true.double().abs().mean()
            off = ((got.double() - true.double()).abs() / size).max().item()
            assert off <= 2 * torch.finfo(dtype).eps + 2e-5, f"{way}: {name} off by {off:.2g} at {rows} x {cols}"
    print(f"{len(found)} ways right at {rows} x {cols} in {dtype}", flush=True)


def measure(rows: int, cols: int) -> None:
    """Time all ways at one size, the pass and its two kernels; the best last."""
    from kernel_bench import copies_past_cache, copy_bandwidth, time_graph

    read = 4 * rows * cols
    copies = copies_past_cache(read)
    data = inputs(rows, cols, torch.bfloat16, copies, "cuda")
    copy, moved = copy_bandwidth(2 * rows * cols), 6 * rows * cols
    print(f"\n{rows} x {cols}: must move {moved / 1e6:.0f} MB, {moved / copy / 1e3:.1f} us at the speed of a copy "
          f"of this size ({copy:.0f} GB/s)")  # fmt: skip

    def run(f):
        return time_graph(lambda i: lambda: f(*(t[i] for t in data)), read)

    shipped = run(layer_norm_backward)
    print(f"{shipped.us:8.2f} us {shipped.gb_s(moved) / copy:6.1%} of copy   the course's kernel", flush=True)
    parts = torch.randn(2, min(rows, unit_count(data[0])), cols, device="cuda")
    arch = architecture(parts)
    for tile in itertools.product((8, 16, 32), (32, 64, 128), (4, 8)):
        config = {**norm_weight_grad.CONFIGS, arch: {**norm_weight_grad.CONFIGS["sm_90"], "sum": tile}}
        norm_weight_grad.CONFIGS, kept = config, norm_weight_grad.CONFIGS
        t = time_graph(lambda i: lambda: column_sum(parts, torch.bfloat16), 1 << 27)  # few copies, many calls
        norm_weight_grad.CONFIGS = kept
        print(f"{t.us:8.2f} us   adding the partial sums with (rows, columns, warps) = {tile}", flush=True)
    times = []
    for way in ways(cols):
        try:
            t, alone = run(lambda *a, way=way: whole(way, *a)), run(lambda *a, way=way: rows_alone(way, *a))
        except Exception as e:  # noqa: BLE001 - a sweep goes on
            print(f"{way}: {type(e).__name__} {str(e)[:100]}", flush=True)
            continue
        times.append((t.us, str(way)))
        print(f"{t.us:8.2f} us {t.gb_s(moved) / copy:6.1%} of copy   rows alone {alone.us:7.2f} us   {way}", flush=True)
    for us, way in sorted(times)[:5]:
        print(f"best: {us:8.2f} us, {shipped.us / us:.3f} times as fast as the course's kernel: {way}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="2048,256")
    parser.add_argument("--cols", default="16384", help="powers of two")
    parser.add_argument("--check", action="store_true", help="check small sizes and end")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    every = [w for w in ways(16384) if (gpu or not w.ahead) and not w.halves]
    for rows, cols in ((1, 64), (5, 300), (7, 1000), (9, 2048)):
        check(every, rows, cols, torch.float32, "cuda" if gpu else "cpu")
    if options.check:
        return
    for cols, rows in itertools.product(*(map(int, s.split(",")) for s in (options.cols, options.rows))):
        check(ways(cols), rows, cols, torch.bfloat16, "cuda")
        measure(rows, cols)


if __name__ == "__main__":
    main()
