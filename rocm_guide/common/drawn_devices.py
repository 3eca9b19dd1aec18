# SPDX-License-Identifier: MIT
"""A model over several devices, drawn: what each holds and what travels between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError
from rocm_guide.common.drawing import arrow, box, canvas
from rocm_guide.common.plots import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_stages"]


def draw_stages(held: Mapping[Any, Sequence[str]], *, between: str, title: str, ax: Axes | None = None) -> Axes:
    """Draw one box for each device with what it holds, in the order of the forward pass. Notebook 04.

    Args:
        held: device -> the names of its pieces, as :func:`rocm_guide.models.placement_reasons.runs_of` gives them;
            devices that hold nothing are left out.
        between: what goes from one device to the next, for example "hidden state".
        title: of the drawing.
        ax: where to draw; a new figure when None.

    Raises:
        GuideError: no device holds anything.
    """
    stages = [(device, names) for device, names in held.items() if names]
    if not stages:
        raise GuideError("held: no device holds anything; give device -> names of pieces")
    ax = canvas(ax, 7.2, 2.2, title)
    wide, gap = 2.4, 1.0
    last = len(stages) - 1
    for i, (device, names) in enumerate(stages):
        x = i * (wide + gap)
        label = f"GPU {device}" if isinstance(device, int) else str(device)
        box(ax, x, 0, wide, 1.8, "\n".join(names), PALETTE[i % len(PALETTE)], 8.5)
        ax.text(x + wide / 2, 1.95, label, ha="center", fontsize=9, fontweight="bold")
        if i < last:
            arrow(ax, (x + wide, 0.9), (x + wide + gap, 0.9))
    end = last * (wide + gap) + wide
    arrow(ax, (-0.8, 0.9), (0, 0.9), "tokens", 8)
    arrow(ax, (end, 0.9), (end + 0.8, 0.9), "logits", 8)
    if last:
        ax.text(end / 2, -0.25, f"at each arrow between devices: {between}", ha="center", va="top", fontsize=8.5)
    ax.set_xlim(-0.9, end + 0.9)
    ax.set_ylim(-0.75, 2.3)
    return ax
