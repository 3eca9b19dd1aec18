# SPDX-License-Identifier: MIT
"""Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and memory.

The numbers come from :mod:`cdna.predict.specs`; nothing is to scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from cdna.explain.banks import BANKS, BankAccess
from cdna.explain.operand_map import lane_map
from cdna.predict.specs import GpuSpec
from cdna.predict.times import LoopBudget
from cdna.step.timeline import Timeline
from rocm_guide.common.base import GuideError
from rocm_guide.common.drawing import arrow, box, canvas
from rocm_guide.common.plots import PALETTE, bars, house_style

__all__ = [
    "draw_banks",
    "draw_block",
    "draw_budget",
    "draw_compute_unit",
    "draw_crossings",
    "draw_gpu",
    "draw_lane_map",
    "draw_owners",
    "draw_programs",
    "draw_wave",
    "draw_waves",
]


def draw_wave(spec: GpuSpec) -> Axes:
    """Draw one wave: its lanes, the vector registers of each, and the scalar registers that all share."""
    most = 512 if spec.arch.startswith("gfx9") else 255
    ax = canvas(None, 7.2, 3.0, f"One wave of {spec.name}: {spec.lanes} lanes, one instruction at a time")
    shown = 16
    for lane in range(shown):
        x = lane if lane < shown - 1 else lane + 0.9
        label = str(lane) if lane < shown - 1 else str(spec.lanes - 1)
        box(ax, x, 3.2, 0.86, 0.8, label, PALETTE[0])
        for row in range(3):
            box(ax, x, 2.2 - row * 0.75, 0.86, 0.65, ("v0", "v1", "…")[row], PALETTE[1], 7)
    ax.text(shown - 0.55, 3.6, "…", ha="center", va="center")
    ax.text(-0.25, 3.6, "lane", ha="right", va="center", fontsize=9)
    ax.text(-0.25, 1.75, f"vector\nregisters\n(32 bits,\nup to {most}\nper lane)", ha="right", va="center", fontsize=8)
    box(
        ax,
        0,
        -0.75,
        shown + 0.76,
        0.9,
        "scalar registers: one value for the whole wave (addresses, loop counters)",
        PALETTE[2],
    )
    ax.set(xlim=(-2.6, shown + 1), ylim=(-0.9, 4.2))
    return ax


def draw_compute_unit(spec: GpuSpec) -> Axes:
    """Draw one compute unit: its SIMDs with their wave slots and registers, and the LDS and L1 that they share."""
    ax = canvas(None, 7.2, 3.6, f"One compute unit of {spec.name}: {spec.simds} SIMDs x {spec.max_waves} wave slots")
    for simd in range(spec.simds):
        x = simd * 3
        box(ax, x, 1.1, 2.8, 4.2, "", PALETTE[6])
        ax.text(x + 1.4, 5.05, f"SIMD {simd}", ha="center", va="center", fontsize=9, fontweight="bold")
        for slot in range(spec.max_waves):
            box(ax, x + 0.15 + (slot % 4) * 0.63, 4.05 - (slot // 4) * 0.62, 0.58, 0.55, f"w{slot}", PALETTE[0], 7)
        box(ax, x + 0.15, 2.35, 2.5, 0.95, f"registers\n{spec.register_kib // spec.simds} KiB", PALETTE[1], 8)
        box(ax, x + 0.15, 1.25, 2.5, 0.95, "vector ALU +\nmatrix core", PALETTE[3], 8)
    width = spec.simds * 3 - 0.2
    box(ax, 0, 0, width * 0.62, 0.95, f"LDS {spec.lds_kib} KiB (shared by a workgroup, yours to use)", PALETTE[2])
    box(ax, width * 0.64, 0, width * 0.36, 0.95, f"L1 {spec.l1_kib} KiB (automatic)", PALETTE[4])
    ax.set(xlim=(-0.2, width + 0.2), ylim=(-0.2, 5.6))
    return ax


def draw_gpu(spec: GpuSpec) -> Axes:
    """Draw the whole GPU: dies with their compute units and L2, the last cache, and the memory."""
    ax = canvas(
        None, 7.2, 4.2, f"{spec.name}: {spec.dies} dies x {spec.units // spec.dies} compute units = {spec.units}"
    )
    columns = -(-spec.dies // 2) if spec.dies > 2 else spec.dies
    per_die = spec.units // spec.dies
    for die in range(spec.dies):
        x, y = (die % columns) * 4.2, 4.6 - (die // columns) * 2.9
        box(ax, x, y, 4.0, 2.7, "", PALETTE[6])
        ax.text(x + 0.15, y + 2.45, f"die {die} (XCD)" if spec.arch.startswith("gfx") else f"die {die}", fontsize=8)
        for unit in range(per_die):
            corner = x + 0.15 + (unit % 13) * 0.285, y + 1.75 - (unit // 13) * 0.42
            ax.add_patch(
                Rectangle(corner, 0.24, 0.34, facecolor=PALETTE[0] + "55", edgecolor=PALETTE[0], linewidth=0.6)
            )
        box(ax, x + 0.15, y + 0.1, 3.7, 0.5, f"L2 {spec.l2_mib / spec.dies:g} MiB", PALETTE[4], 8)
    width = columns * 4.2 - 0.2
    top = 4.6 - (-(-spec.dies // columns) - 1) * 2.9
    if spec.l3_mib:
        box(ax, 0, top - 0.9, width, 0.7, f"Infinity Cache {spec.l3_mib} MiB, shared by all dies", PALETTE[2])
    memory = f"memory {spec.memory_gib} GiB, {spec.bandwidth_tb_s:g} TB/s"
    box(ax, 0, top - (1.8 if spec.l3_mib else 0.9), width, 0.7, memory, PALETTE[1])
    ax.set(xlim=(-0.2, width + 0.2), ylim=(top - 2.0, 7.5))
    return ax


def draw_owners(owners: list[list[int]], *, title: str, what: str, ax: Axes | None = None) -> Axes:
    """Draw a tile coloured by which wave (or die, or lane) holds each element: ``owners[row][column]``.

    ``what`` names the owner in the legend, for example ``"wave"``.
    """
    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(4.2, 3.2))
    names = sorted({owner for row in owners for owner in row})
    index = {owner: i for i, owner in enumerate(names)}
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(names))]
    grid = [[index[owner] for owner in row] for row in owners]
    ax.imshow(
        grid, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(names) - 0.5, aspect="auto", interpolation="nearest"
    )
    ax.set_title(title)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    ax.grid(visible=False)
    if len(names) <= 8:
        handles = [Patch(color=colours[i], label=f"{what} {name}") for i, name in enumerate(names)]
        ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def draw_crossings(kernels: Mapping[str, tuple[int, int]], *, title: str, ax: Axes | None = None) -> Axes:
    """Draw kernels above the memory, with an arrow for each time that a matrix crosses to or from it.

    Args:
        kernels: name -> (times that it reads a matrix of the full size, times that it writes one).
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
    ax.set(xlim=(-0.2, max(len(kernels), 5) * width), ylim=(-0.1, 2.6))
    return ax


def draw_programs(owners: Sequence[Sequence[int]], rows: int, columns: int, *, title: str, result: str = "") -> Axes:
    """Draw which program owns each element; what a mask keeps out, beyond ``rows`` x ``columns``, is hatched.

    Args:
        owners: the number of a program for each element of all blocks, row by row.
        result: where each row becomes one number, how it is called, for example "max"; drawn at the row's end.

    Raises:
        GuideError: the programs do not cover the tensor.
    """
    high, wide = len(owners), min(map(len, owners), default=0)
    if not (0 < rows <= high and 0 < columns <= wide):
        raise GuideError(f"rows={rows}, columns={columns}: the programs cover {high} x {wide}; launch enough of them")
    whole = wide + (3 if result else 0)
    ax = canvas(None, min(7.2, 0.5 * whole + 0.4), 0.42 * high + 0.6, title)
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
    ax.set(xlim=(-0.1, whole + 0.1), ylim=(0.9 - high, 1.1))
    return ax


def draw_block(elements: int, waves: int, lanes: int, item_bytes: int) -> Axes:
    """Draw the block of one program over its waves, the lanes of a wave, and the elements of a lane.

    Neighbouring elements lie in one lane, as in the layout that Triton chooses for contiguous loads.

    Raises:
        GuideError: the lanes cannot share the elements evenly.
    """
    each, rest = divmod(elements, waves * lanes)
    if rest or not each:
        raise GuideError(f"elements={elements}: {waves * lanes} lanes cannot share them evenly")
    bits = 8 * item_bytes * each
    ax = canvas(None, 7.2, 2.7, f"One program: {elements:,} elements, {waves} waves of {lanes} lanes")
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
    ax.set(xlim=(-0.1, width + 0.1), ylim=(-0.6, 5.2))
    return ax


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
    """
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
