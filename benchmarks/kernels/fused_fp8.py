# SPDX-License-Identifier: MIT
"""Residual + RMSNorm + FP8 and SwiGLU + FP8: ours against torch eager, torch.compile and Liger-Kernel, on this GPU.

fp16 inputs of 1 to 2,048 rows of 16,384 columns, a scale for the tensor or for each row. torch.compile is the better of
its default and its max-autotune mode; Liger has no FP8 output, so its operation is followed by a compiled conversion.
torch eager is timed at four sizes only.
CUDA graphs, inputs rotated past the cache, medians; see benchmarks/timing.py.

    python -m benchmarks.kernels.fused_fp8              # measure, write results/fused_fp8.json and the plot
    python -m benchmarks.kernels.fused_fp8 --ops swiglu # some of it; joins what the file has of the same GPU
    python -m benchmarks.kernels.fused_fp8 --plot       # only draw the plot again
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
    plot_by_size,
    save,
    save_plot,
    stamp,
    tensors,
)

COLUMNS, SCALE, EPS = 16384, 0.05, 1e-6
ROWS = (2048, 1, 16, 128, 512, 64, 256, 4, 1024, 32, 8, 2)
OPS = ("rmsnorm", "swiglu", "rmsnorm rows", "swiglu rows")
WAYS = ("torch eager", "compile default", "compile max", "Liger default", "ours")
EAGER_ROWS = (1, 16, 128, 2048)  # it is slow, and far from the others
SHOWN = ("torch eager", "torch.compile", "Liger + cast", "ours")
FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn
FMAX = torch.finfo(FP8).max


def static_cast(y):
    return (y.float() / SCALE).clamp(-FMAX, FMAX).to(FP8)


def row_cast(y):
    wide = y.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-30) / FMAX
    return (wide / scale).clamp(-FMAX, FMAX).to(FP8), scale


def eager(op):
    """Do the operation as one writes it in torch; torch.compile gets this."""
    cast = row_cast if op.endswith("rows") else static_cast

    def rmsnorm(x, r, w):
        s = x + r
        wide = s.float()
        return cast(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * w.float()), s

    def swiglu(x):
        gate, up = x.float().chunk(2, -1)
        return cast(F.silu(gate) * up)

    return rmsnorm if op.startswith("rmsnorm") else swiglu


def compiled(fn, kind):
    torch._dynamo.reset()  # compiled for this shape, not for a dynamic one
    return torch.compile(fn, dynamic=False, mode="max-autotune-no-cudagraphs" if kind == "max" else "default")


def contender(op, way):
    """Return the function of (x, r, w), or of (x,)."""
    per_row, norm = op.endswith("rows"), op.startswith("rmsnorm")
    name, _, kind = way.partition(" ")
    if way == "torch eager":
        return eager(op)
    if way == "ours":
        from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
        from rocm_guide.kernels.swiglu_fp8 import swiglu_fp8

        scale = None if per_row else SCALE
        return (lambda x, r, w: rmsnorm_fp8(x, r, w, scale, eps=EPS)) if norm else (lambda x: swiglu_fp8(x, scale))
    if name == "compile":
        return compiled(eager(op), kind)
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
    from liger_kernel.ops.swiglu import swiglu_fused_gate_up_forward

    cast = compiled(row_cast if per_row else static_cast, kind)

    def rmsnorm(x, r, w):
        y, s, *_ = fused_add_rms_norm_forward(x, r, w, EPS, 0.0, "llama")
        return cast(y), s

    return rmsnorm if norm else lambda x: cast(swiglu_fused_gate_up_forward(x)[1])


def thunks(op, way, rows, copies):
    """make(i) for time_graph."""
    fn = contender(op, way)
    shapes = [(rows, COLUMNS)] * 2 + [(COLUMNS,)] if op.startswith("rmsnorm") else [(rows, COLUMNS)]
    made = [tensors(s, torch.float16, copies, seed=i) for i, s in enumerate(shapes)]

    def make(i):
        def call():
            with torch.no_grad():
                return fn(*(t[i] for t in made))

        return call

    return make


def bytes_of(op, rows):
    """Return what has to move: x, r, the updated r and w in fp16, q in FP8; or gate and up in fp16, q in FP8."""
    return rows * COLUMNS * 7 + 2 * COLUMNS if op.startswith("rmsnorm") else rows * (COLUMNS * 2 + COLUMNS // 2)


def check(op, rows):
    """Ours against eager torch in float64, before anything is timed: at most 1 code in 1,000 rounds the other way."""
    norm = op.startswith("rmsnorm")
    shapes = [(rows, COLUMNS)] * 2 + [(COLUMNS,)] if norm else [(rows, COLUMNS)]
    given = [tensors(s, torch.float16, 1, seed=9 + i)[0] for i, s in enumerate(shapes)]
    got, wanted = (contender(op, way)(*given) for way in ("ours", "torch eager"))
    first = (
        got[0],
        wanted[0][0] if isinstance(wanted[0], tuple) else wanted[0] if isinstance(wanted, tuple) else wanted,
    )
    differ = (first[0].view(torch.uint8) != first[1].view(torch.uint8)).float().mean()
    assert float(differ) < 1e-3, (op, rows, float(differ))
    if norm:
        assert torch.equal(got[1], wanted[1]), (op, rows)


def best(row):
    """Return the ways as the plot and the comparison show them: the better mode of each compiler."""
    pairs = {"torch.compile": "compile", "Liger + cast": "Liger"}
    shown = {n: row[n] for n in ("torch eager", "ours") if n in row}
    for name, prefix in pairs.items():
        found = [row[w] for w in row if w.startswith(prefix)]
        if found:
            shown[name] = min(found)
    return {n: shown[n] for n in SHOWN if n in shown}


def measure(ops, sizes, budget):
    began, results = time.perf_counter(), list[dict[str, object]]()
    jobs = [(op, way, rows) for rows in sizes for op in ops for way in WAYS if way != "torch eager"]
    ceiling = prepare(thunks, jobs)
    for rows in sizes:
        for op in ops:
            if time.perf_counter() - began > budget:
                print("out of time", flush=True)
                return ceiling, results
            check(op, rows)
            nbytes = bytes_of(op, rows)
            make = partial(thunks, op, rows=rows, copies=copies_past_cache(nbytes))
            row = time_ways([w for w in WAYS if w != "torch eager" or rows in EAGER_ROWS], make, nbytes, replays=15)
            results.append({"op": op, "rows": rows, "columns": COLUMNS, "bytes": nbytes, "us": row})
            shown = best(row)
            ours = shown["ours"][0]
            text = "  ".join(f"{n} {us:.2f}" for n, (us, _) in shown.items())
            print(f"{op:<13}{rows:>5} rows  {text}  = {nbytes / ours / 1e3 / ceiling:.1%} of copy", flush=True)
    return ceiling, results


def plot(result):
    panels, sizes = {}, sorted({r["rows"] for r in result["results"] if r["op"] in OPS[:2]})
    titles = {
        "rmsnorm": "residual + RMSNorm + FP8",
        "swiglu": "SwiGLU + FP8",
        "rmsnorm rows": "the same, a scale for each row",
        "swiglu rows": "the same, a scale for each row",
    }
    for op in OPS:
        found = {r["rows"]: r for r in result["results"] if r["op"] == op}
        if set(found) != set(sizes):
            continue
        key = titles[op] if titles[op] not in panels else titles[op] + " "
        panels[key] = {
            n: [found[s]["bytes"] / best(found[s]["us"])[n][0] / 1e3 for s in sizes]
            for n in SHOWN
            if all(n in best(found[s]["us"]) for s in sizes)
        }
    return plot_by_size(
        panels,
        sizes,
        x="rows of 16,384 columns",
        y="GB/s",
        title="Fused FP8 kernels",
        hardware=result["hardware"],
        ceiling={"copy": result["copy_gb_s"]},
        log_y=True,
        columns=2,
    )


def earlier(path, ops):
    """Results of other operations in the file, if they come from this GPU and these versions."""
    try:
        old = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    same = all(old.get(k) == v for k, v in stamp().items() if k in ("hardware", "torch", "triton"))
    return [r for r in old["results"] if r["op"] not in ops] if same else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="*", default=list(OPS), choices=OPS)
    parser.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no new size is begun")
    parser.add_argument("--plot", action="store_true", help="draw the plot of an earlier run")
    given = parser.parse_args()
    if not given.plot:
        ceiling, results = measure(given.ops, given.rows, given.budget)
        results = earlier(given.out / "fused_fp8.json", given.ops) + results
        save("fused_fp8", {"copy_gb_s": round(ceiling, 1), "results": results}, given.out)
    result = json.loads((given.out / "fused_fp8.json").read_text())
    save_plot("fused_fp8", plot(result), given.out)


if __name__ == "__main__":
    main()
