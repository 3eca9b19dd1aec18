# SPDX-License-Identifier: MIT
"""Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and memory.

The numbers come from :mod:`cdna.predict.specs`; nothing is to
scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdna.predict.specs import GpuSpec
from rocm_guide.common.drawing import box, canvas
from rocm_guide.common.plots import PALETTE, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_compute_unit", "draw_gpu", "draw_owners", "draw_wave"]


def draw_wave(spec: GpuSpec, ax: Axes | None = None) -> Axes:
    """Draw one wave: its lanes side by side, vector registers below each lane,
    and the scalar registers that all share.
    """
    most = 512 if spec.arch.startswith("gfx9") else 255
    ax = canvas(ax, 7.2, 3.0, f"One wave of {spec.name}: {spec.lanes} lanes, one instruction at a time")
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
    ax.set_xlim(-2.6, shown + 1)
    ax.set_ylim(-0.9, 4.2)
    return ax


def draw_compute_unit(spec: GpuSpec, ax: Axes | None = None) -> Axes:
    """Draw one compute unit: its SIMDs with their wave slots and registers, and the LDS and L1 that they share."""
    ax = canvas(ax, 7.2, 3.6, f"One compute unit of {spec.name}: {spec.simds} SIMDs x {spec.max_waves} wave slots")
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
    ax.set_xlim(-0.2, width + 0.2)
    ax.set_ylim(-0.2, 5.6)
    return ax


def draw_gpu(spec: GpuSpec, ax: Axes | None = None) -> Axes:
    """Draw the whole GPU: dies with their compute units and L2, the last cache, and the memory."""
    ax = canvas(ax, 7.2, 4.2, f"{spec.name}: {spec.dies} dies x {spec.units // spec.dies} compute units = {spec.units}")
    columns = -(-spec.dies // 2) if spec.dies > 2 else spec.dies
    per_die = spec.units // spec.dies
    for die in range(spec.dies):
        x, y = (die % columns) * 4.2, 4.6 - (die // columns) * 2.9
        box(ax, x, y, 4.0, 2.7, "", PALETTE[6])
        ax.text(x + 0.15, y + 2.45, f"die {die} (XCD)" if spec.arch.startswith("gfx") else f"die {die}", fontsize=8)
        for unit in range(per_die):
            _square(ax, x + 0.15 + (unit % 13) * 0.285, y + 1.75 - (unit // 13) * 0.42)
        box(ax, x + 0.15, y + 0.1, 3.7, 0.5, f"L2 {spec.l2_mib / spec.dies:g} MiB", PALETTE[4], 8)
    width = columns * 4.2 - 0.2
    top = 4.6 - (-(-spec.dies // columns) - 1) * 2.9
    if spec.l3_mib:
        box(ax, 0, top - 0.9, width, 0.7, f"Infinity Cache {spec.l3_mib} MiB, shared by all dies", PALETTE[2])
    memory = f"memory {spec.memory_gib} GiB, {spec.bandwidth_tb_s:g} TB/s"
    box(ax, 0, top - (1.8 if spec.l3_mib else 0.9), width, 0.7, memory, PALETTE[1])
    ax.set_xlim(-0.2, width + 0.2)
    ax.set_ylim(top - 2.0, 7.5)
    return ax


def _square(ax: Axes, x: float, y: float) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), 0.24, 0.34, facecolor=PALETTE[0] + "55", edgecolor=PALETTE[0], linewidth=0.6))


def draw_owners(owners: list[list[int]], *, title: str, what: str, ax: Axes | None = None) -> Axes:
    """Draw a tile coloured by which wave (or die, or lane) holds each element: ``owners[row][column]``.

    ``what`` names the owner in the legend, for example ``"wave"``.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

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
