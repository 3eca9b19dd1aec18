# SPDX-License-Identifier: MIT
"""Drawings of models: LoRA and a linear layer, heads and their masks, layers on several GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rocm_guide.common.base import GuideError
from rocm_guide.common.drawing import arrow, box, canvas, grid
from rocm_guide.common.plots import PALETTE

__all__ = [
    "draw_attention",
    "draw_flash_tiles",
    "draw_heads",
    "draw_linear",
    "draw_lora",
    "draw_score_blocks",
    "draw_stages",
]


def draw_lora(inputs: int, outputs: int, rank: int) -> Axes:
    """Draw a frozen matrix of ``outputs`` x ``inputs`` numbers, and the two thin ones that LoRA trains. Notebook 01."""
    share = rank * (inputs + outputs) / (inputs * outputs)
    title = f"LoRA trains {rank * (inputs + outputs):,} numbers beside {inputs * outputs:,} ({share:.1%})"
    ax = canvas(None, 7.2, 3.0, title)
    thin = 0.55
    ax.text(-0.75, 1.5, "y  =", ha="center", va="center", fontsize=13)
    box(ax, 0, 0, 3, 3, f"W\n{outputs:,} x {inputs:,}\n\nfrozen", PALETTE[6], 9.5)
    ax.text(3.85, 1.5, "+  α / r  ·", ha="center", va="center", fontsize=12)
    box(ax, 4.75, 0, thin, 3, "B", PALETTE[1], 11)
    ax.text(4.75 + thin / 2, -0.3, f"{outputs:,} x {rank}\nstarts at zero", ha="center", va="top", fontsize=8.5)
    ax.text(5.65, 1.5, "·", ha="center", va="center", fontsize=15)
    box(ax, 6.0, 1.5 - thin / 2, 3, thin, "A", PALETTE[0], 11)
    ax.text(7.5, 1.5 - thin / 2 - 0.15, f"{rank} x {inputs:,}\nstarts at random", ha="center", va="top", fontsize=8.5)
    ax.text(-0.2, 1.5, "(", ha="center", va="center", fontsize=42)
    ax.text(9.2, 1.5, ")", ha="center", va="center", fontsize=42)
    ax.text(9.65, 1.5, "x", ha="center", va="center", fontsize=13)
    ax.set(xlim=(-1.2, 10.0), ylim=(-1.0, 3.15))
    return ax


def draw_linear(tokens: int, inputs: int, outputs: int) -> Axes:
    """Draw ``Y = X @ W.T`` of a linear layer: one row and one column make one number. The letters are those of BLAS."""
    ax = canvas(None, 7.2, 3.3, f"A linear layer is a GEMM: M = {outputs:,}, N = {tokens:,}, K = {inputs:,}")
    high, wide, deep = 1.5, 2.8, 2.2  # of X, of Y, of K
    y = 0.35

    def label(x: float, place: float, text: str) -> None:
        ax.text(x, place, text, ha="center", va="center", fontsize=9)

    box(ax, 0, y, deep, high, "X", PALETTE[0], 12)
    box(ax, 0, y + high * 0.62, deep, 0.16, "", PALETTE[1])
    label(deep / 2, y - 0.28, f"K = {inputs:,} input features")
    ax.text(-0.12, y + high / 2, f"N = {tokens:,}\ntokens", ha="right", va="center", fontsize=9)
    label(deep + 0.3, y + high / 2, "x")
    left = deep + 0.6
    box(ax, left, y - 0.35, wide, deep, "", PALETTE[6])
    ax.text(
        left + wide * 0.35, y + high / 2, "W transposed\n(stored as\nout x in)", ha="center", va="center", fontsize=9.5
    )
    box(ax, left + wide * 0.7, y - 0.35, 0.16, deep, "", PALETTE[1])
    label(left + wide / 2, y + deep - 0.15, f"M = {outputs:,} output features")
    label(left + wide + 0.3, y + high / 2, "=")
    last = left + wide + 0.6
    box(ax, last, y, wide, high, "Y", PALETTE[2], 12)
    box(ax, last + wide * 0.7, y + high * 0.62, 0.16, 0.16, "", PALETTE[1])
    label(last + wide / 2, y - 0.28, f"{tokens:,} x {outputs:,}")
    ax.set(xlim=(-1.1, last + wide + 0.1), ylim=(-0.3, 2.65))
    return ax


def _on_or_below(colour: str, row: int, column: int) -> str:
    return colour if column <= row else ""


def _in_row(colour: str, wanted: int, row: int, _column: int) -> str:
    return colour if row == wanted else ""


def draw_attention(tokens: int = 6, d: int = 128) -> Axes:
    """Draw one causal head: queries times keys make a score for each pair, a softmax turns rows into weights of V."""
    ax = canvas(None, 7.2, 2.6, "One head: every token is compared with itself and those before it")

    def tall(x: float, name: str, colour: str) -> None:
        box(ax, x, 0, 0.8, 2.4, name, colour, 11)
        ax.text(x + 0.4, -0.18, f"n x {d}", ha="center", va="top", fontsize=8)

    tall(0, "Q", PALETTE[0])
    ax.text(1.05, 1.2, "·", ha="center", va="center", fontsize=15)
    box(ax, 1.3, 0.8, 2.4, 0.8, "K transposed", PALETTE[1], 9.5)
    ax.text(2.5, 0.62, f"{d} x n", ha="center", va="top", fontsize=8)
    ax.text(4.0, 1.2, "=", ha="center", va="center", fontsize=12)
    for x, name, colour in (
        (4.3, "S: a score for each pair\nn x n", PALETTE[4]),
        (8.0, "P: rows sum to 1\nn x n", PALETTE[3]),
    ):
        grid(ax, x, 0, 2.4, 2.4, tokens, tokens, partial(_on_or_below, colour))
        ax.text(x + 1.2, -0.18, name, ha="center", va="top", fontsize=8)
    arrow(ax, (6.8, 1.2), (7.9, 1.2), "softmax\nof rows", 8)
    ax.text(10.65, 1.2, "·", ha="center", va="center", fontsize=15)
    tall(10.9, "V", PALETTE[2])
    ax.text(11.95, 1.2, "=", ha="center", va="center", fontsize=12)
    tall(12.2, "O", PALETTE[6])
    ax.set(xlim=(-0.1, 13.1), ylim=(-0.85, 2.5))
    return ax


def draw_heads(query_heads: int = 8, grouped: int = 2, d: int = 128) -> Axes:
    """Draw multi-head, grouped-query and multi-query attention: which query heads read which keys and values.

    Raises:
        GuideError: the groups do not divide the query heads.
    """
    if grouped < 1 or query_heads % grouped:
        raise GuideError(f"grouped={grouped}: {query_heads} query heads need a divisor of {query_heads}")
    ax = canvas(None, 7.2, 2.7, "Who shares keys and values")
    left = 0.0
    for name, kv in (("MHA", query_heads), ("GQA", grouped), ("MQA", 1)):
        share = query_heads // kv
        for head in range(query_heads):
            colour = PALETTE[(head // share) % 6]
            x = left + head
            box(ax, x + 0.08, 2.2, 0.84, 0.8, f"Q{head}", colour, 7)
            middle = left + (head // share + 0.5) * share
            ax.plot([x + 0.5, middle], [2.2, 1.2], color=colour, linewidth=1)
        for group in range(kv):
            middle = left + (group + 0.5) * share
            box(ax, middle - 0.42, 0.3, 0.84, 0.9, f"K{group}\nV{group}", PALETTE[group % 6], 7)
        ax.text(left + query_heads / 2, 3.55, f"{name}: {kv} for {query_heads} heads", ha="center", fontsize=9)
        size = f"cache: {2 * kv * d * 2:,} B"
        ax.text(left + query_heads / 2, -0.1, f"{size} a token and layer", ha="center", va="top", fontsize=8)
        left += query_heads + 1.5
    ax.set(xlim=(-0.2, left - 1.3), ylim=(-0.7, 4.0))
    return ax


def draw_flash_tiles(tiles: int = 5, row: int = 3, column: int = 1) -> Axes:
    """Draw one workgroup of flash attention: tiles of Q, K and V come from HBM, its scores never go there.

    Args:
        tiles: rows and columns of tiles in the causal matrix of scores.
        row: the row of tiles that the workgroup computes.
        column: the tile it is at; left of the diagonal or on it.

    Raises:
        GuideError: a tile outside the matrix, or one right of the diagonal, which nobody computes.
    """
    if not 0 <= column <= row < tiles:
        raise GuideError(f"row={row}, column={column}: a tile that is computed has 0 <= column <= row < {tiles}")
    ax = canvas(None, 7.2, 3.7, "Flash attention: one workgroup, one row of tiles")

    def colour(r: int, c: int) -> str:
        if c > r:
            return ""
        return PALETTE[1] if (r, c) == (row, column) else PALETTE[4] if r == row else PALETTE[6]

    # HBM: the four matrices, each cut into tiles; the scores between them are not there.
    box(ax, -0.3, -0.75, 4.7, 4.9, "", PALETTE[6])
    ax.text(2.05, 3.85, "HBM: Q, K, V, O (n x d)", ha="center", fontsize=9, fontweight="bold")
    for i, (name, mine) in enumerate((("Q", row), ("K", column), ("V", column), ("O", row))):
        x = 0.05 + 1.1 * i
        own = (PALETTE[0], PALETTE[2], PALETTE[3], PALETTE[5])[i]
        grid(ax, x, 0, 0.75, 3.3, tiles, 1, partial(_in_row, own, mine))
        ax.text(x + 0.375, 3.45, name, ha="center", fontsize=9)
    ax.text(2.05, -0.4, "tiles in use are coloured", ha="center", va="center", fontsize=8)
    # The scores: a plan of the work, in no memory.
    grid(ax, 5.3, 0.5, 2.8, 2.8, tiles, tiles, colour)
    ax.text(6.7, 3.45, "the scores S (n x n)", ha="center", fontsize=9)
    ax.text(6.7, 0.3, "stored nowhere:\none tile exists at a time", ha="center", va="top", fontsize=8)
    # The compute unit.
    box(ax, 9.0, -0.75, 4.6, 4.9, "", PALETTE[6])
    ax.text(11.3, 3.85, "one compute unit", ha="center", fontsize=9, fontweight="bold")
    box(ax, 9.2, 2.45, 4.2, 1.15, "", PALETTE[4])
    ax.text(11.3, 3.4, "LDS (64 KiB)", ha="center", va="center", fontsize=8)
    box(ax, 9.4, 2.55, 1.8, 0.6, "K tile", PALETTE[2], 8)
    box(ax, 11.4, 2.55, 1.8, 0.6, "V tile", PALETTE[3], 8)
    box(ax, 9.2, -0.6, 4.2, 2.85, "", PALETTE[0])
    ax.text(11.3, 2.02, "registers", ha="center", va="center", fontsize=8)
    box(ax, 9.4, 1.1, 1.8, 0.65, "Q tile", PALETTE[0], 8)
    box(ax, 11.4, 1.1, 1.8, 0.65, "S tile, then P", PALETTE[1], 7.5)
    box(ax, 9.4, 0.3, 3.8, 0.6, "m and sum of every row", PALETTE[6], 8)
    box(ax, 9.4, -0.45, 3.8, 0.6, "unfinished output", PALETTE[5], 8)
    arrow(ax, (4.4, 4.3), (9.0, 4.3), "K and V, tile after tile; Q once", 8)
    arrow(ax, (9.0, -0.9), (4.4, -0.9), "", 8)
    ax.text(6.7, -1.0, "O once, at the end", ha="center", va="top", fontsize=8)
    ax.set(xlim=(-0.4, 13.7), ylim=(-1.45, 4.85))
    return ax


def draw_stages(held: Mapping[Any, Sequence[str]], *, between: str, title: str) -> Axes:
    """Draw one box for each device with what it holds, in the order of the forward pass. Notebook 04.

    Args:
        held: device -> the names of its pieces, as :func:`rocm_guide.models.placement.runs_of` gives them;
            devices that hold nothing are left out.
        between: what goes from one device to the next, for example "hidden state".

    Raises:
        GuideError: no device holds anything.
    """
    stages = [(device, names) for device, names in held.items() if names]
    if not stages:
        raise GuideError("held: no device holds anything; give device -> names of pieces")
    ax = canvas(None, 7.2, 2.2, title)
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
    ax.set(xlim=(-0.9, end + 0.9), ylim=(-0.75, 2.3))
    return ax


def draw_score_blocks() -> Figure:
    """Draw what four kernels of causal attention do with each block of the matrix of scores (notebook 34).

    >>> [ax.get_title() for ax in draw_score_blocks().axes]
    ['1 naive', '2 two passes', '3 online', '4 skipping']
    """
    blocks = 8  # tiles of queries, and blocks of keys
    kinds = {
        "skipped": "#F4F4F4",
        "computed": "#B9D6E8",
        "computed with a mask": PALETTE[0],
        "the same, twice": PALETTE[2],
        "the same, and written to memory": PALETTE[1],
    }
    query, key = np.mgrid[:blocks, :blocks]
    pictures = {
        "1 naive": np.full((blocks, blocks), 4),
        "2 two passes": np.full((blocks, blocks), 3),
        "3 online": np.full((blocks, blocks), 2),
        "4 skipping": np.where(key < query, 1, np.where(key == query, 2, 0)),
    }
    colours = ListedColormap(list(kinds.values()))
    figure, axes = plt.subplots(1, 4, figsize=(9, 2.9))
    for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
        ax.pcolormesh(picture[::-1], cmap=colours, vmin=-0.5, vmax=4.5, edgecolors="white", linewidth=1)
        ax.set(title=title, xticks=[], yticks=[], xlabel="blocks of keys", aspect="equal")
    axes[0].set_ylabel("tiles of queries")
    handles = [Patch(color=colour, label=name) for name, colour in kinds.items()]
    figure.legend(handles=handles, loc="lower center", ncols=5, fontsize=8)
    return figure
