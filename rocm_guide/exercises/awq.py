# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 11: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_equal", "check_factor", "check_salient"]


def check_salient(salient: Callable[[torch.Tensor, float], Any]) -> bool:
    """Check exercise 1: from inputs (tokens, in) and a share to the columns with the largest mean magnitude.

    >>> check_salient(lambda x, share: x.mean(0).argsort(descending=True)[: int(share * x.shape[1])])
    [HINT] a column of large negative numbers is missing: take magnitudes before the mean
    False
    """
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 0.1
    x[:, 3] += 2.0
    x[:, 17] -= 5.0
    x[0, 30] = 60.0
    for share in (0.05, 0.1):
        try:
            given = torch.as_tensor(salient(x, share)).long().flatten().tolist()
        except FAULTS as e:
            return no(f"it fails on inputs of shape (50, 40): {first_line(e)}")
        count = int(share * 40)
        if len(given) != count:
            return no(f"{share:.0%} of 40 columns are {count}, not {len(given)}")
        if 17 not in given:
            return no("a column of large negative numbers is missing: take magnitudes before the mean")
        if set(given) != set(x.abs().mean(0).argsort(descending=True)[:count].tolist()):
            return no("not the columns of the largest *mean* magnitude; a single large value does not count")
    return yes("columns 17, 3 and the next ones, by mean magnitude")


def check_equal(fold: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]) -> bool:
    """Check exercise 2: from a norm's weight, a matrix and factors to the new norm and the new matrix.

    >>> check_equal(lambda norm, w, s: (norm * s, w * s))
    [HINT] the output changed: if the columns are multiplied by s, the inputs have to be divided by it
    False
    """
    generator = torch.Generator().manual_seed(0)
    h, norm, w = (torch.randn(*d, generator=generator, dtype=torch.float64) for d in ((9, 6), (6,), (4, 6)))
    s = torch.rand(6, generator=generator, dtype=torch.float64) + 0.5
    try:
        new_norm, new_w = fold(norm.clone(), w.clone(), s.clone())
    except FAULTS as e:
        return no(f"it should give two tensors: {first_line(e)}")
    if tuple(new_norm.shape) != (6,) or tuple(new_w.shape) != (4, 6):
        return no(f"shapes {tuple(new_norm.shape)} and {tuple(new_w.shape)}; expected (6,) and (4, 6)")
    if not torch.allclose(new_w, w * s):
        return no("the columns of the matrix are not multiplied by s; a column is w[:, j]")
    if not torch.allclose((h * new_norm) @ new_w.T, (h * norm) @ w.T):
        return no("the output changed: if the columns are multiplied by s, the inputs have to be divided by it")
    return yes("the same output, and larger columns to round")


def check_factor(factor: Any) -> bool:
    """Check exercise 3: how far a column of magnitude 0.1 can be scaled in a group that reaches 0.8.

    >>> check_factor(9)
    [HINT] 9 x 0.1 = 0.9 is more than 0.8: the range of the group grows, and with it everybody's step
    False
    """
    if not isinstance(factor, (int, float)) or factor <= 0:
        return no(f"{factor!r} is no factor; give a positive number")
    if factor * 0.1 > 0.8 + 1e-9:
        text = f"{factor:g} x 0.1 = {factor * 0.1:.1f} is more than 0.8: the range of the group grows, and with it"
        return no(text + " everybody's step")
    if factor < 7.9:
        return no(f"{factor:g} x 0.1 = {factor * 0.1:.2g} leaves room up to 0.8")
    return yes("8: up to there the protection is free, in this group")
