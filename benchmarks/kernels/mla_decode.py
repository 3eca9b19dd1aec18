# SPDX-License-Identifier: MIT
"""Latent attention, one token over 32k latents of 512 + 64 in bf16: ours against torch's naive and absorbed form.

128 heads (one GPU) and 16 heads (a model over 8 GPUs), batch 1 and 16. The naive form expands every latent to keys and
values of all heads; it is left out where they would not fit. CUDA graphs, caches in turn, medians (timing.py).
The attend step alone is also given, as a share of what this GPU's copy bandwidth and matmul rate would allow.

    python -m benchmarks.kernels.mla_decode            # measure, write results/mla_decode.json and the plot
    python -m benchmarks.kernels.mla_decode --sweep    # first try tiles of the attend step
    python -m benchmarks.kernels.mla_decode --plot
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.timing import (
    RESULTS,
    copies_past_cache,
    copy_bandwidth,
    matmul_ceiling,
    save,
    save_plot,
    tensors,
    time_graph,
)

KEYS, D, R, C = 32768, 128, 64, 512
CASES = [(1, 128), (1, 16), (16, 128), (16, 16)]
SWEEP = [
    (h, n, w, s, u)
    for h, n, w, s in itertools.product((16, 32, 64, 128), (64, 128), (4, 8), (1, 2))
    for u in (1, 2)
    if w == 8 or h < 64
]


def tile(heads, block, warps, stages, per_unit):
    from rocm_guide.kernels.mla_decode import DecodeTile

    return {heads: DecodeTile(block, per_unit, least=64, warps=warps, stages=stages)}


def problem(batch, heads, copies, keys=KEYS):
    dtype = torch.bfloat16
    q, q_pe = (tensors((batch, heads, n), dtype, 1, seed=n)[0] for n in (D, R))
    cache = tensors((batch, keys, C + R), dtype, copies)
    w = tensors((heads, 2 * D, C), dtype, 1, seed=3)[0] * D**-0.5
    return q, q_pe, cache, w


def try_tile(config):
    from rocm_guide.kernels.mla_decode import launch_mla

    try:
        _, q_pe, cache, _ = problem(1, 128, 1, 512)
        latent = torch.zeros(1, 128, C, dtype=torch.bfloat16, device="cuda")
        launch_mla(latent, q_pe, cache[0, ..., :C], cache[0, ..., C:], None, 0.07, 2, tile(*config))
        torch.cuda.synchronize()
    except Exception as e:  # noqa: BLE001 - a tile that does not fit is a result
        return f"{config}: {type(e).__name__}: {str(e)[:60]}"
    return ""


def us(make, nbytes, **options):
    t = time_graph(make, nbytes, **options)
    return [round(t.us, 2), round(t.spread, 2)]


def time_tile(latent, q_pe, halves, config, nbytes):
    from rocm_guide.kernels.mla_decode import launch_mla

    chosen = tile(*config)
    return us(
        lambda i: lambda: launch_mla(latent, q_pe, *halves[i], lengths=None, scale=0.07, config=chosen),
        nbytes,
        replays=5,
        at_least_us=1,
    )[0]


def sweep():
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        failed = {c: text for c, text in zip(SWEEP, pool.map(try_tile, SWEEP), strict=True) if text}
    print(f"{len(SWEEP)} tiles, failed: {list(failed.values())}", flush=True)
    for batch, heads in CASES:
        nbytes, rows = batch * KEYS * (C + R) * 2, []
        _, q_pe, cache, _ = problem(batch, heads, copies_past_cache(nbytes))
        halves = [(cache[i, ..., :C], cache[i, ..., C:]) for i in range(cache.shape[0])]
        latent = torch.randn(batch, heads, C, device="cuda").bfloat16()
        for config in SWEEP:
            if config not in failed and config[0] <= max(16, heads):
                try:
                    rows.append((time_tile(latent, q_pe, halves, config, nbytes), config))
                except Exception as e:  # noqa: BLE001 - one tile that fails must not end the others
                    print(config, type(e).__name__, str(e)[:60], flush=True)
        print(f"== batch {batch}, {heads} heads: heads, keys, warps, stages, per unit", flush=True)
        for t, config in sorted(rows)[:8]:
            print(f"{t:8.1f} us {nbytes / t / 1e3:5.0f} GB/s {config}", flush=True)
        del cache, halves
        torch.cuda.empty_cache()


def measure(batch, heads, copy, matmul):
    from rocm_guide.kernels.mla_decode import launch_mla, mla_decode, reference_mla_decode
    from rocm_guide.kernels.mla_prefill import reference_mla_naive

    nbytes = batch * KEYS * (C + R) * 2
    q, q_pe, cache, w = problem(batch, heads, copies_past_cache(nbytes))
    part = [x[:1] for x in (q, q_pe, cache[0, ..., :C], cache[0, ..., C:])]
    wanted = reference_mla_decode(*(x.double() for x in part), wkv_b=w.double())
    error = float((mla_decode(*part, wkv_b=w).double() - wanted).abs().max() / wanted.abs().max())
    assert error < 0.03, error
    halves = [(cache[i, ..., :C], cache[i, ..., C:]) for i in range(cache.shape[0])]
    found = {
        "ours": us(lambda i: lambda: mla_decode(q, q_pe, *halves[i], w), nbytes),
        "torch absorbed": us(lambda i: lambda: reference_mla_decode(q, q_pe, *halves[i], w), nbytes),
    }
    if batch * heads <= 128:

        def naive(i):
            return lambda: reference_mla_naive(q[:, None], q_pe[:, None], *halves[i], w)

        found["torch naive"] = us(naive, nbytes, replays=7)
    latent = torch.randn(batch, heads, C, device="cuda").bfloat16()
    attend = us(lambda i: lambda: launch_mla(latent, q_pe, *halves[i], lengths=None, scale=0.07), nbytes)
    flops = 2 * batch * heads * KEYS * (2 * C + R)
    floor = max(nbytes / copy / 1e3, flops / matmul / 1e6)  # microseconds: reading once, or multiplying
    return {
        "batch": batch,
        "heads": heads,
        "keys": KEYS,
        "bytes": nbytes,
        "flops": flops,
        "us": found,
        "attend_us": attend,
        "floor_us": round(floor, 2),
    }


def show(r):
    others = {n: t[0] for n, t in r["us"].items() if n != "ours"}
    best = min(others, key=lambda n: others[n])
    attend = r["attend_us"][0]
    print(
        f"batch {r['batch']:>2} {r['heads']:>3} heads: ours {r['us']['ours'][0]:8.1f} us, "
        + ", ".join(f"{n} {t:8.1f}" for n, t in others.items())
        + f" | {others[best] / r['us']['ours'][0]:.2f}x {best}"
        + f" | attend {attend:.1f} us, {r['bytes'] / attend / 1e3:.0f} GB/s, {r['flops'] / attend / 1e6:.0f} TFLOPS, "
        + f"{r['floor_us'] / attend:.0%} of the roofline",
        flush=True,
    )


def plot(data, folder):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.plots import bars, house_style

    house_style()
    fig, axes = plt.subplots(2, 2, figsize=(10, 5.2))
    for ax, r in zip(axes.flat, data["results"], strict=False):
        medians, spreads = ({n: t[i] for n, t in r["us"].items()} for i in (0, 1))
        title = f"batch {r['batch']}, {r['heads']} heads"
        bars(medians, spread=spreads, unit="microseconds", title=title, baseline="torch absorbed", fmt="{:,.0f}", ax=ax)
    fig.suptitle("Latent attention, one token over 32k latents, bf16", fontsize=12, weight="bold", x=0.01, ha="left")
    fig.text(
        0.99, 0.985, f"{data['hardware']}, triton {data['triton']}", ha="right", va="top", fontsize=7.5, color="#6B6B6B"
    )
    print(*save_plot("mla_decode", fig, folder))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--out", default="", help="folder; benchmarks/results if empty")
    args = parser.parse_args()
    folder, began = Path(args.out) if args.out else RESULTS, time.perf_counter()
    if args.sweep:
        sweep()
    if not args.plot:
        copy, matmul = copy_bandwidth(), matmul_ceiling()
        print(f"copy {copy:.0f} GB/s, matmul {matmul:.0f} TFLOPS", flush=True)
        results = []
        for case in CASES:
            results.append(measure(*case, copy, matmul))
            show(results[-1])
            torch.cuda.empty_cache()
            save(
                "mla_decode",
                {
                    "unit": "microseconds: median, half the interquartile range",
                    "copy_gb_s": round(copy),
                    "matmul_tflops": round(matmul),
                    "results": results,
                },
                folder,
            )
        print(f"({time.perf_counter() - began:.0f} s)")
    plot(json.loads((folder / "mla_decode.json").read_text()), folder)


if __name__ == "__main__":
    main()
