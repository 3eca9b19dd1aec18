# SPDX-License-Identifier: MIT
"""Weights, drawn: LoRA beside the matrix it adapts, and a linear layer as the product that BLAS computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_guide.common.drawing import box, canvas
from rocm_guide.common.plots import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_linear", "draw_lora"]


def draw_lora(inputs: int, outputs: int, rank: int, ax: Axes | None = None) -> Axes:
    """Draw a frozen matrix of ``outputs`` x ``inputs`` numbers, and the two thin ones that LoRA trains. Notebook 01."""
    share = rank * (inputs + outputs) / (inputs * outputs)
    title = f"LoRA trains {rank * (inputs + outputs):,} numbers beside {inputs * outputs:,} ({share:.1%})"
    ax = canvas(ax, 7.2, 3.0, title)
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
    ax.set_xlim(-1.2, 10.0)
    ax.set_ylim(-1.0, 3.15)
    return ax


def draw_linear(tokens: int, inputs: int, outputs: int, ax: Axes | None = None) -> Axes:
    """Draw ``Y = X @ W.T`` of a linear layer: one row and one column make one number. The letters are those of BLAS."""
    ax = canvas(ax, 7.2, 3.3, f"A linear layer is a GEMM: M = {outputs:,}, N = {tokens:,}, K = {inputs:,}")
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
    ax.set_xlim(-1.1, last + wide + 0.1)
    ax.set_ylim(-0.3, 2.65)
    return ax
