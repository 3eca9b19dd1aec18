# SPDX-License-Identifier: MIT
"""Ways to bring LayerNorm's backward pass nearer to the speed of a copy, each checked and timed on this GPU.

What the pass must move at 2,048 x 16,384 in bf16 is x and dy in, dx out: 201 MB. What ours moves beyond that: the
partial sums of dw and db, 2 x 132 programs x 16,384 x 4 B = 17 MB, written and read again (the L2 holds them); and x
and dy once more, from L1 at best, because dw and db of a whole row fill half of the registers of a multiprocessor, so
that nothing of the row outlives the reduction. One program fits on a multiprocessor, and while it reduces and maps,
nothing is asked of memory.

The ways: ``early`` adds to dw and db before the reduction; ``fold`` needs fewer operations after it; ``ahead`` asks for
the next row before the reduction, into registers or (``L2``, NVIDIA only) into the L2; ``even`` drops the masks of rows
that fill the tile (the course's kernel does). A way that wins belongs into rocm_guide/kernels/layer_norm_grad.py.

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
from rocm_guide.kernels.launch import architecture, next_power_of_2, unit_count
from rocm_guide.kernels.layer_norm import layer_norm_forward
from rocm_guide.kernels.layer_norm_grad import layer_norm_backward
from rocm_guide.kernels.norm_weight_grad import column_sum


@dataclass(frozen=True)
class Way:
    """What one variant does differently; see the top of the file."""

    warps: int
    early: bool = True
    fold: bool = False
    ahead: str = ""
    even: bool = False

    def __str__(self) -> str:
        names = [n for n in ("early", "fold", "even") if getattr(self, n)]
        return f"{self.warps:>2} warps {' '.join(names + [f'ahead in {self.ahead}'] * bool(self.ahead))}"


@triton.jit
def backward_rows(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, x_stride, rows, cols,
    EARLY: tl.constexpr, FOLD: tl.constexpr, AHEAD: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """dx of every so many rows, dw and db of them; one row at a time."""
    col, programs = tl.arange(0, COLS), tl.num_programs(0).to(tl.int64)
    inside = tl.full((COLS,), 1, tl.int1) if EVEN else col < cols
    dw = tl.zeros((COLS,), tl.float32)
    db = tl.zeros((COLS,), tl.float32)
    start = tl.program_id(0).to(tl.int64)
    if AHEAD == "registers":  # there are no more programs than rows
        x = tl.load(x_ptr + start * x_stride + col, mask=inside, other=0.0)
        dy = tl.load(dy_ptr + start * cols + col, mask=inside, other=0.0)
    for row in range(start, rows, programs):
        if AHEAD != "registers":
            x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0)
            dy = tl.load(dy_ptr + row * cols + col, mask=inside, other=0.0)
        mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
        h, g = (x.to(tl.float32) - mean) * rstd, dy.to(tl.float32)
        if EARLY:
            dw += g * h
            db += g
        g *= tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
        both = tl.join(g * h, g)  # beyond the row's end h is not zero, but g is
        following = row + programs
        if AHEAD == "registers":
            more = inside & (following + tl.zeros((COLS,), tl.int64) < rows)
            x = tl.load(x_ptr + following * x_stride + col, mask=more, other=0.0)
            dy = tl.load(dy_ptr + following * cols + col, mask=more, other=0.0)
        elif AHEAD == "L2":
            line = tl.arange(0, COLS // 64) * 64  # 128 bytes of a 16-bit type
            at = tl.minimum(following, rows - 1)
            for base in tl.static_range(2):
                address = (x_ptr + at * x_stride if base == 0 else dy_ptr + at * cols) + tl.minimum(line, cols - 1)
                tl.inline_asm_elementwise(
                    "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address.to(tl.int64)],
                    dtype=tl.int32, is_pure=False, pack=1,
                )  # fmt: skip
        along, level = tl.split(tl.sum(both, 0) * (1.0 / cols))
        x_again = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0, eviction_policy="evict_first")
        dy_again = tl.load(dy_ptr + row * cols + col, mask=inside, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        centred, dy32 = x_again.to(tl.float32) - mean, dy_again.to(tl.float32)
        if not EARLY:
            dw += dy32 * (centred * rstd)
            db += dy32
        if FOLD:
            dx = dy32 * w * rstd - (level * rstd + centred * (along * rstd * rstd))
        else:
            dx = rstd * (dy32 * w - level - centred * rstd * along)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    part_ptr += start * cols
    tl.store(part_ptr + col, dw, mask=inside)
    tl.store(part_ptr + programs * cols + col, db, mask=inside)


def rows_alone(way: Way, x, w, dy, mean, rstd):
    """dx and the partial sums (2, programs, columns)."""
    rows, cols = x.shape
    programs = min(rows, unit_count(x))
    dx, parts = torch.empty_like(x), torch.empty(2, programs, cols, dtype=torch.float32, device=x.device)
    padded = next_power_of_2(cols)
    backward_rows[(programs,)](
        x, w, dy, mean, rstd, dx, parts, x.stride(0), rows, cols,
        EARLY=way.early, FOLD=way.fold, AHEAD=way.ahead, EVEN=way.even and padded == cols, COLS=padded,
        num_warps=way.warps,
    )  # fmt: skip
    return dx, parts


def whole(way: Way, x, w, dy, mean, rstd):
    """dx, dw, db."""
    dx, parts = rows_alone(way, x, w, dy, mean, rstd)
    return dx, *column_sum(parts, w.dtype)


def ways(cols: int) -> list[Way]:
    """What is worth trying: 16 to 64 elements per thread of 32-lane warps."""
    found = []
    for warps in (4, 8, 16, 32):
        if not 16 <= cols / (warps * 32) <= 64:
            continue
        for early, fold, even in itertools.product((True, False), repeat=3):
            for ahead in ("", "registers", "L2"):
                found.append(Way(warps, early, fold, ahead, even))
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
    for tile in itertools.product((8, 16, 32), (32, 64, 128, 256), (4, 8)):
        config = {**norm_weight_grad.CONFIGS, arch: {**norm_weight_grad.CONFIGS["sm_90"], "sum": tile}}
        norm_weight_grad.CONFIGS, kept = config, norm_weight_grad.CONFIGS
        t = time_graph(lambda i: lambda: column_sum(parts, torch.bfloat16), 1e9)
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
    parser.add_argument("--cols", default="16384")
    parser.add_argument("--check", action="store_true", help="check small sizes and end")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    every = [w for w in ways(2048) if gpu or w.ahead != "L2"]
    for rows, cols in ((1, 64), (5, 300), (7, 1000), (9, 2048)):
        check(every, rows, cols, torch.float32, "cuda" if gpu else "cpu")
    if options.check:
        return
    for cols, rows in itertools.product(*(map(int, s.split(",")) for s in (options.cols, options.rows))):
        check(ways(cols), rows, cols, torch.bfloat16, "cuda")
        measure(rows, cols)


if __name__ == "__main__":
    main()
