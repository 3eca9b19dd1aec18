# SPDX-License-Identifier: MIT
"""Shared by the kernel benchmarks: honest timing of short kernels, ceilings of the GPU measured in the same run, files.

- A kernel is timed inside a CUDA graph, so that Python and the launch path cost nothing and every contender is timed
  alike. The graph calls it on many copies of its inputs in turn, together larger than the last cache, because in a
  model nothing of a layer is still in the cache when the layer comes round again.
- The figure is the median over replays, with half the interquartile range.
- Ceilings: ``copy_bandwidth`` (bytes read plus written per second by a copy kernel at a given size) and
  ``matmul_ceiling`` (TFLOPS of torch's own large matmul), measured on this GPU in this run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rocm_guide.common.device import Timing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
MAX_COPIES = 512
#: The fewest calls in a graph.
GRAPH_CALLS = 24


@dataclass(frozen=True)
class Time:
    """Microseconds per call: median over replays, half the interquartile range, and calls in the graph."""

    us: float
    spread: float
    calls: int

    def gb_s(self, nbytes: float) -> float:
        """Return gigabytes (10^9) per second when one call must move ``nbytes``."""
        return nbytes / self.us / 1e3

    def tflops(self, flops: float) -> float:
        """Return the TFLOPS when one call does ``flops``."""
        return flops / self.us / 1e6


def last_cache_bytes() -> int:
    """Return the bytes of the last cache of the GPU: L2, and on MI300X the 256 MiB Infinity Cache behind it."""
    props = torch.cuda.get_device_properties(0)
    return max(int(props.L2_cache_size), 256 << 20 if torch.version.hip else 0)


def copies_past_cache(bytes_per_call: float) -> int:
    """Return how many copies of what one call reads exceed the last cache 1.5 times; at least 3.

    Count what is read only. Outputs written past the cache would make room for inputs in it, and inputs that fit would
    be found there again on the next round.
    """
    return max(3, min(MAX_COPIES, int(1.5 * last_cache_bytes() / max(bytes_per_call, 1)) + 1))


def time_graph(
    make: Callable[[int], Callable[[], object]],
    bytes_per_call: float,
    *,
    replays: int = 21,
    at_least_us: float = 1000.0,
) -> Time:
    """Time ``make(i)()`` for i = 0, 1, …, each on its own copy of the inputs, in one CUDA graph.

    The graph makes GRAPH_CALLS calls at least, going round the copies: between two replays the GPU rests for some
    microseconds, which would otherwise be counted as time of the few kernels of a short graph. Where a call reads 256
    MiB or more, that is nothing beside its time, and each copy is used once.

    Args:
        make: called before the capture; returns a thunk that launches the kernel and returns what it allocated.
        bytes_per_call: what one call reads; decides how many copies there are.
        replays: timed replays of the graph.
        at_least_us: the graph's calls are repeated until one replay takes about this long.
    """
    copies = copies_past_cache(bytes_per_call)
    thunks = [make(i) for i in range(copies)]
    calls = copies * -(-GRAPH_CALLS // copies) if bytes_per_call < 1 << 28 else copies
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm-up where the capture happens: compilation, autotuning, allocations
        for t in thunks[:3]:
            t()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for i in range(calls):
            kept.append(thunks[i % copies]())  # alive until the end, so that every call writes to its own memory
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(times: int) -> float:
        start.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / (times * calls)

    once(2)
    times = max(1, round(at_least_us / max(once(1) * calls, 1e-3)))
    samples = [once(times) for _ in range(replays)]
    graph.reset()
    del kept, thunks
    timing = Timing.of(samples)
    return Time(timing.median, timing.spread, calls)


def tensors(shape: Sequence[int], dtype: torch.dtype, copies: int, seed: int = 0) -> torch.Tensor:
    """Return ``copies`` random tensors of ``shape`` as one (copies, …) tensor on the GPU; 8-bit types through float."""
    g = torch.Generator("cuda").manual_seed(seed)
    if dtype == torch.int8:
        return torch.randint(-128, 128, (copies, *shape), generator=g, device="cuda", dtype=dtype)
    plain = dtype if dtype.itemsize > 1 else torch.bfloat16
    return torch.randn((copies, *shape), generator=g, device="cuda", dtype=plain).to(dtype)


def copy_bandwidth(nbytes: int = 1 << 30) -> float:
    """Measure the GB/s (10^9; read plus written) of copying ``nbytes``:
    the better of torch's copy and the course's copy kernel.
    """
    from rocm_guide.kernels.bandwidth import stream

    n = max(nbytes // 4, 1024)
    copies = copies_past_cache(4 * n)
    x, y = (torch.zeros((copies, n), dtype=torch.float32, device="cuda") for _ in range(2))
    contenders = (lambda i: lambda: y[i].copy_(x[i]), lambda i: lambda: stream("copy", y[i], x[i]))
    return max(time_graph(make, 4 * n).gb_s(8 * n) for make in contenders)


def matmul_ceiling(dtype: torch.dtype = torch.bfloat16, n: int = 8192) -> float:
    """Measure the TFLOPS of torch's own n x n x n matmul in ``dtype`` (fp16, bf16 or fp32)."""
    a, b = tensors((n, n), dtype, 2)
    return time_graph(lambda i: lambda: a @ b, 4 * n * n * dtype.itemsize, at_least_us=1).tflops(2 * n**3)


def stamp() -> dict[str, object]:
    """Return hardware, machine and versions, to stand in every result."""
    import triton

    from rocm_guide.common.device import accelerator
    from rocm_guide.common.host import host_facts

    found = {
        "hardware": accelerator().label(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "host": host_facts(),
        "runtime": f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}",
    }
    for name in ("liger_kernel", "transformers"):
        if name in sys.modules:
            import importlib.metadata

            found[name] = importlib.metadata.version(name.replace("_", "-"))
    return found


def save(name: str, result: Mapping[str, object], folder: Path | None = None) -> Path:
    """Write ``result`` with the stamp as ``results/<name>.json``; returns the path."""
    from rocm_guide.common.base import write_text

    return write_text((folder or RESULTS) / f"{name}.json", json.dumps({**stamp(), **result}, indent=1) + "\n")


def save_plot(name: str, fig: Figure, folder: Path | None = None) -> list[Path]:
    """Write a figure as ``results/<name>.png`` and ``.svg``; returns the paths."""
    target = folder or RESULTS
    target.mkdir(parents=True, exist_ok=True)
    paths = [target / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        fig.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def plot_by_size(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    sizes: Sequence[object],
    *,
    x: str,
    y: str,
    title: str,
    hardware: str,
    ceiling: Mapping[str, float] | None = None,
    log_y: bool = False,
    columns: int = 3,
):
    """Draw one panel per entry of ``panels`` (title -> {contender: a figure per size}),
    ours last so that it lies on top.

    ``ceiling`` maps a label to a level drawn as a dashed line in each panel.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    fig, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 3.1 * lines), squeeze=False, sharey=True)
    names = list(dict.fromkeys(n for p in panels.values() for n in p))
    for ax, (panel, series) in zip(axes.flat, panels.items(), strict=False):
        for name, values in series.items():
            colour = PALETTE[names.index(name) % len(PALETTE)]
            ax.plot(range(len(sizes)), values, marker="o", markersize=3.5, color=colour, label=name)
        for label, level in (ceiling or {}).items():
            ax.axhline(level, color="#333333", linestyle="--", linewidth=1.0, label=label)
        ax.set_title(panel, fontsize=10)
        ax.set_xticks(range(len(sizes)), [str(s) for s in sizes], rotation=45 if len(sizes) > 6 else 0, fontsize=8)
        ax.set_xlabel(x)
        if log_y:
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_ylim(bottom=0)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_ylabel(y)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.suptitle(title, fontsize=12, weight="bold", x=0.01, ha="left")
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    fig.text(0.99, 0.985, hardware, ha="right", va="top", fontsize=7.5, color="#6B6B6B")
    return fig
