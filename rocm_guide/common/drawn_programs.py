# SPDX-License-Identifier: MIT
"""Triton's programs, drawn: what kernels move through memory, who owns which element, a block over waves and lanes.

Introduced by notebook 21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocm_guide.common.base import GuideError
from rocm_guide.common.drawing import arrow, box, canvas
from rocm_guide.common.plots import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_block", "draw_crossings", "draw_programs"]


def draw_crossings(kernels: Mapping[str, tuple[int, int]], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw kernels above the memory, with an arrow for each time that a matrix crosses to or from it.

    Args:
        kernels: name -> (times that it reads a matrix of the full size, times that it writes one).
        title: of the drawing.
        ax: where to draw; a new figure when None.
    """
    ax = canvas(ax, 7.2, 2.1, title)
    width = 2.4
    for k, (name, (reads, writes)) in enumerate(kernels.items()):
        box(ax, k * width, 1.6, width - 0.4, 0.8, name, PALETTE[0], 9.5)
        for n in range(reads + writes):
            x = k * width + (n + 1) * (width - 0.4) / (reads + writes + 1)
            ends = ((x, 0.7), (x, 1.6))
            arrow(ax, *(ends if n < reads else ends[::-1]))
    box(ax, 0, 0, max(len(kernels), 2) * width - 0.4, 0.7, "memory of the GPU", PALETTE[4], 9.5)
    ax.set_xlim(-0.2, max(len(kernels), 5) * width)
    ax.set_ylim(-0.1, 2.6)
    return ax


def draw_programs(
    owners: Sequence[Sequence[int]], rows: int, columns: int, *, title: str, result: str = "", ax: Axes | None = None
) -> Axes:
    """Draw which program owns each element; what a mask keeps out, beyond ``rows`` x ``columns``, is hatched.

    Args:
        owners: the number of a program for each element of all blocks, row by row.
        rows, columns: of the tensor.
        title: of the drawing.
        result: where each row becomes one number, how it is called, for example "max"; drawn at the row's end.
        ax: where to draw; a new figure when None.

    Raises:
        GuideError: the programs do not cover the tensor.
    """
    from matplotlib.patches import Rectangle

    high, wide = len(owners), min(map(len, owners), default=0)
    if not (0 < rows <= high and 0 < columns <= wide):
        raise GuideError(f"rows={rows}, columns={columns}: the programs cover {high} x {wide}; launch enough of them")
    whole = wide + (3 if result else 0)
    ax = canvas(ax, min(7.2, 0.5 * whole + 0.4), 0.42 * high + 0.6, title)
    for row in range(high):
        for column in range(wide):
            owner, inside = owners[row][column], row < rows and column < columns
            colour = PALETTE[owner % 6]
            look = {"facecolor": colour + ("77" if inside else "00"), "edgecolor": colour if inside else "#999999"}
            ax.add_patch(Rectangle((column, -row), 0.94, 0.92, linewidth=1, hatch="" if inside else "////", **look))
            if inside:
                ax.text(column + 0.47, 0.46 - row, str(owner), ha="center", va="center", fontsize=9)
        if result and row < rows:
            arrow(ax, (wide + 0.1, 0.46 - row), (wide + 1, 0.46 - row))
            box(ax, wide + 1, -row, 1.9, 0.92, result, PALETTE[owners[row][0] % 6], 9)
    ax.set_xlim(-0.1, whole + 0.1)
    ax.set_ylim(0.9 - high, 1.1)
    return ax


def draw_block(elements: int, waves: int, lanes: int, item_bytes: int, *, ax: Axes | None = None) -> Axes:
    """Draw the block of one program over its waves, the lanes of a wave, and the elements of a lane.

    Neighbouring elements lie in one lane, as in the layout that Triton chooses for contiguous loads.

    Args:
        elements: of the block.
        waves, lanes: of the program, and of each wave.
        item_bytes: of one element.
        ax: where to draw; a new figure when None.

    Raises:
        GuideError: the lanes cannot share the elements evenly.
    """
    each, rest = divmod(elements, waves * lanes)
    if rest or not each:
        raise GuideError(f"elements={elements}: {waves * lanes} lanes cannot share them evenly")
    bits = 8 * item_bytes * each
    ax = canvas(ax, 7.2, 2.7, f"One program: {elements:,} elements, {waves} waves of {lanes} lanes")
    width, lower = 12.0, 12.0 / 9
    part = width / waves
    for wave in range(waves):
        first = wave * lanes * each
        text = f"wave {wave}\n{first:,} … {first + lanes * each - 1:,}"
        box(ax, wave * part, 4, part, 1.1, text, PALETTE[0], 8.5)
    ax.plot([0, 0], [3.1, 4], [width, part], [3.1, 4], color="#999999", linewidth=0.8, linestyle="--")
    for n, lane in enumerate([0, 1, 2, 3, 4, 5, 6, -1, lanes - 1]):
        box(ax, n * lower, 2, lower, 1.1, f"lane {lane}" if lane >= 0 else "…", PALETTE[1], 8.5)
    ax.plot([0, 0], [1.1, 2], [width, lower], [1.1, 2], color="#999999", linewidth=0.8, linestyle="--")
    shown = min(each, 8)
    for n in range(shown):
        last = n == shown - 1 and shown < each
        box(ax, n * width / shown, 0, width / shown, 1.1, "…" if last else f"element {n}", PALETTE[2], 8.5)
    ax.text(width / 2, -0.35, f"{each} x {8 * item_bytes} bits = {bits} bits for lane 0", ha="center", fontsize=9)
    ax.set_xlim(-0.1, width + 0.1)
    ax.set_ylim(-0.6, 5.2)
    return ax
