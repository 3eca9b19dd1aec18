# SPDX-License-Identifier: MIT
"""A drawing without axes, and what is drawn on it: boxes, arrows, grids."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from rocm_guide.common.plots import PALETTE, house_style

__all__ = ["arrow", "box", "canvas", "grid"]


def canvas(ax: Axes | None, width: float, height: float, title: str) -> Axes:
    """Return ``ax`` without axes; when it is None, a new figure of ``width`` x ``height`` inches."""
    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(width, height))
    ax.set_title(title)
    ax.set_axis_off()
    return ax


def box(ax: Axes, x: float, y: float, w: float, h: float, text: str, colour: str, size: float = 8.5) -> None:
    """Draw a tinted rectangle with its lower left corner at (x, y), in data coordinates, and text in its middle."""
    ax.add_patch(Rectangle((x, y), w, h, facecolor=colour + "33", edgecolor=colour, linewidth=1.1))
    ax.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=size)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", size: float = 8.5) -> None:
    """Draw an arrow from ``start`` to ``end``, with text above its middle (beside it, when it is upright)."""
    style = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.2, "shrinkA": 1, "shrinkB": 1}
    ax.annotate("", xy=end, xytext=start, arrowprops=style)
    if text:
        upright = abs(end[0] - start[0]) < abs(end[1] - start[1])
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        place = {"ha": "left", "va": "center"} if upright else {"ha": "center", "va": "bottom"}
        offset = (5, 0) if upright else (0, 3)
        ax.annotate(text, middle, offset, textcoords="offset points", fontsize=size, **place)


def grid(
    ax: Axes, x: float, y: float, w: float, h: float, rows: int, columns: int, colour_of: Callable[[int, int], str]
) -> None:
    """Draw a rectangle of ``rows`` x ``columns`` cells; ``colour_of(row, column)`` gives a colour, or "" for white.

    Row 0 is the upper one.
    """
    step_x, step_y = w / columns, h / rows
    for row in range(rows):
        for column in range(columns):
            colour = colour_of(row, column)
            corner = (x + column * step_x, y + h - (row + 1) * step_y)
            face = colour + "55" if colour else "#FFFFFF"
            ax.add_patch(Rectangle(corner, step_x, step_y, facecolor=face, edgecolor=PALETTE[6], linewidth=0.6))
