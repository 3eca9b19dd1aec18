# SPDX-License-Identifier: MIT
"""Checks of notebook 38: a solution of a puzzle, and three kernels that are to be repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.dojo.grading import Grade, grade

__all__ = ["check_banks", "check_puzzle", "check_round_trip", "check_waits"]


def _say(result: Grade) -> bool:
    print(result)
    return result.passed


def check_puzzle(call: Callable[..., Any] | str, puzzle: str) -> bool:
    """Grade a solution, print the lines, and say whether it passed.

    >>> import torch
    >>> check_puzzle(torch.neg, "copy")
    copy: not yet
    [FAIL] result       4,096 elements: element [0] is 1.12598, and -1.12598 is right; 4096 of 4096 elements are wrong -> no kernel has stored anything yet: launch yours, as kernel[grid](…)
    False
    """  # noqa: E501  the line is as it is printed
    return _say(grade(call, puzzle))


def check_round_trip(call: Callable[..., Any]) -> bool:
    """Check exercise 1: the kernel that takes every tile through LDS;
    right as before, without LDS and with wide stores.
    """
    return _say(grade(call, "scale_columns"))


def check_waits(listing: str) -> bool:
    """Check exercise 2: the listing in which two waits are missing; right in every order, and no wait for too much."""
    return _say(grade(listing, "missing_wait"))


def check_banks(listing: str) -> bool:
    """Check exercise 3: the listing whose lanes meet in one bank of LDS; right as before, and without conflicts."""
    return _say(grade(listing, "bank_conflicts"))
