# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 10: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.quantize.budget import serving_bytes
from rocm_guide.quantize.grid import bits_per_weight, round_to_nearest

__all__ = ["check_codes", "check_order", "check_size"]


def check_codes(codes: Callable[[torch.Tensor, int], Any]) -> bool:
    """Check exercise 1: a function from one group of weights and a number of bits to the codes of rounding to nearest.

    >>> check_codes(lambda w, bits: (w / w.abs().max()).round())
    [HINT] codes from -1 to 1; with 4 bits they are 0 to 15, and the zero point shifts them there
    False
    """
    generator = torch.Generator().manual_seed(0)
    groups = [torch.randn(32, generator=generator), torch.rand(32, generator=generator) + 1.0]
    for bits, w in ((4, groups[0]), (3, groups[0]), (4, groups[1])):
        try:
            given = torch.as_tensor(codes(w, bits)).float()
        except FAULTS as e:
            return no(f"it fails on a group of 32 weights: {first_line(e)}")
        expected = round_to_nearest(w[None], bits, -1).codes[0].float()
        if given.shape != expected.shape:
            return no(f"expected 32 codes, got the shape {tuple(given.shape)}")
        low, high = given.min().item(), given.max().item()
        if low < 0 or high > 2**bits - 1:
            top = 2**bits - 1
            text = (
                f"codes from {low:g} to {high:g}; with {bits} bits they are 0 to {top}, and the zero point shifts them"
            )
            return no(text + " there")
        if not torch.equal(given, expected):
            if w.min() > 0:
                return no("wrong where all weights are positive: the range has to include 0")
            return no(f"{int((given != expected).sum())} of 32 codes differ; round w / scale, then add the zero point")
    return yes("equal to rounding to nearest for three groups")


def check_order(order: Callable[[torch.Tensor], Any]) -> bool:
    """Check exercise 2: from inputs (tokens, in) to the order in which GPTQ with act-order visits the columns.

    >>> check_order(lambda x: torch.argsort(x.square().sum(0)))
    [HINT] that is the order from small to large; the largest inputs come first
    False
    """
    x = torch.randn(64, 12, generator=torch.Generator().manual_seed(1)) * torch.linspace(1, 3, 12).flip(0).roll(5)
    expected = torch.argsort(x.square().sum(0), descending=True)
    try:
        given = torch.as_tensor(order(x)).long()
    except FAULTS as e:
        return no(f"it fails on inputs of shape (64, 12): {first_line(e)}")
    if given.shape != expected.shape:
        return no(f"expected 12 column numbers, got the shape {tuple(given.shape)}")
    if torch.equal(given, expected.flip(0)):
        return no("that is the order from small to large; the largest inputs come first")
    if torch.equal(given, torch.argsort(x.abs().amax(0), descending=True)):
        return no("that is by the largest single input; the diagonal of the Hessian sums the squares of all")
    if not torch.equal(given, expected):
        return no("not the order of the diagonal of x^T x, largest first")
    return yes("the order of the diagonal of the Hessian, largest first")


def check_size(bits: Any) -> bool:
    """Check exercise 3: the widest code with which Llama-2-70B and 8 requests of 4,096 tokens fit into 64 GB.

    >>> check_size(8)
    [HINT] 8 bits need 81.8 GB, more than 64
    False
    """
    if not isinstance(bits, int) or not 2 <= bits <= 8:
        return no(f"{bits!r} is no code width; give a whole number from 2 to 8")
    memory = 64e9

    def need(b: int) -> float:
        return sum(serving_bytes("llama-2-70b", bits_per_weight(b, 128, 8192), rows=8, length=4096).values())

    if need(bits) > memory:
        return no(f"{bits} bits need {need(bits) / 1e9:.1f} GB, more than {memory / 1e9:.0f}")
    if bits < 8 and need(bits + 1) <= memory:
        return no(f"{bits + 1} bits fit too: {need(bits + 1) / 1e9:.1f} GB of {memory / 1e9:.0f}")
    return yes(f"{bits} bits: {need(bits) / 1e9:.1f} GB; {bits + 1} would need {need(bits + 1) / 1e9:.1f} GB")
