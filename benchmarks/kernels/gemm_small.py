# SPDX-License-Identifier: MIT
"""How the small tiles of the general GEMM were measured on NVIDIA's Hopper (rocm_guide/kernels/gemm/configs.py).

Random products below 1 GFLOP are drawn as benchmarks/kernels/gemm.py draws them, and timed with every tile in TILES and
with the library, in turns, in CUDA graphs. (Of these, gemm() leaves those below 0.4 GFLOP to the general kernel.) From
the times follows which tiles the table should have, and the speed of each.

    python -m benchmarks.kernels.gemm_small          # into results/gemm_small.json
    python -m benchmarks.kernels.gemm_small --fit    # print what the table should say, from that file; no GPU needed
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
from typing import Any

from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from benchmarks.timing import RESULTS, save
from rocm_guide.kernels.arguments import is_small_work
from rocm_guide.kernels.gemm.configs import GemmTile, pick_gemm_tile

UNITS = 132
#: By bits of the element type: (rows, columns, columns of A at a time), (warps, stages).
SIZES = {
    16: {
        (64, 64, 64): ((4, 4), (4, 6), (4, 8)),
        (64, 64, 128): ((4, 3), (4, 5)),
        (64, 32, 64): ((4, 5),),
        (64, 32, 128): ((4, 4), (4, 6)),
        (64, 32, 256): ((4, 3),),
        (64, 16, 128): ((4, 4), (4, 6)),
        (128, 32, 64): ((4, 5), (8, 5)),
        (128, 64, 64): ((4, 5), (8, 5)),
        (64, 128, 64): ((4, 4), (4, 6)),
        (128, 128, 64): ((8, 4), (8, 5)),
    },
    8: {
        (64, 64, 128): ((4, 4), (4, 6), (4, 8)),
        (64, 32, 128): ((4, 5), (4, 8)),
        (64, 32, 256): ((4, 6),),
        (128, 32, 128): ((4, 6), (8, 6)),
        (128, 64, 128): ((4, 5), (8, 5)),
        (64, 128, 128): ((4, 4), (4, 6)),
        (128, 128, 128): ((8, 3), (8, 5)),
    },
}
TILES = {bits: [GemmTile(*size, *how) for size, ways in sizes.items() for how in ways] for bits, sizes in SIZES.items()}


def name_of(tile):
    return f"{tile.bm}x{tile.bn}x{tile.bk}w{tile.warps}s{tile.stages}"


def products(count=72):
    """Other ones than those that gemm.py measures: (type, M, N, K, whether B is transposed)."""
    import torch

    from benchmarks.kernels.gemm import random_shape
    from rocm_guide.kernels.gemm.tiled import MOST_ODD

    rng = random.Random(6)
    found: list[Any] = []
    while len(found) < count:
        dtype = torch.float8_e4m3fn if len(found) % 4 == 3 else torch.bfloat16
        m, n, k = random_shape(rng, 16 if dtype.itemsize == 1 else 1)
        b_t = dtype.itemsize == 1 or len(found) % 2 == 1
        aligned = all(size * dtype.itemsize % 16 == 0 for size in (k, k if b_t else n))
        if is_small_work(2 * m * n * k) and (aligned or k <= MOST_ODD):
            found.append((dtype, m, n, k, b_t))
    return found


def ways_of(dtype, m, n, k, b_t):
    import torch

    from benchmarks.kernels.gemm_hopper import matrices
    from benchmarks.timing import copies_past_cache
    from rocm_guide.kernels.gemm.tiled import gemm

    copies = copies_past_cache(dtype.itemsize * (m * k + k * n))
    a, b = matrices(m, n, k, dtype, 0, b_t, copies)
    one = torch.ones((), device="cuda")

    def library(i):
        if dtype.itemsize == 1:
            return lambda: torch._scaled_mm(a[i], b[i], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return lambda: a[i] @ b[i]

    ways = {"cuBLAS": library, "gemm": lambda i: lambda: gemm(a[i], b[i])}
    ways |= {name_of(t): lambda i, t=t: lambda: gemm(a[i], b[i], tile=t) for t in TILES[8 * dtype.itemsize]}
    return ways, copies


def measure(part=None):
    """The rows, one for each product; with ``part`` (i, n) every n-th is only compiled."""
    from benchmarks.kernels.gemm_hopper import quick_time

    rows, chosen = [], products()
    for dtype, m, n, k, b_t in chosen[part[0] :: part[1]] if part else chosen:
        ways, copies = ways_of(dtype, m, n, k, b_t)
        want = ways["cuBLAS"](0)().float()
        for name, make in list(ways.items()):
            try:
                got = make(0)()
            except (OutOfResources, CompilationError) as e:  # a tile that this Triton cannot make is no contender
                print(f"{name} {dtype} {m}x{n}x{k}: {str(e).splitlines()[0][:120]}", flush=True)
                del ways[name]
                continue
            off = ((got.float() - want).norm() / want.norm()).item()
            if not off < 0.01:
                raise SystemExit(f"{name} {dtype} {m}x{n}x{k}: differs from the library by {off:.3g} of the norm")
        if part:
            continue
        us: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(2):
            for name, make in ways.items():
                us[name].append(quick_time(make, copies, 5.0))
        found = {name: round(statistics.median(times), 2) for name, times in us.items()}
        rows.append({"t": str(dtype).removeprefix("torch."), "mnk": [m, n, k], "bt": int(b_t), "us": found})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def compile_first(processes=16):
    command = [sys.executable, "-m", "benchmarks.kernels.gemm_small", "--part"]
    running = [subprocess.Popen([*command, str(i), str(processes)]) for i in range(processes)]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit("a tile was wrong: see above")


def fit(rows, most=4):
    """The sets of tiles whose best is fastest on average, by number of tiles, and what the chooser makes of its own."""
    for bits, tiles in TILES.items():
        mine = [r for r in rows if ("float8" in r["t"]) == (bits == 8)]
        names = [name_of(t) for t in tiles]

        def score(chosen, mine=mine):
            return statistics.geometric_mean(
                r["us"]["cuBLAS"] / min(r["us"].get(w, math.inf) for w in chosen) for r in mine
            )

        print(f"{bits} bits, {len(mine)} products; today {score(['gemm']):.3f} of cuBLAS")
        for size in range(1, most + 1):
            best = max(itertools.combinations(names, size), key=score)
            print(f"  {score(best):.3f} with the best of {', '.join(best)}")
        ratios = []
        for r in mine:
            m, n, _ = r["mnk"]
            name = name_of(pick_gemm_tile(m, n, bits, "sm_90", UNITS, small=True))
            ratios.append(r["us"]["cuBLAS"] / r["us"][name])
        print(f"  {statistics.geometric_mean(ratios):.3f} with the chooser's tiles, worst {min(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="print the best tiles, from the stored times")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        measure(options.part)
    elif options.fit:
        fit(json.loads((RESULTS / "gemm_small.json").read_text())["products"])
    else:
        compile_first()
        rows = measure()
        save("gemm_small", {"products": rows})
        fit(rows)


if __name__ == "__main__":
    main()
