# SPDX-License-Identifier: MIT
"""The answer that every check of an exercise gives: one line, and True or False."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cdna.compile_errors import explain_compile_error
from cdna.grade.limits import attempt
from cdna.run.launches import Executed, executed_on_gfx942

__all__ = ["FAULTS", "executed", "first_line", "no", "yes"]


#: What a reader's function may raise where it is not right yet.
FAULTS = (ArithmeticError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)


def first_line(error: Exception) -> str:
    """Return what an error says, on one line; its name if it says nothing, as ``raise NotImplementedError`` does.

    >>> first_line(NotImplementedError())
    'NotImplementedError'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def yes(text: str) -> bool:
    """Print what was found right, with [OK] in front, and return True.

    >>> yes("B starts at zero")
    [OK]   B starts at zero
    True
    """
    print(f"[OK]   {text}")
    return True


def no(text: str) -> bool:
    """Print what is not right yet, with [HINT] in front, and return False.

    >>> no("B must start at zero")
    [HINT] B must start at zero
    False
    """
    print(f"[HINT] {text}")
    return False


def executed(
    call: Callable[..., Any],
    given: Sequence[torch.Tensor],
    wanted: torch.Tensor,
    allowed: Any,
    *,
    order: str | int = "together",
) -> tuple[Any, list[Executed], str]:
    """Execute what ``call`` launches; return its result, its launches, and what is wrong (empty if nothing is).

    Args:
        given: its tensors on the CPU; it gets copies.
        wanted: the right result in fp64.
        allowed: the error that each element may have, a number or a tensor.
        order: in which order workgroups and waves run; see :func:`cdna.run.launches.executed_on_gfx942`.

    >>> executed(torch.neg, [torch.ones(2)], -torch.ones(2), 0.0)[2]
    'no kernel was launched: yours[grid](…) inside the function'
    """
    copies = [g.clone() for g in given]
    with executed_on_gfx942(order=order) as done:
        got, error = attempt(lambda: call(*copies))
    if error:
        return None, [], explain_compile_error(call, error)
    if not isinstance(got, torch.Tensor) or got.shape != wanted.shape:
        shape = list(got.shape) if isinstance(got, torch.Tensor) else type(got).__name__
        return None, [], f"returns {shape}; a tensor of {list(wanted.shape)} is wanted"
    if not done.launches:
        return None, [], "no kernel was launched: yours[grid](…) inside the function"
    wrong = ~((got.double() - wanted).abs() <= allowed)  # NaN is wrong too
    if wrong.any():
        at = [int(i) for i in wrong.nonzero()[0]]
        value, right = float(got[tuple(at)]), float(wanted[tuple(at)])
        said = f"element {at} is {value:.5g}, {right:.5g} is right; {int(wrong.sum())} of {wrong.numel()} wrong"
        return None, done.launches, said
    return got, done.launches, ""
