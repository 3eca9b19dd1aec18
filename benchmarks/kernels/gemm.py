# SPDX-License-Identifier: MIT
"""Our GEMMs against cuBLAS (hipBLASLt on ROCm) on this GPU: large squares in every type, then ragged shapes.

Contenders take turns, in another order each time: whoever comes after a kernel that took much power is slower, by up
to a tenth. Each turn is one CUDA graph on inputs that exceed the last cache. See benchmarks/timing.py.

    python -m benchmarks.kernels.gemm              # measure, write results/gemm.json and the plots
    python -m benchmarks.kernels.gemm --ragged     # the general kernel and stream-K, into results/gemm_ragged.json
    python -m benchmarks.kernels.gemm --random 240 # that many random shapes, into results/gemm_random.json
    python -m benchmarks.kernels.gemm --plot       # only draw the plots again
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.timing import RESULTS, copies_past_cache, save, save_plot, tensors, time_graph
from rocm_guide.device import Timing
from rocm_guide.kernels.gemm.tile_times import MOST, orders

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

#: How random products are drawn.
DRAWN = (
    "M, N and K each log-uniform from 256 to 16384, then rounded down to a multiple of 128, 64, 8 or 1 (one of four, "
    "by chance and each on its own; for fp8 N and K to a multiple of 16 at least, which cuBLAS wants); drawn anew "
    "above 2 TFLOP. Types in turn: bf16, fp16, bf16, fp8 (B transposed); B transposed in every other product of 16 bits"
)


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
    from rocm_guide.kernels.gemm.stream_k import StreamWorkspace, gemm_stream_k
    from rocm_guide.kernels.gemm.tiled import gemm

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


def ragged(m, n, k, general=False):
    """One ragged product in bf16: gemm() as one calls it, stream-K, and the library.

    On Hopper gemm() takes a kernel of its own; ``general``: the one of every GPU, of which stream-K is a variant.
    """
    from rocm_guide.kernels.arguments import architecture, unit_count
    from rocm_guide.kernels.gemm.configs import pick_gemm_tile
    from rocm_guide.kernels.gemm.stream_k import StreamWorkspace, gemm_stream_k
    from rocm_guide.kernels.gemm.tiled import gemm

    nbytes = 2 * (m * k + k * n + m * n)
    a, b = tensors((m, k), torch.bfloat16, 3), tensors((k, n), torch.bfloat16, 3, seed=1)
    space = StreamWorkspace.on("cuda", 512)
    tile = pick_gemm_tile(m, n, 16, architecture(a), unit_count(a)) if general else None
    ways = {
        "library": lambda i: lambda: a[i % 3] @ b[i % 3],
        "ours, data-parallel" if general else "ours": lambda i: lambda: gemm(a[i % 3], b[i % 3], tile=tile),
        "ours, stream-K": lambda i: lambda: gemm_stream_k(a[i % 3], b[i % 3], workspace=space),
    }
    want = ways["library"](0)().float()
    for name, make in ways.items():
        worst = ((make(0)().float() - want).abs().max() / want.abs().max()).item()
        if not worst < 0.01:
            raise SystemExit(f"{name} {m}x{n}x{k}: differs from the library by {worst:.3g} of the largest element")
    return take_turns(ways, nbytes)


def measure_ragged(general=False):
    shapes = []
    for m, n, k in RAGGED:
        us = ragged(m, n, k, general)
        tera = {w: 2 * m * n * k / t[0] / 1e6 for w, t in us.items()}
        shapes.append({"shape": [m, n, k], "us": us, "tflops": {w: round(t, 1) for w, t in tera.items()}})
        print(f"{m}x{n}x{k}", *(f"{w} {t:.0f}" for w, t in tera.items()), flush=True)
    return shapes


def random_shape(rng, least=1, most=2e12):
    """(M, N, K) as DRAWN says; N and K are multiples of ``least``."""
    while True:
        sizes = []
        for unit in (1, least, least):
            size = int(2 ** rng.uniform(8, 14))
            to = max(rng.choice((1, 8, 64, 128)), unit)
            sizes.append(size // to * to)
        if 2 * sizes[0] * sizes[1] * sizes[2] <= most:
            return sizes


def random_products(count, seed):
    """``count`` random products: (type, M, N, K, whether B is transposed)."""
    rng = random.Random(seed)
    found = []
    for i in range(count):
        dtype = (torch.bfloat16, torch.float16, torch.bfloat16, FP8)[i % 4]
        shape = random_shape(rng, 16 if dtype.itemsize == 1 else 1)
        found.append((dtype, *shape, dtype.itemsize == 1 or i // 4 % 2 == 1))
    return found


def measure_random(count, seed, most, part=None):
    """Our gemm() against the library on random products, with the tile that it chooses and with one that was timed.

    ``most``: how many likely tiles are timed. With ``part`` (i, n) every n-th is only compiled.
    """
    from rocm_guide.kernels.gemm.tile_times import name_of, tiles_to_time, time_tiles
    from rocm_guide.kernels.gemm.tiled import gemm

    rows, one = [], torch.ones((), device="cuda")
    products = random_products(count, seed)
    for dtype, m, n, k, weight in products[part[0] :: part[1]] if part else products:
        nbytes = dtype.itemsize * (m * k + k * n)
        copies = 1 if part else copies_past_cache(nbytes)
        a = tensors((m, k), dtype, copies)
        b = tensors((n, k) if weight else (k, n), dtype, copies, seed=1)
        if weight:
            b = b.transpose(1, 2)

        def library(i, a=a, b=b):
            if a.dtype.itemsize == 1:
                return lambda: torch._scaled_mm(a[i], b[i], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            return lambda: a[i] @ b[i]

        if part:
            for tile in (None, *tiles_to_time(a[0], b[0], "none", library(0)().dtype, most)):
                gemm(a[0], b[0], tile=tile)
            continue
        tile = time_tiles(a[0], b[0], most=most)[0].tile
        ways = {
            "library": library,
            "ours": lambda i, a=a, b=b: lambda: gemm(a[i], b[i]),
            "ours, tuned": lambda i, a=a, b=b, tile=tile: lambda: gemm(a[i], b[i], tile=tile),
        }
        got = {name: make(0)().float() for name, make in ways.items()}
        for way in ("ours", "ours, tuned"):
            worst = ((got[way] - got["library"]).norm() / got["library"].norm()).item()
            if not worst < 0.01:
                raise SystemExit(f"{way} {dtype} {m}x{n}x{k}: differs from the library by {worst:.3g} of the norm")
        del got
        us = take_turns(ways, nbytes)
        name = f"{str(dtype).removeprefix('torch.')}, {'A B^T' if weight else 'A B'}"
        ratio, tuned = (round(us["library"][0] / us[way][0], 4) for way in ("ours", "ours, tuned"))
        rows.append({"case": name, "shape": [m, n, k], "us": us, "ratio": ratio, "tuned": tuned, "tile": name_of(tile)})
    if part:
        return None
    result = {"drawn": DRAWN, "seed": seed, "likely tiles timed": most}
    for way, prefix in (("tuned", "tuned_"), ("ratio", "")):
        rows.sort(key=lambda r, way=way: r[way])
        ratios = [r[way] for r in rows]
        result |= {f"{prefix}median": statistics.median(ratios), f"{prefix}worst": ratios[0]}
        said = f"median {statistics.median(ratios):.3f}, geometric mean {statistics.geometric_mean(ratios):.3f}"
        print(f"{count} random products, {way}: {said}, {sum(r >= 0.9 for r in ratios)} at 0.9 or more", flush=True)
        for r in rows[:16]:
            print(f"  {r[way]:.3f} {r['case']} {'x'.join(map(str, r['shape']))} {r['us']} {r['tile']}")
    return {**result, "products": rows}


def compile_first(count, seed, most, processes=12):
    """Compile for the random products in several processes at a time: what they find stays in Triton's cache."""
    if not torch.version.hip and torch.cuda.get_device_capability() == (9, 0):
        from benchmarks.kernels.gemm_hopper import compile_for

        # Hopper's tiles are many, and come in several products: each of them once.
        products = [(m, n, k, b_t, t) for t, m, n, k, b_t in random_products(count, seed)]
        compile_for(products, most)
    command = [sys.executable, "-m", "benchmarks.kernels.gemm", "--random", str(count), "--seed", str(seed)]
    command += ["--most", str(most), "--part"]
    running = [subprocess.Popen([*command, str(i), str(processes)]) for i in range(processes)]
    for process in running:
        process.wait()


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
    return {"n": N, "squares": squares, "ragged": measure_ragged()}


def plot(result, folder=None):
    """Two bar charts: squares by type, ragged shapes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.plots import PALETTE, house_style

    house_style()
    for name, rows, labels, title in (
        (
            "gemm",
            result["squares"],
            [r["case"].replace("float8_", "") for r in result["squares"]],
            f"GEMM {result['n']} x {result['n']} x {result['n']}",
        ),
        (
            "gemm_ragged",
            result["ragged"],
            [" x ".join(map(str, r["shape"])) for r in result["ragged"]],
            "bf16 GEMMs whose last round is ragged",
        ),
    ):
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
    parser.add_argument("--ragged", action="store_true", help="measure only the general kernel on ragged shapes")
    parser.add_argument("--random", type=int, metavar="N", help="measure N random products instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random products")
    parser.add_argument("--most", type=int, default=MOST, help="how many likely tiles are timed for each product")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.random:
        if options.part:
            measure_random(options.random, options.seed, options.most, options.part)
        else:
            compile_first(options.random, options.seed, options.most)
            name = f"gemm_random_{options.seed}" if options.seed else "gemm_random"
            save(name, measure_random(options.random, options.seed, options.most), options.out)
        return
    if options.ragged:
        save("gemm_ragged", {"ragged": measure_ragged(general=True)}, options.out)
        return
    if not options.plot:
        save("gemm", measure(), options.out)
    plot(json.loads((options.out / "gemm.json").read_text()), options.out)


if __name__ == "__main__":
    main()
