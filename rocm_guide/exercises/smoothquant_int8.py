# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 14: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_factors", "check_fold_up", "check_longest"]


def check_fold_up(fold_up: Callable[[Any, Any, torch.Tensor], Any]) -> bool:
    """Check exercise 1: ``fold_up(up, down, scales)`` divides, in place and through ``up``, what ``down`` reads.

    >>> check_fold_up(lambda up, down, scales: None)
    [HINT] the inputs of down_proj are as large as before: divide the rows of up_proj
    False
    """
    torch.manual_seed(0)
    gate, up, down = (torch.nn.Linear(a, b, bias=False) for a, b in ((8, 12), (8, 12), (12, 8)))
    x, scales = torch.randn(5, 8), torch.linspace(0.25, 4, 12)

    def inner() -> torch.Tensor:
        return torch.nn.functional.silu(gate(x)) * up(x)

    with torch.no_grad():
        before, out = inner(), down(inner())
        try:
            fold_up(up, down, scales)
        except FAULTS as e:
            return no(f"fold_up(up, down, scales) fails: {first_line(e)}")
        after, new = inner(), down(inner())
        if torch.allclose(after, before):
            return no("the inputs of down_proj are as large as before: divide the rows of up_proj")
        if torch.allclose(after, before * scales, rtol=1e-4):
            return no("the inputs of down_proj were multiplied by the scales; they should be divided")
        if not torch.allclose(after, before / scales, rtol=1e-4, atol=1e-6):
            hint = "one scale belongs to one row of up_proj"
            return no(f"the inputs of down_proj are not the old ones divided by the scales: {hint}")
        if not torch.allclose(new, out, rtol=1e-4, atol=1e-5):
            return no("the output of the MLP changed: multiply the columns of down_proj by the same scales")
    return yes("the MLP computes what it did; the gate is left alone, because SiLU does not let a factor through")


def check_factors(factors: Callable[[float, float, float, float], tuple[float, float]]) -> bool:
    """Check exercise 2: ``factors(a, b, d, e)``, the alpha and beta of Linear_ABDE_I8 from the scales of A, B, D and E.

    >>> check_factors(lambda a, b, d, e: (a * b, d))
    [HINT] these factors give numbers, and E holds codes: divide by the scale of E
    False
    """
    for a, b, d, e in ((0.02, 0.003, 0.01, 0.05), (1.0, 0.5, 0.25, 2.0), (0.1, 0.1, 0.3, 0.1)):
        try:
            alpha, beta = (float(v) for v in factors(a, b, d, e))
        except FAULTS as error:
            return no(f"factors(a, b, d, e) should give two numbers: {first_line(error)}")
        right = (a * b / e, d / e)
        if max(abs(alpha - right[0]) / right[0], abs(beta - right[1]) / right[1]) < 1e-9:
            continue
        if abs(alpha - a * b) < 1e-12 and e != 1:
            return no("these factors give numbers, and E holds codes: divide by the scale of E")
        wrong = "alpha" if abs(alpha - right[0]) / right[0] > 1e-9 else "beta"
        given, wanted = (alpha, right[0]) if wrong == "alpha" else (beta, right[1])
        return no(f"scales {a}, {b}, {d}, {e}: {wrong} is {given:g}, and should be {wanted:g}")
    return yes("alpha = a b / e and beta = d / e: five tensors, four scales, two numbers")


def check_longest(length: Any) -> bool:
    """Check exercise 3: the longest K whose sums of products of codes from -127 to 127 always fit into an int32.

    >>> check_longest(131071)
    [HINT] that is for codes down to -128; without that code K may be a little longer
    False
    """
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        return no(f"{length!r} is no K; give a positive whole number")
    if length == 2**31 // 2**14 - 1 or length == 2**31 // 2**14:
        return no("that is for codes down to -128; without that code K may be a little longer")
    if length * 127**2 > 2**31 - 1:
        largest = f"{length:,} products of 127 * 127 are {length * 127**2:,}"
        return no(f"{largest}, and an int32 ends at {2**31 - 1:,}")
    if (length + 1) * 127**2 <= 2**31 - 1:
        return no(f"K = {length + 1:,} still fits")
    return yes(f"K = {length:,}: no layer of today's models comes near, so int32 sums are exact")
