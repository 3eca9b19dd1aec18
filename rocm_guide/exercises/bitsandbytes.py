# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 12: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_book", "check_outliers", "check_states"]


def check_book(book: Callable[[int], Any]) -> bool:
    """Check exercise 1: a function that gives n values from -1 to 1 at the quantiles of a uniform distribution.

    >>> check_book(lambda n: torch.linspace(0, 1, n))
    [HINT] the values reach from 0 to 1; weights have both signs, so from -1 to 1
    False
    """
    for n in (16, 5):
        try:
            given = torch.as_tensor(book(n)).double().sort().values
        except FAULTS as e:
            return no(f"it fails for n={n}: {first_line(e)}")
        if given.shape != (n,):
            return no(f"expected {n} values, got the shape {tuple(given.shape)}")
        low, high = given[0].item(), given[-1].item()
        if abs(low + 1) > 1e-6 or abs(high - 1) > 1e-6:
            return no(f"the values reach from {low:g} to {high:g}; weights have both signs, so from -1 to 1")
        steps = given.diff()
        if (steps - steps.mean()).abs().max() > 1e-6:
            return no("quantiles of a uniform distribution are all equally far apart")
    return yes("evenly spaced values: for uniform weights the best code book is the plain grid")


def check_outliers(share: Any) -> bool:
    """Check exercise 2: the share of columns in 16 bits at which the int8 product is 1.5 times as fast as in 16 bits.

    >>> check_outliers(0.5)
    [HINT] with 50% of the columns in 16 bits the time is 75%, which is 1.33 times as fast
    False
    """
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        return no(f"{share!r} is no share; give a number from 0 to 1")
    time = (1 - share) / 2 + share
    if abs(1 / time - 1.5) > 0.01:
        text = (
            f"with {share:.0%} of the columns in 16 bits the time is {time:.0%}, which is {1 / time:.2f} times as fast"
        )
        return no(text)
    return yes("a third; in practice outliers are about one column in a thousand, and the search for them costs more")


def check_states(gigabytes: Any) -> bool:
    """Check exercise 3: weights, gradients (16 bits each) and 8-bit states of Llama-2-7B in full fine-tuning, in GB.

    >>> check_states(80.9)
    [HINT] that counts 12 bytes for a weight: 8-bit states are 2 bytes, 32-bit ones 8
    False
    """
    count = 6_738_415_616
    if not isinstance(gigabytes, (int, float)) or gigabytes <= 0:
        return no(f"{gigabytes!r} is no amount; give GB, powers of ten")
    each = gigabytes * 1e9 / count
    if abs(each - 12) < 0.1:
        return no("that counts 12 bytes for a weight: 8-bit states are 2 bytes, 32-bit ones 8")
    if abs(each - 6 / 1.0737) < 0.02:
        return no("that is in GiB; GB are powers of ten")
    if abs(each - 6) > 0.05:
        return no(f"that is {each:.2f} bytes for a weight; add 2 for it, 2 for its gradient, 2 for the states")
    return yes(f"{6 * count / 1e9:.1f} GB, half of the 80.9 GB with 32-bit states")
