# SPDX-License-Identifier: MIT
"""Our GEMMs against cuBLAS (hipBLASLt on ROCm) on this GPU: large squares in every type, then ragged shapes.

Contenders take turns, in another order each time: whoever comes after a kernel that took much power is slower, by up
to a tenth. Each turn is one CUDA graph on inputs that exceed the last cache. See benchmarks/timing.py.

    python -m benchmarks.kernels.gemm              # measure, write results/gemm.json and the plots
    python -m benchmarks.kernels.gemm --ragged     # only the ragged shapes, into results/gemm_ragged.json
    python -m benchmarks.kernels.gemm --plot       # only draw the plots again
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.timing import RESULTS, save, save_plot, tensors, time_graph
from rocm_guide.common.device import Timing

N = 8192
TURNS = 6
#: (M, N, K). On 132 multiprocessors the last round of these is mostly idle, with tiles of 128 x 256 and of 128 x 128.
RAGGED = (
    (1280, 3584, 8192),
    (1408, 3328, 8192),
    (2176, 2304, 8192),
    (2432, 1792, 16384),
    (1920, 4608, 8192),
    (3200, 2816, 8192),
)
FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn


def orders(contenders, turns):
    """Who comes when in each turn: in six turns each of three comes first, second and last, and after each other one.

    >>> ["".join(order) for order in orders("abc", 6)]
    ['abc', 'cba', 'bca', 'acb', 'cab', 'bac']
    """
    for turn in range(turns):
        first = turn // 2 % len(contenders)
        order = [*contenders[first:], *contenders[:first]]
        yield order[::-1] if turn % 2 else order


def take_turns(ways, nbytes, turns=TURNS):
    """Median and spread in microseconds of every way: name -> make(i)."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for order in orders(list(ways), turns):
        for name in order:
            samples[name].append(time_graph(ways[name], nbytes, replays=3, at_least_us=1).us)
    result = {}
    for name, us in samples.items():
        timing = Timing.of(us)
        result[name] = [round(timing.median, 3), round(timing.spread, 3)]
    return result


def square(dtype, weight):
    """One square product: torch against ours, B as it is or as a transposed weight."""
    from rocm_guide.kernels.gemm import gemm
    from rocm_guide.kernels.gemm_stream_k import StreamWorkspace, gemm_stream_k

    nbytes = 2 * N * N * dtype.itemsize + N * N * max(dtype.itemsize, 2)
    a, b = (tensors((N, N), dtype, 3, seed=s) for s in (0, 1))
    one = torch.ones((), device="cuda")

    def right(i):
        return b[i % 3].T if weight else b[i % 3]

    def library(i):
        if dtype == torch.int8:
            return lambda: torch._int_mm(a[i % 3], right(i))
        if dtype.itemsize == 1:
            return lambda: torch._scaled_mm(a[i % 3], right(i), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return lambda: a[i % 3] @ right(i)

    ways = {"library": library, "ours": lambda i: lambda: gemm(a[i % 3], right(i))}
    if dtype != torch.int8:
        space = StreamWorkspace.on("cuda", 512)
        ways["ours, stream-K"] = lambda i: lambda: gemm_stream_k(a[i % 3], right(i), workspace=space)
    check = {name: make(0)() for name, make in ways.items()}
    for name, got in check.items():
        worst = (got.float() - check["library"].float()).abs().max() / check["library"].float().abs().max()
        if not worst < 0.01:
            raise SystemExit(f"{name} {dtype}: differs from the library by {worst:.3g} of the largest element")
    del check
    return take_turns(ways, nbytes)


def ragged(m, n, k):
    """One ragged product in bf16: whole tiles, stream-K, and the library."""
    from rocm_guide.kernels.gemm import gemm
    from rocm_guide.kernels.gemm_stream_k import StreamWorkspace, gemm_stream_k

    nbytes = 2 * (m * k + k * n + m * n)
    a, b = tensors((m, k), torch.bfloat16, 3), tensors((k, n), torch.bfloat16, 3, seed=1)
    space = StreamWorkspace.on("cuda", 512)
    ways = {
        "library": lambda i: lambda: a[i % 3] @ b[i % 3],
        "ours, data-parallel": lambda i: lambda: gemm(a[i % 3], b[i % 3]),
        "ours, stream-K": lambda i: lambda: gemm_stream_k(a[i % 3], b[i % 3], workspace=space),
    }
    want = ways["library"](0)().float()
    for name, make in ways.items():
        worst = ((make(0)().float() - want).abs().max() / want.abs().max()).item()
        if not worst < 0.01:
            raise SystemExit(f"{name} {m}x{n}x{k}: differs from the library by {worst:.3g} of the largest element")
    return take_turns(ways, nbytes)


def measure_ragged():
    shapes = []
    for m, n, k in RAGGED:
        us = ragged(m, n, k)
        tera = {w: 2 * m * n * k / t[0] / 1e6 for w, t in us.items()}
        shapes.append({"shape": [m, n, k], "us": us, "tflops": {w: round(t, 1) for w, t in tera.items()}})
        print(f"{m}x{n}x{k}", *(f"{w} {t:.0f}" for w, t in tera.items()), flush=True)
    return shapes


def measure():
    squares = []
    for dtype in (torch.float16, torch.bfloat16, FP8, torch.int8):
        for weight in (False, True):
            if dtype.itemsize == 1 and not weight:
                continue  # the library takes 8-bit operands in this layout only
            name = f"{str(dtype).removeprefix('torch.')}, {'A B^T' if weight else 'A B'}"
            try:
                us = square(dtype, weight)
            except RuntimeError as e:  # a type that this library does not have must not end the run
                print(f"{name}: {str(e).splitlines()[0][:120]}", flush=True)
                continue
            tera = {w: 2 * N**3 / t[0] / 1e6 for w, t in us.items()}
            squares.append({"case": name, "us": us, "tflops": {w: round(t, 1) for w, t in tera.items()}})
            print(
                f"{N}^3 {name:<24}", *(f"{w} {t:.0f} ({t / tera['library']:.3f})" for w, t in tera.items()), flush=True
            )
    return {"n": N, "squares": squares}


def plot(result, folder=None):
    """Draw a bar chart: squares by type, or ragged shapes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    if "squares" in result:
        name, rows, title = "gemm", result["squares"], f"GEMM {result['n']} x {result['n']} x {result['n']}"
        labels = [r["case"].replace("float8_", "") for r in rows]
    else:
        name, rows, title = "gemm_ragged", result["ragged"], "bf16 GEMMs whose last round is ragged"
        labels = [" x ".join(map(str, r["shape"])) for r in rows]
    ways = list(dict.fromkeys(w for r in rows for w in r["tflops"]))
    fig, ax = plt.subplots(figsize=(8.2, 0.62 * len(rows) + 1.6))
    height = 0.8 / len(ways)
    for j, way in enumerate(ways):
        at = [(i + j * height, r["tflops"][way]) for i, r in enumerate(rows) if way in r["tflops"]]
        colour = PALETTE[6] if way == "library" else PALETTE[j - 1]
        label = "cuBLAS" if way == "library" and "NVIDIA" in result["hardware"] else way
        ax.barh([y for y, _ in at], [t for _, t in at], height=height, color=colour, label=label)
        for y, t in at:
            ax.text(t, y, f" {t:.0f}", va="center", fontsize=7.5)
    ax.set_yticks([i + 0.4 - height / 2 for i in range(len(rows))], labels, fontsize=8.5)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("TFLOPS (TOPS for int8), median; longer is faster")
    ax.margins(x=0.08)
    ax.set_title(title)
    ax.set_title(result["hardware"], loc="right", fontsize=7.5, color=PALETTE[6], weight="normal")
    fig.legend(loc="outside lower center", ncols=len(ways))
    save_plot(name, fig, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", action="store_true", help="draw the plots from the stored result")
    parser.add_argument("--ragged", action="store_true", help="measure only the ragged shapes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not options.plot:
        save("gemm_ragged", {"ragged": measure_ragged()}, options.out)
        if not options.ragged:
            save("gemm", measure(), options.out)
    for name in ("gemm_ragged",) if options.ragged else ("gemm", "gemm_ragged"):
        plot(json.loads((options.out / f"{name}.json").read_text()), options.out)


if __name__ == "__main__":
    main()
