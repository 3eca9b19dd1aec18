# SPDX-License-Identifier: MIT
"""Sweep the launch configurations of the row kernels on this GPU: every line a configuration with its time and share
of the copy bandwidth at that size; the best of each size last. The tables in the kernels' files come from it.

    python -m benchmarks.sweeps.rows [--rows 2048,1,32] [--cols 16384,8192,4096,2048] [--ops softmax,rms_norm,…]
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from benchmarks.timing import copies_past_cache, copy_bandwidth, tensors, time_graph
from rocm_guide.kernels import layer_norm, rms_norm, softmax

BF16 = torch.bfloat16


def calls_of(op, rows, cols, tile):
    """Return a function that makes make(i) for time_graph from a number of copies;
    and bytes moved, bytes read (weights aside).
    """
    size = rows * cols * 2

    def build(copies):
        x, dy = tensors((rows, cols), BF16, copies), tensors((rows, cols), BF16, copies, seed=1)
        w, b = tensors((cols,), BF16, copies, seed=2), tensors((cols,), BF16, copies, seed=3)
        r = torch.rand(copies, rows, device="cuda") + 0.5
        return {
            "softmax": lambda i: lambda: softmax.softmax_forward(x[i], tile=tile),
            "softmax_bwd": lambda i: lambda: softmax.softmax_backward(x[i], dy[i], tile=tile),
            "rms_norm": lambda i: lambda: rms_norm.rms_norm_forward(x[i], w[i], tile=tile),
            "rms_norm_bwd": lambda i: lambda: rms_norm.rms_norm_backward(x[i], w[i], dy[i], r[i], tile=tile),
            "layer_norm": lambda i: lambda: layer_norm.layer_norm_forward(x[i], w[i], b[i], tile=tile),
            "layer_norm_bwd": lambda i: (
                lambda: layer_norm.layer_norm_backward(x[i], w[i], dy[i], r[i], r[i], tile=tile)
            ),
        }[op]

    return build, size * (3 if op.endswith("bwd") else 2), size * (2 if op.endswith("bwd") else 1)


def configurations(op, rows, cols):
    """Return what is worth trying: 4 to 64 elements per thread of 32-lane warps."""
    tile = {"softmax": softmax, "rms_norm": rms_norm, "layer_norm": layer_norm}[op.removesuffix("_bwd")].Tile
    loops = op in ("rms_norm_bwd", "layer_norm_bwd")
    for tile_rows in (1, 2, 4):
        if tile_rows > 1 and (cols > 4096 or rows < 64):
            continue
        for warps in (4, 8, 16, 32):
            if not 8 <= cols * tile_rows / (warps * 32) <= 64:
                continue
            if not loops:
                for late in (False, True) if op == "layer_norm" and rows > 132 else (False,):
                    yield tile(cols, tile_rows, warps, **({"defer_weight": True} if late else {}))
                continue
            for again in (False, True) if op == "layer_norm_bwd" and cols >= 8192 else (False,):
                for stages in (1, 2, 3) if rows > 132 else (1,):
                    for per_unit in (1, 2, 4) if rows > 132 else (1,):
                        if warps * per_unit <= 64:
                            more = {"reload": True} if again else {}
                            yield tile(cols, tile_rows, warps, per_unit=per_unit, stages=stages, **more)
    if cols >= 16384:
        for block, warps in ((4096, 8), (4096, 16), (8192, 16), (8192, 32)):
            yield tile(block, 1, warps, blocked=True)


def compile_one(job):
    op, rows, cols, tile = job
    try:
        build, *_ = calls_of(op, rows, cols, tile)
        build(1)(0)()
        torch.cuda.synchronize()
    except Exception as e:  # noqa: BLE001 - a sweep goes on
        return f"{job}: {type(e).__name__} {e}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="2048,1,32,256")
    parser.add_argument("--cols", default="16384,8192,4096,2048")
    parser.add_argument("--ops", default="rms_norm,layer_norm,softmax,rms_norm_bwd,layer_norm_bwd,softmax_bwd")
    args = parser.parse_args()
    sizes = [(int(r), int(c)) for c in args.cols.split(",") for r in args.rows.split(",")]
    jobs = [(op, r, c, t) for r, c in sizes for op in args.ops.split(",") for t in configurations(op, r, c)]
    began = time.perf_counter()
    # What a size needs compiled differs only by divisibility and by 1, so two row counts stand for all.
    small = list(dict.fromkeys((op, 1 if r == 1 else 160, c, t) for op, r, c, t in jobs))
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for text in filter(None, pool.map(compile_one, small, chunksize=4)):
            print(text[:300], flush=True)
    print(f"{len(small)} kernels compiled in {time.perf_counter() - began:.0f} s, {len(jobs)} to time", flush=True)
    best: dict[tuple[str, int, int], tuple[float, float, str]] = {}
    for rows, cols in sizes:
        nbytes = rows * cols * 2
        copy = copy_bandwidth(nbytes)
        print(f"\n{rows} x {cols}: copy of the same size {copy:.0f} GB/s", flush=True)
        for op, r, c, tile in jobs:
            if (r, c) != (rows, cols):
                continue
            try:
                build, moved, read = calls_of(op, rows, cols, tile)
                t = time_graph(build(copies_past_cache(read)), read, replays=9, at_least_us=300)
            except Exception as e:  # noqa: BLE001 - a sweep goes on
                print(f"{op:<15} {tile}: {type(e).__name__} {str(e)[:120]}", flush=True)
                continue
            share = t.gb_s(moved) / copy
            print(f"{op:<15} {t.us:8.2f} us ±{t.spread:5.2f} {share:6.1%} of copy  {tile}", flush=True)
            found = (t.us, share, str(tile))
            best[op, rows, cols] = min(best.get((op, rows, cols), found), found)
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    print("\nbest of each size")
    for (op, rows, cols), (us, share, tile) in best.items():
        print(f"{op:<15} {rows:>5} x {cols:<6} {us:8.2f} us {share:6.1%}  {tile}")


if __name__ == "__main__":
    main()
