# SPDX-License-Identifier: MIT
"""The stacked plot of memory plans against the memory of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocm_guide.common.plots import PALETTE, stacked_bars
from rocm_guide.models.memory_planner import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_fit"]

_GROUPS = {
    "parameters": "parameters",
    "adapter": "parameters",
    "gathered": "gathered by FSDP",
    "gradients": "gradients",
    "DDP buckets": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "weight casts": "activations",
    "unpacked weights": "activations",
    "loss": "logits and loss",
    "logits": "logits and loss",
    "KV cache": "KV cache",
}
#: One colour for each kind, whichever of them a plot has.
_COLOURS = {
    "parameters": PALETTE[0],
    "gradients": PALETTE[1],
    "optimizer": PALETTE[2],
    "activations": PALETTE[3],
    "logits and loss": PALETTE[4],
    "overhead": PALETTE[5],
    "gathered by FSDP": PALETTE[6],
    "KV cache": PALETTE[7],
}


def draw_fit(plans: Mapping[str, Fit], *, title: str = "Memory of one GPU at its peak", ax: Axes | None = None) -> Axes:
    """Draw one column for each plan, stacked by part, with the GPU's memory as a line.

    All plans must be for the same GPU; the total that stands on a column is what the device must have.
    """
    parts: dict[str, dict[str, float]] = {}
    for label, plan in plans.items():
        column = dict.fromkeys([*_GROUPS.values(), "overhead"], 0.0)
        for name, size in {**plan.parts, **plan.overhead}.items():
            column[_GROUPS.get(name, "overhead")] += size / 1e9
        parts[label] = column
    used = [kind for kind in next(iter(parts.values())) if any(column[kind] for column in parts.values())]
    parts = {label: {kind: column[kind] for kind in used} for label, column in parts.items()}
    plan = next(iter(plans.values()))
    limit = (f"one {plan.gpu}: {plan.budget / 1e9:.0f} GB", plan.budget / 1e9)
    ax = stacked_bars(parts, unit="GB", title=title, limit=limit, hardware="computed", ax=ax)
    for kind, container in zip(used, ax.containers, strict=True):
        for patch in container:
            patch.set_facecolor(_COLOURS[kind])
    # Room for the legend above the columns and the line.
    highest = max(plan.budget / 1e9, *(sum(column.values()) for column in parts.values()))
    ax.set(ylim=(0, 1.32 * highest), xlim=(-0.55, max(len(parts), 3) - 0.45))
    ax.legend(ncols=4, fontsize=8, loc="upper left")
    return ax
