# SPDX-License-Identifier: MIT
"""Attention: our kernels against SDPA's flash and cuDNN back ends, forward and forward + backward, in one run.

    python -m benchmarks.kernels.attention            # all of it; writes results/attention.json, .png and .svg
    python -m benchmarks.kernels.attention --quick    # fewer repetitions, nothing written

A model's FLOPs are counted: 4 x batch x heads x queries x keys x head size forward (half of it causal), 2.5 times that
backward, whatever a kernel does in fact. Contenders take turns, so that a change of clock meets all of them. The figure
is the median.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from benchmarks.timing import save, save_plot
from rocm_guide.kernels.api import attention
from rocm_guide.kernels.attention import architecture, attention_forward
from rocm_guide.kernels.attention_fp8 import attention_quantized, quantize_heads

SHAPES = [(4, 32, 4096, 128), (1, 32, 16384, 128)]
#: A length that no tile divides beside one that all tiles divide.
ODD = [(2, 40, 3001, 128), (2, 40, 3072, 128)]
HALVES = (torch.float16, torch.bfloat16)


def median_times(calls: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Median seconds of each call, in turns; one that raises is left out and named."""
    for name in list(calls):
        try:
            for _ in range(3):
                calls[name]()
            torch.cuda.synchronize()
        except (RuntimeError, OutOfResources) as e:
            print(f"  {name}: not available here ({str(e).splitlines()[0]})", flush=True)
            del calls[name]
    # Nothing waits between the calls: with a wait, the GPU would stand still while Python prepares the next launch, and
    # that time (0.1 ms and more for a wrapper in Python) would be counted as the kernel's.
    spans: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            spans[name].append((start, end))
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) / 1e3 for a, b in pairs) for name, pairs in spans.items()}


def sdpa(kind: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return torch's function, held to one back end."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, kind)):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def gradients(way: Callable[..., torch.Tensor], leaves: list[torch.Tensor], do: torch.Tensor) -> object:
    """Forward and backward."""
    return torch.autograd.grad(way(*leaves), leaves, do)


def flops(shape: tuple[int, ...], causal: bool) -> float:
    """Forward FLOPs of a model."""
    batch, heads, rows, width = shape
    return 4.0 * batch * heads * rows * rows * width / (2 if causal else 1)


def ways(causal: bool) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the contenders."""
    return {
        "rocm_guide": lambda q, k, v: attention(q, k, v, causal=causal),
        "SDPA flash": lambda q, k, v: sdpa("FLASH_ATTENTION", q, k, v, causal),
        "SDPA cuDNN": lambda q, k, v: sdpa("CUDNN_ATTENTION", q, k, v, causal),
    }


def against_peers(
    runs: int, shapes: Sequence[tuple[int, ...]] = SHAPES, dtypes: Sequence[torch.dtype] = HALVES
) -> list[dict[str, Any]]:
    """Forward and forward + backward at the shapes, causal and not."""
    rows = []
    for shape, causal, dtype in itertools.product(shapes, (False, True), dtypes):
        q, k, v, do = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.no_grad():
            forward = median_times({n: partial(w, q, k, v) for n, w in ways(causal).items()}, runs)
        both = median_times({n: partial(gradients, w, leaves, do) for n, w in ways(causal).items()}, runs)
        work = flops(shape, causal)
        for name in forward:
            rows.append(
                {
                    "shape": shape,
                    "causal": causal,
                    "dtype": str(dtype)[6:],
                    "name": name,
                    "forward_ms": forward[name] * 1e3,
                    "forward_tflops": work / forward[name] / 1e12,
                    "both_ms": both[name] * 1e3,
                    "both_tflops": 3.5 * work / both[name] / 1e12,
                }
            )
            r = rows[-1]
            what = f"{shape!s:22} causal={causal!s:5} {r['dtype']:8} {name:11}"
            print(f"{what} forward {r['forward_tflops']:4.0f}, both {r['both_tflops']:4.0f} TFLOPS", flush=True)
    return rows


def features(runs: int) -> list[dict[str, Any]]:
    """Measure the rate of each feature, relative to the plain causal kernel, and of the 8-bit variants."""
    batch, heads, length, width = SHAPES[0]
    gen = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(SHAPES[0], device="cuda", dtype=torch.float16) for _ in range(3))
    few_k, few_v = (x[:, :8].contiguous() for x in (k, v))
    slopes = torch.rand(heads, generator=gen).cuda()
    packed = [x.transpose(1, 2).reshape(-1, heads, width) for x in (q, k, v)]
    ragged = [1024, 2048, 4096, 6144, 3072]
    starts = {"equal": [0, *itertools.accumulate([length] * batch)], "ragged": [0, *itertools.accumulate(ragged)]}
    cu = {name: torch.tensor(s, dtype=torch.int32, device="cuda") for name, s in starts.items()}
    rows16 = torch.randn(1, 1, length, length, device="cuda", dtype=torch.float16)
    turned = v.mT.contiguous().mT
    work = flops(SHAPES[0], True)
    ragged_work = sum(flops((1, heads, n, width), True) for n in ragged)

    def thd(name: str, longest: int) -> Callable[[], object]:
        more = {"cu_seqlens_q": cu[name], "cu_seqlens_k": cu[name], "max_seqlen_q": longest, "max_seqlen_k": longest}
        return lambda: attention_forward(*packed, layout="thd", causal=True, **more)

    calls: dict[str, tuple[Callable[[], object], float]] = {
        "plain": (lambda: attention_forward(q, k, v, causal=True), work),
        "GQA, 8 KV heads": (lambda: attention_forward(q, few_k, few_v, causal=True), work),
        "ALiBi": (lambda: attention_forward(q, k, v, causal=True, alibi_slopes=slopes), work),
        "packed, equal lengths": (thd("equal", length), work),
        "packed, 1024 to 6144": (thd("ragged", max(ragged)), ragged_work),
        "persistent, fixed": (lambda: attention_forward(q, k, v, causal=True, schedule="fixed"), work),
        "persistent, dynamic": (lambda: attention_forward(q, k, v, causal=True, schedule="dynamic"), work),
        "matrix bias": (lambda: attention_forward(q, k, v, causal=True, bias=rows16), work),
        "dropout": (lambda: attention_forward(q, k, v, causal=True, dropout=0.1, seed=1), work),
        "values transposed": (lambda: attention_forward(q, k, turned, causal=True), work),
    }
    formats, arch = {"int8": torch.int8}, architecture(q)
    if arch == "gfx942" or arch.startswith("sm_"):
        formats["fp8"] = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
    for kind, dtype in formats.items():
        (qc, qs), (kc, ks), (vc, vs) = (quantize_heads(x, dtype) for x in (q, k, v))
        named = {"q_scale": qs, "k_scale": ks, "v_scale": vs, "causal": True}
        calls[f"{kind} q k v"] = (lambda a=(qc, kc, vc), n=named: attention_quantized(*a, **n), work)
        if kind == "int8":
            calls["int8 q k v p"] = (
                lambda a=(qc, kc, vc), n=named: attention_quantized(*a, **n, p_scale=1 / 127),
                work,
            )
            half = {"k_scale": ks, "v_scale": vs, "causal": True}
            calls["int8 k v"] = (lambda a=(q, kc, vc), n=half: attention_quantized(*a, **n), work)
    times = median_times({n: c for n, (c, _) in calls.items()}, runs)
    rates = {n: calls[n][1] / t / 1e12 for n, t in times.items()}
    for name, rate in rates.items():
        print(f"{name:24} {rate:4.0f} TFLOPS, {rate / rates['plain']:.2f} of plain", flush=True)
    return [{"name": n, "ms": times[n] * 1e3, "tflops": r, "of_plain": r / rates["plain"]} for n, r in rates.items()]


def plot(rows: list[dict[str, Any]], more: list[dict[str, Any]], hardware: str) -> Any:
    """Forward, forward + backward, and the features, one panel each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    fig, axes = plt.subplots(1, 3, figsize=(15, 4.2))
    chosen = [r for r in rows if r["dtype"] == "bfloat16"]
    groups = list(dict.fromkeys((tuple(r["shape"]), r["causal"]) for r in chosen))
    names = list(dict.fromkeys(r["name"] for r in chosen))
    for ax, key, title in ((axes[0], "forward_tflops", "Forward"), (axes[1], "both_tflops", "Forward + backward")):
        for n, name in enumerate(names):
            values = [
                next(r[key] for r in chosen if (tuple(r["shape"]), r["causal"]) == g and r["name"] == name)
                for g in groups
            ]
            places = [i + (n - 1) * 0.27 for i in range(len(groups))]
            bars = ax.bar(places, values, 0.25, label=name, color=PALETTE[n])
            ax.bar_label(bars, [f"{v:.0f}" for v in values], fontsize=8)
        ax.set_xticks(
            range(len(groups)), [f"{g[0][0]} x {g[0][2]:,}\n{'causal' if g[1] else 'full'}" for g in groups], fontsize=9
        )
        ax.set_title(f"{title}, 32 heads of 128, bf16")
        ax.set_ylabel("TFLOPS (median)")
    axes[0].legend(fontsize=8, ncols=3, loc="upper left")
    for ax in axes[:2]:
        ax.margins(y=0.18)
    names = [r["name"] for r in more]
    values = [r["tflops"] for r in more]
    bars = axes[2].barh(names[::-1], values[::-1], color=PALETTE[0])
    axes[2].bar_label(bars, [f"{v:.0f}" for v in values[::-1]], fontsize=8, label_type="center", color="white")
    axes[2].axvline(values[0], color="#333333", linestyle="--", linewidth=1)
    axes[2].set_title("Features, forward, 4 x 4,096, causal, fp16")
    axes[2].set_xlabel("TFLOPS (median); dashed: plain kernel")
    axes[2].margins(x=0.12)
    fig.suptitle(hardware, fontsize=9)
    return fig


def main() -> None:
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, nothing written")
    parser.add_argument("--out", type=Path, help="folder for the results instead of benchmarks/results")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU here: this benchmark measures one")
    runs = 5 if given.quick else 15
    torch.manual_seed(0)
    rows = against_peers(runs)
    odd = against_peers(runs, ODD, (torch.bfloat16,))
    more = features(runs)
    if not given.quick:
        from rocm_guide.common.device import accelerator

        save("attention", {"runs": runs, "against_peers": rows, "odd_lengths": odd, "features": more}, given.out)
        save_plot("attention", plot(rows, more, accelerator().label()), given.out)


if __name__ == "__main__":
    main()
