# SPDX-License-Identifier: MIT
"""Predicted against measured, of one file or several, as a table and a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocm_guide.hardware.specs import GpuSpec, find_gpu, gpu
from rocm_guide.measure.cases import CASES, predicted_us
from rocm_guide.plots import PALETTE, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_merged", "merged_table"]


def _spec(result: dict[str, Any]) -> GpuSpec | None:
    return find_gpu(result["hardware"]["name"])


def shares(result: dict[str, Any]) -> dict[str, float]:
    """Predicted / measured for each case that was timed, on a GPU whose data sheet is known: 1 is the roofline."""
    spec = _spec(result)
    timed = {n: c["us"] for n, c in result["cases"].items() if "us" in c and n in CASES}
    return {n: predicted_us(CASES[n], spec) / us for n, us in timed.items()} if spec else {}


def merged_table(results: Sequence[dict[str, Any]]) -> str:
    """A line for each case: the roofline of an MI300X, then each file's median and the share of its own roofline."""
    mi300x = gpu("MI300X")
    names = [n for n in CASES if any(n in r["cases"] for r in results) or not results]
    head = f"{'case':<42} {'MI300X, predicted':>18}"
    head += "".join(f"  {r['hardware']['name'][:28]:>28}" for r in results)
    rows = [head]
    parts = [shares(r) for r in results]
    for name in names:
        row = f"{name:<42} {predicted_us(CASES[name], mi300x):>15,.1f} us"
        for r, share in zip(results, parts, strict=True):
            found = r["cases"].get(name, {})
            if "us" not in found:
                text = "failed" if "error" in found else "-"
            else:
                text = f"{found['us']:,.1f} us" + (f" ({share[name]:.0%})" if name in share else "")
            row += f"  {text:>28}"
        rows.append(row)
    if results:
        rows.append("(in brackets: predicted / measured on that GPU; predicted is the roofline of its data sheet)")
    return "\n".join(rows)


def draw_merged(results: Sequence[dict[str, Any]], ax: Axes | None = None) -> Axes:
    """Measured against predicted time, one point for each case and file; both axes logarithmic."""
    import matplotlib.pyplot as plt

    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(7.2, 5.4))
    low, high = float("inf"), 0.0
    labelled: list[tuple[float, float]] = []
    for i, r in enumerate(results):
        spec = _spec(r)
        if spec is None:
            continue
        timed = {n: c for n, c in r["cases"].items() if "us" in c and n in CASES}
        x = [predicted_us(CASES[n], spec) for n in timed]
        y = [c["us"] for c in timed.values()]
        spread = [c.get("spread_us", 0) for c in timed.values()]
        low, high = min([low, *x, *y]), max([high, *x, *y])
        versions = r["hardware"].get("versions", {})
        label = f"{r['hardware']['name']}, torch {str(versions.get('torch', '?')).split('+')[0]}"
        ax.errorbar(x, y, yerr=spread, fmt="o", markersize=5, color=PALETTE[i % len(PALETTE)], label=label)
        for n, a, b in sorted(zip(timed, x, y, strict=True), key=lambda p: -p[2]):
            near = any(abs(math.log10(a / c)) < 0.4 and abs(math.log10(b / d)) < 0.1 for c, d in labelled)
            if b > 2 * a and not near:
                labelled.append((a, b))
                ax.annotate(n, (a, b), xytext=(4, 3), textcoords="offset points", fontsize=6.5)
    if high:
        ends = [low * 0.8, high * 1.25]
        for factor, style in ((1, "-"), (2, ":")):
            ax.plot(ends, [factor * e for e in ends], style, color=PALETTE[6], lw=1)
        ax.legend(fontsize=8)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="predicted by the roofline, microseconds",
        ylabel="measured (median), microseconds",
        title="Predicted and measured (dotted: twice)",
    )
    return ax
