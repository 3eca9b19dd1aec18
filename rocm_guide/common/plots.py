# SPDX-License-Identifier: MIT
"""The house plots. Each takes plain numbers, says its units, and carries the hardware that the numbers came from.

Every function draws on ``ax`` (a new figure when it is None) and returns the axes, so a notebook can add to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PALETTE", "bars", "house_style", "lines", "roofline", "stacked_bars", "staircase", "strip", "timeline"]

#: Colours that stay apart for colour-blind readers and in grey print (Okabe and Ito, 2008).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B", "#F0E442")


def house_style() -> None:
    """Set matplotlib's defaults for the course: readable at notebook width, same look everywhere."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "figure.figsize": (7.2, 3.8),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": cycler(color=PALETTE),
            **{f"axes.spines.{side}": False for side in ("top", "right")},
            "axes.grid": True,
            "axes.titlesize": 11,
            "axes.axisbelow": True,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "grid.color": "#DDDDDD",
            "legend.frameon": False,
            "lines.linewidth": 1.8,
        }
    )


def _axes(ax: Axes | None, title: str, hardware: str, height: float = 3.8) -> Axes:
    import matplotlib.pyplot as plt

    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(7.2, height))
    # About 0.105 and 0.062 inches for each letter: where both do not fit side by side, the title has a line of its own.
    spec = ax.get_subplotspec()
    width = ax.get_figure(root=True).get_size_inches()[0] / (spec.get_gridspec().ncols if spec else 1)
    crowded = 0.105 * len(title) + 0.062 * len(hardware) > 0.75 * width
    ax.set_title(title + "\n" if crowded and hardware else title)
    if hardware:
        ax.set_title(hardware, loc="right", fontsize=7.5, color="#6B6B6B", fontweight="normal")
    return ax


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str,
    hardware: str = "",
    log_x: bool = False,
    log_y: bool = False,
    marker: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot one curve per entry of ``series`` (label -> (xs, ys)), for example training losses.

    ``x`` and ``y`` label the axes, with units; ``hardware`` says where it was measured.
    """
    ax = _axes(ax, title, hardware)
    for label, (xs, ys) in series.items():
        ax.plot(xs, ys, marker=marker, markersize=4, label=label)
    ax.set(xlabel=x, ylabel=y)
    if log_x:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:,.10g}")  # 64, not 2 to the power of 6
    if log_y:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:,.10g}")
    if len(series) > 1:
        ax.legend()
    return ax


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    title: str,
    spread: Mapping[str, float] | None = None,
    baseline: str | None = None,
    hardware: str = "",
    fmt: str = "{:,.3g}",
    ax: Axes | None = None,
) -> Axes:
    """Draw horizontal bars with their figures; with ``spread`` error bars, with ``baseline`` the ratio to that entry.

    ``values`` and ``spread`` (half the interval) map a label to a number in ``unit``.
    """
    ax = _axes(ax, title, hardware, height=min(6.0, 1.4 + 0.5 * len(values)))
    names, heights = list(values), list(values.values())
    errors = [spread.get(n, 0.0) for n in names] if spread else None
    colours = [PALETTE[6] if n == baseline else PALETTE[0] for n in names]
    ax.barh(names, heights, xerr=errors, color=colours, height=0.62, error_kw={"ecolor": "#333333", "capsize": 3})
    for i, name in enumerate(names):
        text = " " + (f"{heights[i]:,.0f}" if abs(heights[i]) >= 1000 else fmt.format(heights[i]))
        if baseline is not None and name != baseline and values[baseline]:
            text += f"  ({heights[i] / values[baseline]:.2f}x)"
        ax.text(heights[i] + (errors[i] if errors else 0.0), i, text, va="center", fontsize=9)
    ax.invert_yaxis()
    ax.set(xlabel=unit, xmargin=0.22)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter("{x:,.10g}")
    if "%" in unit and 50 < max(heights, default=0) <= 100:
        ax.set_xticks(range(0, 101, 20))  # there is room for the figures beyond 100 %, but no such share
    ax.grid(axis="y", visible=False)
    return ax


def stacked_bars(
    parts: Mapping[str, Mapping[str, float]],
    *,
    unit: str,
    title: str,
    limit: tuple[str, float] | None = None,
    top: float | None = None,
    hardware: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw one column per entry of ``parts`` (label -> {part: amount}), stacked, with the total on top.

    ``limit`` draws a dashed line with its name in the right margin, for example ``("one MI300X: 206 GB", 206.1)``.
    ``top`` ends the axis there, so that one tall column does not flatten the others; a total above it gets an arrow.
    """
    ax = _axes(ax, title, hardware)
    names = list(parts)
    kinds = list(dict.fromkeys(kind for p in parts.values() for kind in p))
    bottom = [0.0] * len(names)
    for kind in kinds:
        heights = [parts[n].get(kind, 0.0) for n in names]
        ax.bar(names, heights, bottom=bottom, label=kind, width=0.66)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    for i, total in enumerate(bottom):
        text = f"{total:,.0f}" if total >= 10 else f"{total:.2g}"
        place = total
        if top is not None and total > 0.94 * top:
            text, place = f"{text} ↑" if total > top else text, 0.94 * top
        # On white, so that the line of the limit does not run through it.
        white = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none"}
        ax.annotate(text, (i, place), (0, 2), textcoords="offset points", ha="center", fontsize=9, bbox=white, zorder=3)
    if limit is not None:
        ax.axhline(limit[1], color="#333333", linestyle="--", linewidth=1.2)
        # In the margin, where no column and no total can be.
        margin = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
        ax.annotate(limit[0].replace(": ", ":\n"), (1, limit[1]), (4, 0), va="center", fontsize=8.5, **margin)
    ax.set_ylabel(unit)
    ax.yaxis.set_major_formatter("{x:,.10g}")
    ax.margins(y=0.12)
    if top is not None:
        ax.set_ylim(0, top)
    ax.grid(axis="x", visible=False)
    ax.legend(ncols=2)
    return ax


def staircase(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    x: str,
    y: str,
    title: str,
    marks: Mapping[str, tuple[float, float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a step curve, for example waves per SIMD against registers, with named points on it. Notebook 23."""
    ax = _axes(ax, title, "")
    ax.step(xs, ys, where="post")
    for i, (label, (mx, my)) in enumerate((marks or {}).items()):
        ax.plot([mx], [my], "o", color=PALETTE[1 + i % 6], label=label)
    if marks:
        ax.legend()
    ax.set(xlabel=x, ylabel=y)
    ax.set_ylim(bottom=0)
    return ax


def strip(rows: Mapping[str, Sequence[tuple[str, float]]], *, x: str, title: str, ax: Axes | None = None) -> Axes:
    """Draw one horizontal strip per entry of ``rows`` (label -> [(name, width)]), for example layers on each GPU."""
    ax = _axes(ax, title, "")
    kinds = list(dict.fromkeys(name for row in rows.values() for name, _ in row))
    for i, row in enumerate(rows.values()):
        left = 0.0
        for name, width in row:
            ax.barh(i, width, left=left, color=PALETTE[kinds.index(name) % len(PALETTE)], edgecolor="white", height=0.6)
            left += width
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.set_xlabel(x)
    ax.grid(axis="y", visible=False)
    return ax


def timeline(
    lanes: Mapping[str, Sequence[tuple[float, float, str]]],
    *,
    x: str,
    title: str,
    hardware: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw one lane per entry of ``lanes`` (label -> [(start, duration, kind)]); a colour per kind."""
    ax = _axes(ax, title, hardware)
    kinds = list(dict.fromkeys(kind for spans in lanes.values() for *_, kind in spans))
    for k, kind in enumerate(kinds):
        label: str | None = kind
        for i, spans in enumerate(lanes.values()):
            mine = [(start, duration) for start, duration, name in spans if name == kind]
            if mine:
                ax.broken_barh(mine, (i - 0.35, 0.7), color=PALETTE[k % len(PALETTE)], label=label)
                label = None  # one legend entry for each kind
    ax.set_yticks(range(len(lanes)), list(lanes))
    ax.invert_yaxis()
    ax.set_xlabel(x)
    ax.legend(ncols=3)
    return ax


def roofline(
    peak_tflops: float,
    bandwidth_tb_s: float,
    points: Mapping[str, tuple[float, float]],
    *,
    title: str,
    hardware: str,
    lower: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw attainable TFLOPS against FLOPs per byte, min(peak, intensity x bandwidth), and measured or computed points.

    ``points`` maps a label to (FLOPs per byte, TFLOPS), those in almost one place are drawn as rings around each other;
    ``lower`` are peaks of other units, dashed, by name; ``hardware`` names the GPU.
    Source: Williams et al., "Roofline", CACM 52(4), 2009.
    """
    ax = _axes(ax, title, hardware)
    ridge = peak_tflops / bandwidth_tb_s
    intensities = [p[0] for p in points.values()]
    lo, hi = min([0.25, *intensities]) / 2, max([ridge * 8, *intensities]) * 2
    ax.plot([lo, ridge, hi], [lo * bandwidth_tb_s, peak_tflops, peak_tflops], color="#333333")
    ax.text(ridge * 0.7, peak_tflops, f"ridge: {ridge:,.0f} FLOPs per byte", ha="right", va="center", fontsize=8.5)
    for name, peak in (lower or {}).items():
        ax.plot([peak / bandwidth_tb_s, hi], [peak, peak], "--", color="#6B6B6B", linewidth=1.2)
        ax.text(hi, peak * 0.93, name, ha="right", va="top", fontsize=8.5, color="#6B6B6B")
    places = list(points.values())
    for i, (label, (intensity, tflops)) in enumerate(points.items()):
        later = sum(abs(x / intensity - 1) < 0.05 and abs(y / tflops - 1) < 0.05 for x, y in places[i + 1 :])
        ring = {"markersize": 6 + 5 * later, "fillstyle": "none", "markeredgewidth": 2} if later else {}
        ax.plot([intensity], [tflops], "o", color=PALETTE[i % len(PALETTE)], label=label, **ring)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="arithmetic intensity (FLOPs per byte of device memory)", ylabel="TFLOPS")
    if points:
        ax.legend(loc="lower right")
    return ax
