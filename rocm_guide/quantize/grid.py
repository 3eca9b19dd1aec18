# SPDX-License-Identifier: MIT
"""Weights as small integers: the grid, rounding to it, and the error that this costs. The start of every method here.

A weight w becomes an integer code q = clamp(round(w / scale) + zero, 0, 2**bits - 1) and is read back as
scale * (q - zero). Scale and zero are shared by a *group* of neighbouring weights in a row.
Source: Jacob et al., "Quantization and Training of Neural Networks", https://arxiv.org/abs/1712.05877, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocm_guide.common.base import GuideError

__all__ = ["QuantizationError", "bits_per_weight", "fit_grid", "output_error", "quantize_block", "round_to_nearest"]


class QuantizationError(GuideError):
    """Settings, data or kernels that a model cannot be quantised with."""


@dataclass(frozen=True)
class Quantized:
    """A matrix as integer codes.

    Attributes:
        codes: (out, in) uint8, each below 2**bits, in the columns' own order.
        scale: (out, groups) float32.
        zero: (out, groups) float32, the code that stands for 0.
        groups: (in,) int64, the group that each column belongs to.
        bits: width of a code.
        column_scale: (in,) factors that the columns were multiplied by before rounding (AWQ); None for all ones.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    groups: torch.Tensor
    bits: int
    column_scale: torch.Tensor | None = None

    def dequantize(self) -> torch.Tensor:
        """Return (out, in) float32: what the codes stand for."""
        weight = self.scale[:, self.groups] * (self.codes - self.zero[:, self.groups])
        return weight if self.column_scale is None else weight / self.column_scale


def check_grid(columns: int, bits: int, group: int) -> int:
    """Return the number of groups in a row of ``columns`` weights.

    Args:
        columns: weights in a row (the layer's input features).
        bits: 2 to 8.
        group: weights that share a scale; -1 for the whole row.

    Raises:
        QuantizationError: bits out of range, or a group that does not divide the row.

    >>> check_grid(512, 4, 128)
    4
    >>> try:
    ...     check_grid(192, 4, 128)
    ... except QuantizationError as e:
    ...     print(e)
    group=128 does not divide the 192 columns of a row; choose 32, 64, 96, 192 or -1
    """
    if not isinstance(bits, int) or not 2 <= bits <= 8:
        raise QuantizationError(f"bits={bits!r}: choose 2, 3, 4, 5, 6, 7 or 8")
    if group == -1:
        return 1
    if not isinstance(group, int) or group < 1 or columns % group:
        fits = [g for g in (32, 64, 96, 128, 192, 256, columns) if g <= columns and columns % g == 0]
        choices = ", ".join(map(str, dict.fromkeys(fits)))
        raise QuantizationError(f"group={group} does not divide the {columns} columns of a row; choose {choices} or -1")
    return columns // group


def fit_grid(block: torch.Tensor, bits: int, symmetric: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (scale, zero), each (rows, 1), with which every row of ``block`` just fits between code 0 and 2**bits - 1.

    The range always includes 0, so that a weight of 0 stays exactly 0. A symmetric grid puts 0 in the middle: one
    number less to store for each group, and half of the range is lost when all weights have one sign.

    >>> scale, zero = fit_grid(torch.tensor([[-1.0, 0.0, 2.0]]), bits=2)
    >>> scale.item(), zero.item()
    (1.0, 1.0)
    """
    top = 2**bits - 1
    low, high = block.amin(1, keepdim=True).clamp(max=0), block.amax(1, keepdim=True).clamp(min=0)
    if symmetric:
        high = torch.maximum(-low, high)
        low = torch.where(low < 0, -high, low)
    empty = (low == 0) & (high == 0)
    low, high = low.masked_fill(empty, -1.0), high.masked_fill(empty, 1.0)
    scale = (high - low) / top
    zero = torch.full_like(scale, (top + 1) / 2) if symmetric else torch.round(-low / scale)
    return scale, zero


def quantize_block(block: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the codes, as floating-point numbers, of weights on a grid; shapes broadcast.

    >>> quantize_block(torch.tensor([-1.0, 0.4, 9.0]), torch.tensor(1.0), torch.tensor(1.0), bits=2).tolist()
    [0.0, 1.0, 3.0]
    """
    return ((block / scale).round() + zero).clamp(0, 2**bits - 1)


def round_to_nearest(weight: torch.Tensor, bits: int = 4, group: int = 128, *, symmetric: bool = False) -> Quantized:
    """Round every weight to the nearest point of its group's grid. Needs no data; the baseline of notebooks 10 to 12.

    Args:
        weight: (out, in), any floating type.

    >>> q = round_to_nearest(torch.linspace(-1, 1, 64).reshape(2, 32), bits=4, group=32)
    >>> q.codes.shape, q.scale.shape, (q.dequantize() - torch.linspace(-1, 1, 64).reshape(2, 32)).abs().max() < 0.04
    (torch.Size([2, 32]), torch.Size([2, 1]), tensor(True))
    """
    rows, columns = weight.shape
    count = check_grid(columns, bits, group)
    blocks = weight.detach().float().reshape(rows * count, columns // count)
    scale, zero = fit_grid(blocks, bits, symmetric)
    codes = quantize_block(blocks, scale, zero, bits).to(torch.uint8).reshape(rows, columns)
    groups = torch.arange(columns, device=weight.device) // (columns // count)
    return Quantized(codes, scale.reshape(rows, count), zero.reshape(rows, count), groups, bits)


def output_error(weight: torch.Tensor, approximation: torch.Tensor, inputs: torch.Tensor) -> float:
    """Return how wrong a layer's output becomes: |X (W - W')^T|^2 / |X W^T|^2, 0 for none and 1 for a layer of zeros.

    Args:
        weight, approximation: (out, in).
        inputs: (tokens, in), what the layer really sees. The error of the *weights* alone says little: a large error
            in a column whose input is always small does no harm.

    >>> round(output_error(torch.eye(2), torch.eye(2) * 0.9, torch.ones(3, 2)), 4)
    0.01
    """
    exact = inputs.double() @ weight.double().T
    wrong = inputs.double() @ (weight.double() - approximation.double()).T
    return float((wrong.square().sum() / exact.square().sum()).item())


def bits_per_weight(bits: int, group: int, columns: int) -> float:
    """Return the bits that one weight takes in all: its code, and its share of the group's scale and zero.

    A scale has 16 bits, a zero as many as a code.

    >>> bits_per_weight(4, 128, 4096), bits_per_weight(4, 32, 4096), bits_per_weight(3, 128, 4096)
    (4.15625, 4.625, 3.1484375)
    """
    width = columns // check_grid(columns, bits, group)
    return bits + (16 + bits) / width
