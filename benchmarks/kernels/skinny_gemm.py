# SPDX-License-Identifier: MIT
"""Our skinny GEMM against torch._scaled_mm (and torch.mm in bf16) at the three projections of Llama 3.1 405B.

CUDA graphs, weights rotated past the cache, medians; see benchmarks/timing.py.

    python -m benchmarks.kernels.skinny_gemm              # measure, write results/skinny_gemm.json and the plot
    python -m benchmarks.kernels.skinny_gemm --plot       # only draw the plot again
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.timing import (
    RESULTS,
    copies_past_cache,
    copy_bandwidth,
    plot_by_size,
    save,
    save_plot,
    tensors,
    time_graph,
)

ROWS = (1, 4, 8, 16, 32)
BF16_ROWS = (1, 8, 32)
FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn
TURNS = 3


def one(m, n, k, dtype, tile=None):
    """Microseconds of every way at one shape: [median, spread]; ``tile`` instead of the table's launch."""
    from rocm_guide.kernels.gemm_skinny import SkinnyWorkspace, gemm_skinny

    nbytes = n * k * dtype.itemsize
    copies = copies_past_cache(nbytes)
    x, w = tensors((m, k), dtype, copies), tensors((n, k), dtype, copies, seed=1)
    sx, sw = torch.tensor(0.5, device="cuda"), torch.tensor(0.25, device="cuda")
    space = SkinnyWorkspace.on("cuda")

    def library(i):
        if dtype.itemsize == 1:
            return lambda: torch._scaled_mm(x[i], w[i].T, scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16)
        return lambda: x[i] @ w[i].T

    scales = (0.5, 0.25) if dtype.itemsize == 1 else (1.0, 1.0)
    ways = {
        "library": library,
        "ours": lambda i: lambda: gemm_skinny(x[i], w[i], *scales, workspace=space, tile=tile),
    }
    want = scales[0] * scales[1] * (x[0].double() @ w[0].double().T)
    for name, make in ways.items():
        worst = ((make(0)().double() - want).abs().max() / want.abs().max()).item()
        if not worst < 0.01:
            raise SystemExit(f"{name} {m}x{n}x{k}: off by {worst:.3g} of the largest element")
    turns = [{name: time_graph(make, nbytes) for name, make in ways.items()} for _ in range(TURNS)]
    middle = {name: sorted((t[name] for t in turns), key=lambda t: t.us)[TURNS // 2] for name in ways}
    return {name: [round(t.us, 3), round(t.spread, 3)] for name, t in middle.items()}


def measure(tile=None, only=None):
    from rocm_guide.kernels.gemm_skinny import SHAPES

    results = []
    for dtype in (FP8, torch.bfloat16) if only is None else (FP8,):
        for n, k in SHAPES:
            for m in (ROWS if dtype == FP8 else BF16_ROWS) if only in (None, n) else ():
                us = one(m, n, k, dtype, tile)
                ratios = {w: us["library"][0] / t[0] for w, t in us.items() if w != "library"}
                name = str(dtype).removeprefix("torch.")
                results.append({"dtype": name, "rows": m, "n": n, "k": k, "us": us})
                tb = n * k * dtype.itemsize / us["ours"][0] / 1e6
                print(
                    f"{name} {m}x{n}x{k}",
                    *(f"{w} {t[0]:.2f}" for w, t in us.items()),
                    f"us, ours {tb:.2f} TB/s;",
                    *(f"{w} x{r:.3f}" for w, r in ratios.items()),
                    flush=True,
                )
    return {"copy_gb_s": round(copy_bandwidth(), 1), "results": results}


def plot(result, folder=None):
    """Draw a panel per shape: how many times as fast as the library, over rows."""
    eight = [r for r in result["results"] if r["dtype"].startswith("float8")]
    shapes = list(dict.fromkeys((r["n"], r["k"]) for r in eight))
    panels = {}
    for n, k in shapes:
        mine = [r["us"] for r in eight if (r["n"], r["k"]) == (n, k)]
        panels[f"{n} x {k} ({n * k / 1e6:.0f} MB)"] = {"ours": [us["library"][0] / us["ours"][0] for us in mine]}
    sizes = [r["rows"] for r in eight if (r["n"], r["k"]) == shapes[0]]
    fig = plot_by_size(
        panels,
        sizes,
        x="rows of x",
        y="times as fast",
        title="Skinny fp8 GEMM against torch._scaled_mm",
        hardware=result["hardware"],
        ceiling={"torch._scaled_mm": 1.0},
    )
    save_plot("skinny_gemm", fig, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", action="store_true", help="draw the plot from the stored result")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tile", help="JSON of a SkinnyTile to measure instead of the table's launch")
    parser.add_argument("--only", type=int, help="fp8 weights of this many rows only")
    options = parser.parse_args()
    tile = None
    if options.tile:
        from rocm_guide.kernels.gemm_skinny import SkinnyTile

        tile = SkinnyTile(**json.loads(options.tile))
    if not options.plot:
        save("skinny_gemm", measure(tile, options.only), options.out)
    plot(json.loads((options.out / "skinny_gemm.json").read_text()), options.out)


if __name__ == "__main__":
    main()
