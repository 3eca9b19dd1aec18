# SPDX-License-Identifier: MIT
"""The ladder to the fused RMSNorm (rocm_guide/kernels/fp8_ladder.py), every rung timed on this GPU.

fp16, 16,384 columns, a scale for the tensor. Every rung is checked before it is timed. See benchmarks/timing.py.

    python -m benchmarks.kernels.fused_ladder           # measure, write results/fused_ladder.json and the plot
    python -m benchmarks.kernels.fused_ladder --plot    # only draw the plot again
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

COLUMNS, SCALE, ROWS = 16384, 0.05, (1, 16, 64, 256, 1024, 2048)


def timed(rung, x, r, w):
    """make(i) for time_graph."""
    from rocm_guide.kernels.fp8_ladder import run_rung

    return lambda i: lambda: run_rung(rung, x[i], r[i], w[i], SCALE)


def measure():
    from rocm_guide.kernels.fp8_ladder import RUNGS, run_rung
    from rocm_guide.kernels.rmsnorm_fp8 import reference_rmsnorm_fp8

    ceiling, results = copy_bandwidth(), []
    print(f"copy of 1 GiB: {ceiling:.0f} GB/s", flush=True)
    for rows in ROWS:
        nbytes = rows * COLUMNS * 7 + 2 * COLUMNS
        copies = copies_past_cache(nbytes)
        x, r = (tensors((rows, COLUMNS), torch.float16, copies, seed=s) for s in (0, 1))
        w = tensors((COLUMNS,), torch.float16, copies, seed=2)
        y, s = reference_rmsnorm_fp8(x[0], r[0], w[0])
        q5 = run_rung(5, x[0], r[0], w[0], SCALE)[0].float().double() * SCALE
        assert bool(((q5 - y).abs() <= 0.07 * y.abs() + SCALE * 2**-8).all())
        found = {}
        for rung, name in enumerate(RUNGS, 1):
            q, updated = run_rung(rung, x[0], r[0], w[0], SCALE)
            differ = (q.view(torch.uint8) != run_rung(5, x[0], r[0], w[0], SCALE)[0].view(torch.uint8)).float().mean()
            assert torch.equal(updated, s) and float(differ) < 1e-3, (name, float(differ))
            t = time_graph(timed(rung, x, r, w), nbytes, replays=15)
            found[name] = [round(t.us, 3), round(t.spread, 3)]
        results.append({"rows": rows, "columns": COLUMNS, "bytes": nbytes, "us": found})
        print(f"{rows:>5} rows  " + "  ".join(f"{n} {us:.2f} ± {e:.2f}" for n, (us, e) in found.items()), flush=True)
    return {"copy_gb_s": round(ceiling, 1), "results": results}


def plot(result):
    found = result["results"]
    series = {n: [r["bytes"] / r["us"][n][0] / 1e3 for r in found] for n in found[0]["us"]}
    return plot_by_size(
        {"residual + RMSNorm + FP8": series},
        [r["rows"] for r in found],
        x="rows of 16,384 columns",
        y="GB/s",
        title="The ladder, rung by rung",
        hardware=result["hardware"],
        ceiling={"copy": result["copy_gb_s"]},
        columns=1,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--plot", action="store_true", help="draw the plot of an earlier run")
    given = parser.parse_args()
    if not given.plot:
        save("fused_ladder", measure(), given.out)
    figure = plot(json.loads((given.out / "fused_ladder.json").read_text()))
    figure.set_size_inches(8, 4.2)
    save_plot("fused_ladder", figure, given.out)


if __name__ == "__main__":
    main()
