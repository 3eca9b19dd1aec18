# SPDX-License-Identifier: MIT
"""INT8 products of Llama-2-7B's layers on this GPU: our Triton kernels against ``torch._int_mm``, and bf16 beside them.

Twenty shapes: the four products of a layer for 32 to 8,192 tokens. Contenders take turns as in
benchmarks/kernels/gemm.py, each turn one CUDA graph on inputs that exceed the last cache; medians over the turns.

- ``library``: ``torch._int_mm``, int8 x int8 -> int32.
- ``ours``: the same product, :func:`rocm_guide.kernels.gemm.gemm`; equal to the library's in every element.
- ``library, scaled``: ``torch._int_mm``, then the scales of rows and columns, then bf16: what a model needs, in torch.
- ``ours, scaled``: the same in one kernel, :func:`rocm_guide.kernels.int8_gemm.linear_scaled`.
- ``bf16``: torch's matmul on bf16.

    python -m benchmarks.kernels.int8_gemm             # measure, write results/int8_gemm.json (torch and triton only)
    python -m benchmarks.kernels.int8_gemm --search    # try other tiles, and print what would be faster; writes nothing
    python -m benchmarks.kernels.int8_gemm --plot      # draw the stored result (needs matplotlib)
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch
import triton

from benchmarks.kernels.gemm import take_turns
from benchmarks.timing import RESULTS, save, save_plot, tensors, time_graph

TURNS = 3
TOKENS = (32, 128, 512, 2048, 8192)
#: (N, K) of a layer's products.
LAYER = {"q, k, v": (12288, 4096), "o": (4096, 4096), "gate, up": (22016, 4096), "down": (4096, 11008)}
#: What --search tries: BM, BN, BK, warps, stages, descriptors.
TILES = (
    (16, 32, 256, 4, 5, False),
    (16, 64, 256, 4, 4, False),
    (16, 128, 256, 4, 4, False),
    (32, 32, 128, 4, 6, False),
    (32, 32, 256, 4, 5, False),
    (32, 32, 512, 4, 3, False),
    (32, 64, 128, 4, 6, False),
    (32, 64, 256, 4, 4, False),
    (32, 64, 256, 8, 4, False),
    (32, 128, 128, 4, 4, False),
    (64, 32, 128, 4, 6, False),
    (64, 32, 256, 4, 4, False),
    (64, 64, 128, 4, 4, False),
    (64, 64, 128, 4, 6, False),
    (64, 64, 256, 4, 3, False),
    (64, 64, 256, 4, 4, True),
    (64, 128, 128, 4, 4, True),
    (64, 256, 128, 4, 3, True),
    (128, 32, 128, 4, 5, True),
    (128, 32, 256, 4, 3, True),
    (128, 64, 128, 4, 4, True),
    (128, 64, 256, 4, 3, True),
    (128, 128, 128, 8, 3, True),
    (128, 128, 128, 4, 4, True),
    (128, 256, 128, 8, 3, True),
    (256, 128, 128, 8, 3, True),
)


def shapes():
    """(label, M, N, K) of the twenty products."""
    return [(f"{name}, {m:,} tokens", m, n, k) for m in TOKENS for name, (n, k) in LAYER.items()]


def operands(m, n, k):
    """Return (copies of A, copies of the weight (N, K), scales of rows, scales of columns)."""
    a, w = tensors((m, k), torch.int8, 3), tensors((n, k), torch.int8, 3, seed=1)
    g = torch.Generator("cuda").manual_seed(2)
    return a, w, *(torch.rand(size, generator=g, device="cuda") / 100 for size in (m, n))


def product(m, n, k):
    """Microseconds of every contender at one shape."""
    from rocm_guide.kernels.gemm import GemmTile, gemm
    from rocm_guide.kernels.int8_gemm import architecture, linear_scaled, pick_int8_tile, unit_count

    a, w, rows, columns = operands(m, n, k)
    tile = pick_int8_tile(m, n, 1, architecture(a), unit_count(a))
    a16, w16 = a.bfloat16(), w.bfloat16()

    def scaled(i):
        out = torch._int_mm(a[i % 3], w[i % 3].T)
        return (out * rows[:, None] * columns).to(torch.bfloat16)

    ways = {
        "library": lambda i: lambda: torch._int_mm(a[i % 3], w[i % 3].T),
        "ours": lambda i: lambda: gemm(a[i % 3], w[i % 3].T, tile=GemmTile(*tile)),
        "library, scaled": lambda i: lambda: scaled(i),
        "ours, scaled": lambda i: lambda: linear_scaled(a[i % 3], w[i % 3].T, rows, columns, out_dtype=torch.bfloat16),
        "bf16": lambda i: lambda: a16[i % 3] @ w16[i % 3].T,
    }
    want = ways["library"](0)()
    if not torch.equal(ways["ours"](0)(), want):
        raise SystemExit(f"{m}x{n}x{k}: our int32 sums differ from the library's")
    # In float64 from the exact sums: the library's own scaling rounds as often as ours.
    exact = want.double() * rows.double()[:, None] * columns.double()
    worst = ((ways["ours, scaled"](0)().double() - exact).abs() / (exact.abs() + 1e-6)).max().item()
    if not worst < 2**-8:
        raise SystemExit(f"{m}x{n}x{k}: our scaled product differs by {worst:.3g} of an element")
    del want, exact
    return take_turns(ways, m * k + n * k, turns=TURNS)


def measure():
    """Every shape; a line for each."""
    found, ratios, scaled = [], [], []
    for label, m, n, k in shapes():
        us = product(m, n, k)
        tera = {way: round(2 * m * n * k / t[0] / 1e6, 1) for way, t in us.items()}
        ratios.append(us["library"][0] / us["ours"][0])
        scaled.append(us["bf16"][0] / us["ours, scaled"][0])
        found.append({"shape": label, "m": m, "n": n, "k": k, "us": us, "tops": tera})
        text = "  ".join(f"{way} {t[0]:8.1f}" for way, t in us.items())
        print(f"{label:24s} {text} us   ours/library {ratios[-1]:.2f}x, int8/bf16 {scaled[-1]:.2f}x", flush=True)
    median = {"ours over library": statistics.median(ratios), "ours, scaled, over bf16": statistics.median(scaled)}
    print("medians over the shapes:", {k: round(v, 3) for k, v in median.items()})
    return {"turns": TURNS, "shapes": found, "median": median}


def search(tokens):
    """For each shape of ``tokens`` rows the fastest tiles of :data:`TILES`, beside the one that the wrapper picks."""
    from rocm_guide.kernels.int8_gemm import GemmTile, architecture, linear_scaled, pick_int8_tile, unit_count

    for label, m, n, k in shapes():
        if m not in tokens:
            continue
        a, w, rows, columns = operands(m, n, k)
        picked = pick_int8_tile(m, n, 1, architecture(a), unit_count(a))
        us = {}
        for tile in (picked, *(GemmTile(*t[:5], descriptors=t[5]) for t in TILES)):
            if tile.bm > max(2 * m, 16):
                continue

            def make(i, tile=tile, a=a, w=w, rows=rows, columns=columns):
                return lambda: linear_scaled(a[i % 3], w[i % 3].T, rows, columns, out_dtype=torch.bfloat16, tile=tile)

            try:
                us[tile] = time_graph(make, m * k + n * k, replays=3, at_least_us=1).us
            except (RuntimeError, triton.runtime.errors.OutOfResources) as e:  # a tile too large must not end it
                print(f"  {tile}: {str(e).splitlines()[0][:100]}")
        best = sorted(us, key=us.__getitem__)[:3]
        text = "; ".join(
            f"{t.bm}x{t.bn}x{t.bk} w{t.warps} s{t.stages} d{int(t.descriptors)}: {us[t]:.1f}" for t in best
        )
        name = f"{picked.bm}x{picked.bn}x{picked.bk} w{picked.warps}"
        print(f"{label:24s} picked {name} {us.get(picked, float('nan')):8.1f} us; best {text}", flush=True)


def plot(result, folder=None):
    """TOPS of every contender by tokens, a panel for each product."""
    import matplotlib

    matplotlib.use("Agg")
    from benchmarks.timing import plot_by_size

    panels = {}
    for name in LAYER:
        rows = [s for s in result["shapes"] if s["shape"].startswith(f"{name},")]
        ways = ("library, scaled", "bf16", "library", "ours", "ours, scaled")
        panels[name] = {("torch._int_mm" if w == "library" else w): [r["tops"][w] for r in rows] for w in ways}
    title = "INT8 products of Llama-2-7B"
    fig = plot_by_size(panels, TOKENS, x="tokens", y="TOPS", title=title, hardware=result["hardware"], columns=2)
    save_plot("int8_gemm", fig, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", action="store_true", help="draw the stored result")
    parser.add_argument("--search", action="store_true", help="try other tiles")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="with --search: only these rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.search:
        search(options.tokens)
    elif options.plot:
        plot(json.loads((options.out / "int8_gemm.json").read_text()), options.out)
    else:
        save("int8_gemm", measure(), options.out)


if __name__ == "__main__":
    main()
