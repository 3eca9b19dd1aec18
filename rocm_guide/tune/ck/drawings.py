# SPDX-License-Identifier: MIT
"""A picture for each idea of an instance, drawn from its parameters: tiles, loads, LDS, the epilogue. Notebook 36.

Each refuses an instance that breaks a rule, as :func:`rocm_guide.tune.ck.rules.require` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rocm_guide.common.plots import PALETTE, house_style
from rocm_guide.tune.ck.instance import BYTES, WAVE, GemmInstance, Problem
from rocm_guide.tune.ck.pipeline import accumulator_places, cluster_places, lds_places
from rocm_guide.tune.ck.rules import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_epilogue", "draw_lds", "draw_loads", "draw_tiles"]


def _panels(widths: list[float], height: float) -> tuple[Figure, Any]:
    import matplotlib.pyplot as plt

    house_style()
    figure, axes = plt.subplots(1, len(widths), figsize=(7.2, height), width_ratios=widths)
    return figure, np.atleast_1d(axes)


def _owners(ax: Axes, owner: Any, title: str, x: str, y: str) -> None:
    """Colour a matrix by who owns each element; -1 is nobody."""
    from matplotlib.colors import to_rgb

    colours = np.array([(1, 1, 1), *(tuple(0.45 + 0.55 * c for c in to_rgb(p)) for p in PALETTE[:7])])
    ax.imshow(colours[np.where(owner < 0, 0, 1 + owner % 7)], aspect="auto", interpolation="nearest")
    ax.set_title(title, fontsize=9)
    ax.set(xlabel=x, ylabel=y)
    ax.xaxis.label.set_fontsize(8)
    ax.yaxis.label.set_fontsize(8)
    ax.tick_params(labelsize=7)
    ax.grid(visible=False)


def _lines(ax: Axes, shape: tuple[int, int], step: tuple[float, float], **style: Any) -> None:
    for at in np.arange(0, shape[0] + 1, step[0]):
        ax.axhline(at - 0.5, **style)
    for at in np.arange(0, shape[1] + 1, step[1]):
        ax.axvline(at - 0.5, **style)


def _label(ax: Axes, x: float, y: float, text: str, size: float, **more: Any) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=size, **more)


def draw_tiles(instance: GemmInstance, problem: Problem) -> Figure:
    """Draw the way from E to tiles of workgroups, on to waves, and on to the lanes of one matrix instruction."""
    require(instance, problem)
    i = instance
    m, n, _ = i.padded(problem)
    figure, axes = _panels([1, 1, 1], 3.1)
    grid = m // i.MPerBlock, n // i.NPerBlock
    chosen = np.full(grid, 6)
    chosen[0, 0] = 1
    _owners(axes[0], chosen, f"E: {grid[0]} x {grid[1]} workgroups", f"N = {problem.N}", f"M = {problem.M}")
    _lines(axes[0], grid, (1, 1), color="white", linewidth=0.8)
    axes[0].set(xticks=[], yticks=[])

    rows, columns = i.MPerBlock // i.MPerXDL, i.NPerBlock // i.NPerXDL
    owner = np.arange(rows)[:, None] % i.MWaves * i.NWaves + np.arange(columns)[None] % i.NWaves
    _owners(axes[1], owner, f"one tile: {i.waves} waves", f"NPerBlock = {i.NPerBlock}", f"MPerBlock = {i.MPerBlock}")
    _lines(axes[1], (rows, columns), (1, 1), color="white", linewidth=1)
    for r in range(rows):
        for c in range(columns):
            _label(axes[1], c, r, f"w{owner[r, c]}", 7 if rows <= 8 else 5)
    axes[1].set(xticks=[], yticks=[])

    lane = np.zeros((i.MPerXDL, i.NPerXDL), int)
    register = np.zeros_like(lane)
    places = accumulator_places(i.MPerXDL)
    for r in range(places.shape[0]):
        lane[places[r, :, 0], places[r, :, 1]] = np.arange(WAVE)
        register[places[r, :, 0], places[r, :, 1]] = r
    title, x = f"one {i.MPerXDL} x {i.NPerXDL} product", f"lane = column + {i.MPerXDL} x colour"
    _owners(axes[2], lane // i.MPerXDL, title, x, "register, by rows")
    _lines(axes[2], lane.shape, (4, i.NPerXDL), color="white", linewidth=1)
    for top in range(0, i.MPerXDL, 4):
        held = f"lanes {lane[top, 0]}-{lane[top, -1]}: r{register[top, 0]}-r{register[top + 3, 0]}"
        _label(axes[2], i.NPerXDL / 2 - 0.5, top + 1.5, held, 6.5)
    axes[2].set(xticks=[], yticks=[])
    return figure


def draw_loads(instance: GemmInstance, rows: int = 16) -> Figure:
    """Draw which thread loads which elements of the tiles of A and of B in one turn: a box is one load of one thread.

    Only the first ``rows`` rows (or columns, of a B by columns) of a tile are shown.
    """
    require(instance)
    i = instance
    figure, axes = _panels([1, 1], 3.3)
    for ax, x in zip(axes, "AB", strict=True):
        names, whole = ("AK0_M_AK1", i.a_slice) if x == "A" else ("BK0_N_BK1", i.b_slice)
        cluster = getattr(i, f"{x}BlockTransferThreadClusterLengths_{names}")
        places = cluster_places(whole, cluster, getattr(i, f"{x}BlockTransferThreadClusterArrangeOrder"))
        thread = np.zeros((whole[1], i.KPerBlock), int)
        thread[places[..., 1], places[..., 0] * whole[2] + places[..., 2]] = np.arange(len(places))[:, None]
        vector, dim = (getattr(i, f"{x}BlockTransferSrc{name}") for name in ("ScalarPerVector", "VectorDim"))
        shown, along_k = thread[:rows], dim == 2
        by = "columns" if getattr(i, f"{x}Layout") == "Col" else "rows"
        width = vector * BYTES[getattr(i, f"{x}DataType")] * 8
        _owners(ax, shown, f"{x} by {by}: {width} bits a load", "k", "m" if x == "A" else "n")
        step = (1, vector) if along_k else (vector, 1)
        _lines(ax, shown.shape, step, color="white", linewidth=0.8)
        size, turned = (5.5, 0) if along_k else (4.5, 90)
        for r in range(0, shown.shape[0], step[0]):
            for c in range(0, shown.shape[1], step[1]):
                _label(ax, c + (step[1] - 1) / 2, r + (step[0] - 1) / 2, f"t{shown[r, c]}", size, rotation=turned)
    return figure


def draw_lds(instance: GemmInstance, rows: int = 10) -> Figure:
    """Draw the beginning of A's tile in LDS, without and with the extra row that ABlockLdsExtraM gives each plane.

    A line of the picture is 128 bytes: the 32 banks of 4 bytes. Colours are planes K0; a box holds K1 neighbours along
    K of one row m. Shown is where the first ``rows`` rows of each plane begin.
    """
    require(instance)
    i = instance
    size = BYTES[i.compute_type]
    figure, axes = _panels([1, 1], 3.3)
    for ax, extra in zip(axes, (0, max(1, i.ABlockLdsExtraM)), strict=True):
        at = lds_places(i.a_slice, extra) * size
        banks = np.full((i.a_slice[0] * 3, 32), -1)
        labels = []
        for k0 in range(i.a_slice[0]):
            for m in range(rows):
                first = int(at[k0, m, 0])
                line = (first - int(at[k0, 0, 0]) + int(at[k0, 0, 0]) % 128) // 128
                if line > 2:
                    continue
                for byte in range(0, i.AK1 * size, 4):
                    banks[k0 * 3 + line, (first + byte) // 4 % 32] = k0
                labels.append((k0 * 3 + line, first // 4 % 32 + i.AK1 * size / 8 - 0.5, m))
        _owners(ax, banks, f"ABlockLdsExtraM = {extra}", "bank of 4 bytes", "plane K0")
        for line, middle, m in labels:
            if middle < 32:
                _label(ax, middle, line, f"m{m}", 5.5)
        _lines(ax, banks.shape, (3, i.AK1 * size / 4), color="white", linewidth=1)
        ax.set_yticks(np.arange(i.a_slice[0]) * 3 + 1, [str(k) for k in range(i.a_slice[0])])
    return figure


def draw_epilogue(instance: GemmInstance, rows: int = 16, columns: int = 64) -> Figure:
    """Draw the first slice of C: who holds an element after the matrix instructions, and who stores it after LDS.

    Left, a lane holds four rows of one column, so its neighbours in a row belong to other lanes. Right, a thread has
    a piece of a row, and stores it with one instruction.
    """
    require(instance)
    i = instance
    down, across = i.shuffle_slice
    rows, columns = min(rows, down), min(columns, across)
    lane = np.zeros((i.MPerXDL, i.NPerXDL), int)
    places = accumulator_places(i.MPerXDL)
    lane[places[..., 0], places[..., 1]] = np.arange(WAVE)
    r, c = np.ogrid[:rows, :columns]
    held = lane[r % i.MPerXDL, c % i.NPerXDL]
    wave = r // i.MPerXDL % i.MWaves * i.NWaves + c // i.NPerXDL % i.NWaves
    cluster = i.CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock
    stored = r // (down // cluster[1]) * cluster[3] + c // (across // cluster[3])
    vector = i.CDEBlockTransferScalarPerVector_NPerBlock
    figure, axes = _panels([1, 1], 3.3)
    title, x = "accumulators: colour = wave and row group", "column of the slice"
    _owners(axes[0], held // i.MPerXDL + 3 * wave, title, x, "row")
    _lines(axes[0], held.shape, (4, 1), color="white", linewidth=0.4)
    bits = vector * BYTES[i.EDataType] * 8
    _owners(axes[1], stored, f"stores of E: {bits} bits a thread", x, "row")
    _lines(axes[1], stored.shape, (1, vector), color="white", linewidth=0.8)
    for top in range(rows):
        for left in range(0, columns, vector):
            _label(axes[1], left + (vector - 1) / 2, top, f"t{stored[top, left]}", 5)
    return figure
