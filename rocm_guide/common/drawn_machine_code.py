# SPDX-License-Identifier: MIT
"""Pictures of machine code at work: the lane map of a matrix instruction, the banks of an LDS access, a loop's budget,
waves in time.

What is drawn comes from :mod:`cdna.explain`, :mod:`cdna.predict.times` and :mod:`cdna.step.timeline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdna.explain.banks import BANKS, BankAccess
from cdna.explain.operand_map import lane_map
from cdna.predict.times import LoopBudget
from cdna.step.timeline import Timeline
from rocm_guide.common.plots import PALETTE, bars, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_banks", "draw_budget", "draw_lane_map", "draw_waves"]

_UNITS = {
    "global": ("loads and stores", PALETTE[1]),
    "lds": ("LDS", PALETTE[2]),
    "valu": ("vector unit", PALETTE[4]),
    "mfma": ("matrix core", PALETTE[0]),
    "data": ("waits for data", "#DDDDDD"),
    "barrier": ("waits at a barrier", "#888888"),
}
_REASONS = {"vmcnt": "data", "lgkmcnt": "data", "result": "data", "barrier": "barrier"}


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(width, height))
    ax.grid(visible=False)
    return ax


def draw_lane_map(op: str, operand: str = "D", *, block: int = 0, ax: Axes | None = None) -> Axes:
    """Draw a matrix operand: the number in each element is the lane that holds it, the colour says in which register.

    Raises:
        MapError: no such instruction, operand or block.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    m = lane_map(op, operand)
    m.holder(0, 0, block)
    lanes, elements = m.lanes[block], m.elements[block]
    rows, columns = lanes.shape
    ax = _axes(ax, 1.2 + 0.24 * max(columns, 12), 1.1 + 0.2 * max(rows, 6))
    per = max(1, 32 // m.bits)
    registers = elements // per * max(1, m.bits // 32)
    first = sorted(set(registers.ravel().tolist()))
    index = [[first.index(r) for r in row] for row in registers.tolist()]
    colours = [PALETTE[i % len(PALETTE)] + "55" for i in range(len(first))]
    ax.imshow(index, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(first) - 0.5, aspect="auto")
    size = 6.5 if max(rows, columns) <= 16 else 5
    for i in range(rows):
        for j in range(columns):
            ax.text(j, i, int(lanes[i, j]), ha="center", va="center", fontsize=size)
    names = {"A": ("k", "row"), "B": ("column", "k"), "D": ("column", "row")}[m.operand]
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_title(f"{m.operand} of {m.shape.name}: lanes", fontsize=9)
    if len(first) <= 16:
        handles = [Patch(color=colours[i], label=f"v{r}") for i, r in enumerate(first)]
        ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7, title="register")
    return ax


def draw_banks(access: BankAccess, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw an LDS access: one row for each group of lanes that go together, one column for each bank.

    A box holds the number of different words that the group wants from the bank, each of which takes a cycle; where
    it is one, the lane.
    """
    from matplotlib.colors import ListedColormap

    groups = access.groups
    ax = _axes(ax, 7.2, 1.1 + 0.3 * max(4, len(groups)))
    words = [[len(banks.get(b, {})) for b in range(BANKS)] for banks in groups]
    shown = [[min(n, 2) for n in row] for row in words]
    ax.imshow(shown, cmap=ListedColormap(["#F4F4F4", "#B9D6E8", "#F0B48C"]), vmin=-0.5, vmax=2.5, aspect="auto")
    for y, banks in enumerate(groups):
        for b, wanted in banks.items():
            several = len(wanted) > 1
            text = f"{len(wanted)}x" if several else str(next(iter(wanted.values()))[0])
            ax.text(b, y, text, ha="center", va="center", fontsize=6, fontweight="bold" if several else "normal")
    ax.set(xlabel="bank (4 bytes)", ylabel="lanes that go together")
    turns = [max(map(len, banks.values())) for banks in groups]
    ax.set_yticks(range(len(groups)), [f"{n} cycle{'s' * (n > 1)}" for n in turns], fontsize=7)
    ax.set_xticks(range(0, BANKS, 4))
    ax.set_title(f"{title}: {access}" if title else str(access), fontsize=9)
    return ax


def draw_budget(budget: LoopBudget, *, title: str, ax: Axes | None = None) -> Axes:
    """Draw the cycles that one turn of a loop keeps each unit busy; the longest bar is the limit."""
    ordered = dict(sorted(budget.parts.items(), key=lambda x: -x[1]))
    return bars(
        ordered,
        unit="cycles of one turn, all waves of a compute unit",
        title=title,
        hardware="model, MI300X",
        fmt="{:,.0f}",
        ax=ax,
    )


def draw_waves(models: Mapping[str, Timeline], cycles: int, *, most: int = 4) -> Figure:
    """Draw what the waves of a compute unit's first SIMD do, one panel for each model, all at one scale.

    A panel begins where the first wave is in the middle of its instructions, so usually in the middle of a loop.
    Blank is a wave that waits for a unit or for its turn.

    Args:
        models: timelines by the title of their panel.
        cycles: of the model that are shown.
        most: waves that are shown at most.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    house_style()
    fig, axes = plt.subplots(len(models), 1, figsize=(8.6, 1.75 * len(models) + 0.6), sharex=True, squeeze=False)
    for ax, (title, model) in zip(axes[:, 0], models.items(), strict=True):
        simds = len(model.mfma_busy)
        rows = range(min(most, -(-model.waves // simds)))
        first = [s.asked for s in model.spans if s.wave == 0]
        begin = first[len(first) // 2]
        for row in rows:
            mine = [s for s in model.spans if s.wave == row * simds]
            for kind, (_, colour) in _UNITS.items():
                at = [(s.start - begin, s.end - s.start) for s in mine if s.kind == kind]
                at += [(s.asked - begin, s.start - s.asked) for s in mine if _REASONS.get(s.why) == kind]
                ax.broken_barh(at, (row - 0.4, 0.8), color=colour)
        ax.set(title=title, xlim=(0, cycles), ylim=(len(rows) - 0.5, -0.5), yticks=[], ylabel="waves")
        ax.grid(visible=False)
    axes[-1, 0].set_xlabel("cycles of the model, one gfx942 compute unit")
    handles = [Patch(color=colour, label=text) for text, colour in _UNITS.values()]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7.5)
    return fig
