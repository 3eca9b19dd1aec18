# SPDX-License-Identifier: MIT
"""AWQ: make the important columns larger before rounding, and divide by the same factor afterwards.

All weights are quantised. A column whose inputs are large matters most; multiplied by s > 1 it takes more steps of the
grid, and its relative error shrinks by s. The factors are searched on a small grid, by the error of the output of the
block that the layers belong to.
Source: Lin et al., "AWQ", https://arxiv.org/abs/2306.00978, section 3.2 and equations 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from rocm_guide.quantize.grid import QuantizationError, Quantized, check_grid, quantize_block

__all__ = ["awq_grid", "rounded", "search_clip", "search_scales"]


@dataclass(frozen=True)
class ScaleSearch:
    """Outcome of :func:`search_scales`.

    Attributes:
        scales: (in,) the best factors.
        ratio: the exponent that gave them.
        losses: ratio -> mean squared error of the block's output.
    """

    scales: torch.Tensor
    ratio: float
    losses: dict[float, float]


def awq_grid(weight: torch.Tensor, bits: int, group: int) -> Quantized:
    """Round to nearest on the grid that AWQ's authors use: from the smallest to the largest weight of a group.

    Unlike :func:`rocm_guide.quantize.grid.round_to_nearest`, the range need not include 0.

    >>> awq_grid(torch.linspace(-1, 2, 32).reshape(1, 32), 4, 32).codes.unique().tolist() == list(range(16))
    True
    """
    rows, columns = weight.shape
    count = check_grid(columns, bits, group)
    blocks = weight.reshape(rows * count, -1)
    low, high = blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True)
    scale = (high - low).clamp(min=1e-5) / (2**bits - 1)
    zero = (-torch.round(low / scale)).clamp(0, 2**bits - 1)
    codes = quantize_block(blocks, scale, zero, bits).to(torch.uint8).reshape(rows, columns)
    groups = torch.arange(columns, device=weight.device) // (columns // count)
    return Quantized(codes, scale.reshape(rows, count), zero.reshape(rows, count), groups, bits)


def rounded(weight: torch.Tensor, scales: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """Return Q(W s) / s: what a matrix becomes when its columns are scaled, rounded and scaled back.

    >>> w = torch.tensor([[1.0, 0.13]])
    >>> [round(x, 3) for x in rounded(w, torch.tensor([1.0, 1.0]), 2, -1)[0].tolist()]
    [0.87, 0.0]
    """
    return awq_grid(weight * scales, bits, group).dequantize().to(weight.dtype) / scales


def candidate_scales(
    inputs_mean: torch.Tensor, weights: Sequence[torch.Tensor], ratio: float, group: int
) -> torch.Tensor:
    """Return factors (in,) for one ratio: large where inputs are large, small where weights fill their group's range.

    s = mean|X|^ratio / mean(|W| / max of its group)^(1 - ratio), scaled so that the largest times the smallest is 1.

    Args:
        inputs_mean: (in,) mean magnitude of each input column.
        weights: the matrices, each (out, in), that read these inputs.

    >>> candidate_scales(torch.tensor([4.0, 1.0]), [torch.ones(1, 2)], 1.0, -1).tolist()
    [2.0, 0.5]
    """
    stacked = torch.cat([w.abs().float() for w in weights])
    width = stacked.shape[1] if group == -1 else group
    shares = stacked.reshape(len(stacked), -1, width)
    shares = (shares / (shares.amax(2, keepdim=True) + 1e-6)).reshape(stacked.shape).mean(0)
    scales = (inputs_mean.pow(ratio) / (shares.pow(1 - ratio) + 1e-4)).clamp(min=1e-4)
    return scales / (scales.max() * scales.min()).sqrt()


def search_scales(
    weights: Sequence[torch.Tensor],
    inputs: torch.Tensor,
    outputs: Callable[[Sequence[torch.Tensor]], torch.Tensor],
    bits: int = 4,
    group: int = 128,
    *,
    steps: int = 20,
) -> ScaleSearch:
    """Try ``steps`` ratios from 0 up and keep the one whose rounded weights change the block's output least.

    Args:
        weights: the matrices that read the same inputs, for example those of q, k and v.
        inputs: (tokens, in).
        outputs: given candidates for ``weights``, what the block makes of its inputs. For a single layer,
            ``lambda w: inputs @ w[0].T``; for q, k and v the output of the whole attention block.

    Raises:
        QuantizationError: settings that do not fit, or no inputs.

    >>> _ = torch.manual_seed(0)
    >>> x, w = torch.randn(200, 64) * (1 + 9 * (torch.arange(64) % 16 == 0)), torch.randn(32, 64)
    >>> found = search_scales([w], x, lambda ws: x @ ws[0].T, bits=3, group=32)
    >>> plain = ((x @ (rounded(w, torch.ones(64), 3, 32) - w).T) ** 2).mean()
    >>> found.ratio > 0 and min(found.losses.values()) < 0.7 * plain
    tensor(True)
    """
    check_grid(weights[0].shape[1], bits, group)
    if not inputs.numel():
        raise QuantizationError("the calibration set is empty; give at least one sample")
    exact = outputs(list(weights))
    mean = inputs.abs().float().reshape(-1, inputs.shape[-1]).mean(0)
    losses: dict[float, float] = {}
    best = torch.ones_like(mean)
    for step in range(steps):
        ratio = step / steps
        scales = candidate_scales(mean, weights, ratio, group)
        changed = outputs([rounded(w, scales.to(w.dtype), bits, group) for w in weights])
        loss = (changed - exact).float().square().mean().item()
        if not losses or loss < min(losses.values()):
            best = scales
        losses[ratio] = loss
    return ScaleSearch(best, min(losses, key=lambda r: losses[r]), losses)


def search_clip(
    weight: torch.Tensor, inputs: torch.Tensor, bits: int = 4, group: int = 128, *, steps: int = 10, tokens: int = 512
) -> torch.Tensor:
    """Return (out, groups): the largest magnitude to keep in each group, between half of its maximum and all of it.

    Cutting off one large weight makes the steps for all others finer; where that lowers the error of the group's part
    of the output, it pays. AWQ does this after the scales, except for queries and keys.

    Args:
        weight: (out, in), columns scaled already.
        inputs: (tokens, in), divided by the scales already.
        steps: how many limits are tried, 5 % of the maximum apart.

    >>> _ = torch.manual_seed(0)
    >>> w = torch.randn(4, 32)
    >>> limit = search_clip(w, torch.randn(64, 32), bits=3, group=32)
    >>> share = limit / w.abs().amax(1, keepdim=True)
    >>> limit.shape, bool((share <= 1).all()), bool((share < 1).any())
    (torch.Size([4, 1]), True, True)
    """
    rows, columns = weight.shape
    count = check_grid(columns, bits, group)
    x = inputs.reshape(-1, count, columns // count)[:: max(1, inputs.reshape(-1, columns).shape[0] // tokens)]
    limits = []
    for part in weight.reshape(rows, count, -1).split(64):  # 64 rows at a time bound the memory
        top = part.abs().amax(2, keepdim=True)
        exact = torch.einsum("tgi,rgi->rtg", x, part)
        best, least = top.clone(), torch.full_like(top, torch.inf)
        for step in range(steps):
            limit = top * (1 - step / (2 * steps))
            cut = awq_grid(part.clamp(-limit, limit).reshape(len(part), -1), bits, columns // count).dequantize()
            changed = torch.einsum("tgi,rgi->rtg", x, cut.reshape(part.shape).to(x.dtype))
            error = (changed - exact).square().mean(1).unsqueeze(2)
            better = error < least
            least, best = torch.where(better, error, least), torch.where(better, limit, best)
        limits.append(best.squeeze(2))
    return torch.cat(limits)
