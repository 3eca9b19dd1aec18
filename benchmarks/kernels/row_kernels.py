# SPDX-License-Identifier: MIT
"""Softmax, RMSNorm, LayerNorm in bf16: ours against torch eager, torch.compile and Liger-Kernel, on this GPU.

Forward alone, and forward with backward (all gradients), at 1 to 2,048 rows of 16,384 columns and at the hidden sizes
of usual models. CUDA graphs, inputs and weights rotated past the cache, medians; see benchmarks/timing.py.

    python -m benchmarks.kernels.row_kernels                       # measure, write results/row_kernels.json and plots
    python -m benchmarks.kernels.row_kernels --ops softmax         # some of it; joins what the file has of the same GPU
    python -m benchmarks.kernels.row_kernels --plot                # only draw the plots again
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.kernels.contest import prepare, time_ways
from benchmarks.timing import (
    RESULTS,
    copies_past_cache,
    copy_bandwidth,
    plot_by_size,
    save,
    save_plot,
    stamp,
    tensors,
)

OPS = ("softmax", "rms_norm", "layer_norm")
MODES = ("forward", "forward+backward")
WAYS = ("torch eager", "torch.compile", "Liger", "ours")
WIDE = [(2**k, 16384) for k in (11, 8, 5, 3, 0, 10, 9, 7, 6, 4, 2, 1)]
HIDDEN = [(rows, cols) for cols in (8192, 4096, 2048) for rows in (2048, 32, 1)]
BOTH_WAYS = (1, 8, 32, 256, 2048)  # rows at which the backward pass is measured too


def contender(op, way):
    """Return the function of (x, w, b) that ``way`` offers; unused arguments are ignored."""
    if way == "ours":
        from rocm_guide.kernels.api import layer_norm, rms_norm, softmax

        return {
            "softmax": lambda x, w, b: softmax(x),
            "rms_norm": lambda x, w, b: rms_norm(x, w, 1e-6),
            "layer_norm": lambda x, w, b: layer_norm(x, w, b, 1e-5),
        }[op]
    if way == "Liger":
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.softmax import LigerSoftmaxFunction

        return {
            "softmax": lambda x, w, b: LigerSoftmaxFunction.apply(x),
            "rms_norm": lambda x, w, b: LigerRMSNormFunction.apply(x, w, 1e-6),
            "layer_norm": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
        }[op]
    eager = {
        "softmax": lambda x, w, b: torch.softmax(x, -1),
        "rms_norm": lambda x, w, b: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    }[op]
    if way == "torch eager":
        return eager
    torch._dynamo.reset()  # compiled for this shape, not for a dynamic one
    return torch.compile(eager, dynamic=False)


def leaves_of(op):
    """How many of (x, w, b) the operation has."""
    return {"softmax": 1, "rms_norm": 2, "layer_norm": 3}[op]


def thunks(op, way, mode, rows, cols, copies):
    """make(i) for time_graph."""
    fn, count = contender(op, way), leaves_of(op)
    made = [tensors(shape, torch.bfloat16, copies, seed=s) for s, shape in enumerate([(rows, cols), (cols,), (cols,)])]
    dy = tensors((rows, cols), torch.bfloat16, copies if mode != "forward" else 1, seed=3)

    def make(i):
        arguments = [t[i] for t in made]
        if mode == "forward":

            def call():
                with torch.no_grad():
                    return fn(*arguments)

            return call
        leaves = [t.detach().requires_grad_() for t in arguments[:count]]
        given = [*leaves, *arguments[count:]]
        return lambda: torch.autograd.grad(fn(*given), leaves, dy[i])

    return make


def bytes_of(op, mode, rows, cols):
    """Return the bytes to move: x and y; backward also dy and dx, and x (softmax: y) once more; 2 bytes each."""
    return 2 * rows * cols * (2 if mode == "forward" else 5) + 2 * cols * (leaves_of(op) - 1)


def check(op, rows, cols):
    """Ours against float64, once per size, before anything is timed."""
    x, w, b = (t[0] for t in (tensors(s, torch.bfloat16, 1, seed=9) for s in [(rows, cols), (cols,), (cols,)]))
    got = contender(op, "ours")(x, w, b).double()
    wanted = contender(op, "torch eager")(x.double(), w.double(), b.double())
    assert float((got - wanted).abs().max()) <= 0.02 * float(wanted.abs().max()), (op, rows, cols)


def wanted(modes, sizes):
    """(rows, columns, mode) to measure, the forward pass at every size."""
    return [(r, c, m) for r, c in sizes for m in modes if m == "forward" or r in BOTH_WAYS]


def measure(ops, modes, sizes, keep):
    """Measure and hand every size's results to ``keep`` as soon as they are there."""
    began = time.perf_counter()
    cases = wanted(modes, sizes)
    jobs = [(op, way, m, r, c) for r, c, m in cases for op in ops for way in WAYS if way != "torch eager"]
    ceiling = prepare(thunks, jobs)
    for rows, cols in sizes:
        copy, results = copy_bandwidth(rows * cols * 2), []
        for op in ops:
            check(op, rows, cols)
            for mode in [m for r, c, m in cases if (r, c) == (rows, cols)]:
                nbytes = bytes_of(op, mode, rows, cols)
                read = 2 * rows * cols * (1 if mode == "forward" else 2)  # x, dy: what the copies must push out
                make = partial(thunks, op, mode=mode, rows=rows, cols=cols, copies=copies_past_cache(read))
                row = time_ways(WAYS, make, read, replays=21)
                results.append(
                    {
                        "op": op,
                        "mode": mode,
                        "rows": rows,
                        "cols": cols,
                        "bytes": nbytes,
                        "us": row,
                        "copy_gb_s": round(copy),
                        "copy_1gib_gb_s": round(ceiling),
                    }
                )
                show(results[-1])
        keep(results)
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)


def show(r):
    us = {way: t[0] for way, t in r["us"].items()}
    others = [v for way, v in us.items() if way != "ours"]
    gb_s = r["bytes"] / us.get("ours", 1e9) / 1e3
    lead = min(others) / us["ours"] if others and "ours" in us else 0
    print(
        f"{r['op']:<11}{r['mode']:<17}{r['rows']:>5} x {r['cols']:<6}"
        + "".join(f"{way} {us.get(way, float('nan')):8.2f}  " for way in WAYS)
        + f"us | ours {gb_s:5.0f} GB/s = {gb_s / r['copy_gb_s']:4.0%} of this copy, "
        + f"{gb_s / r['copy_1gib_gb_s']:4.0%} of 1 GiB's"
        + f" | best other / ours {lead:.3f}{'' if lead >= 1 else '  BEHIND'}",
        flush=True,
    )


def plots(data, folder):
    """Time against rows at 16,384 columns, and the share of the copy bandwidth."""
    hardware = f"{data['hardware']}, triton {data['triton']}"
    for mode in MODES:
        rows = sorted({r["rows"] for r in data["results"] if (r["cols"], r["mode"]) == (16384, mode)})
        panels = {}
        for op in OPS:
            found = {r["rows"]: r for r in data["results"] if (r["op"], r["mode"], r["cols"]) == (op, mode, 16384)}
            if rows and len(found) == len(rows):
                panels[op] = {way: [found[n]["us"].get(way, [float("nan")])[0] for n in rows] for way in WAYS}
        if panels:
            name = "row_kernels_" + mode.replace("+", "_")
            fig = plot_by_size(
                panels,
                rows,
                x="rows of 16,384 columns, bf16",
                y="microseconds",
                log_y=True,
                title=f"Row kernels, {mode}",
                hardware=hardware,
            )
            print(*save_plot(name, fig, folder))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--sizes", default="", help="such as 2048x16384,1x4096; all if empty")
    parser.add_argument("--out", default="", help="folder; benchmarks/results if empty")
    parser.add_argument("--plot", action="store_true")
    args = parser.parse_args()
    folder = Path(args.out) if args.out else RESULTS
    file = folder / "row_kernels.json"
    if not args.plot:
        sizes = [tuple(map(int, s.split("x"))) for s in args.sizes.split(",") if s] or [*WIDE, *HIDDEN]
        old = json.loads(file.read_text()) if file.exists() else {}

        def key(r):
            return (OPS.index(r["op"]), r["mode"], r["cols"], r["rows"])

        found = {key(r): r for r in (old.get("results", []) if old.get("hardware") == stamp()["hardware"] else [])}

        def keep(results):
            found.update({key(r): r for r in results})
            save(
                "row_kernels",
                {
                    "unit": "microseconds: median, half the interquartile range",
                    "dtype": "bfloat16",
                    "results": [found[k] for k in sorted(found)],
                },
                folder,
            )

        measure(args.ops.split(","), args.modes.split(","), sizes, keep)
    data = json.loads(file.read_text())
    behind = [r for r in data["results"] if min(v[0] for v in r["us"].values()) < r["us"]["ours"][0]]
    print(f"{len(data['results'])} rows of results; behind in {len(behind)}:")
    for r in behind:
        show(r)
    plots(data, folder)


if __name__ == "__main__":
    main()
