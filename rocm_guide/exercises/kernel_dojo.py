# SPDX-License-Identifier: MIT
"""Checks of notebook 38: a solution of a puzzle, and three kernels that are to be repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.dojo.catalogue import find_task
from rocm_guide.dojo.grading import grade

__all__ = ["check_banks", "check_puzzle", "check_round_trip", "check_waits", "judge_of"]


def check_puzzle(call: Callable[..., Any] | str, puzzle: str) -> bool:
    """Grade a solution, print the lines, and say whether it passed.

    >>> import torch
    >>> check_puzzle(torch.neg, "copy")
    copy: not yet
    [FAIL] result       4,096 elements: element [0] is 1.12598, and -1.12598 is right; 4096 of 4096 elements are wrong -> no kernel has stored anything yet: launch yours, as kernel[grid](…)
    False
    """  # noqa: E501  the line is as it is printed
    result = grade(call, puzzle)
    print(result)
    return result.passed


def judge_of(puzzle: str) -> Callable[[Callable[..., Any] | str], bool]:
    """Return the check of an exercise that is a puzzle of the dojo, or a listing: its docstring is the puzzle's task.

    >>> print(judge_of("copy").__doc__[:38])
    Check a solution. copy(x): a new tenso
    """

    def check(solution: Callable[..., Any] | str) -> bool:
        return check_puzzle(solution, puzzle)

    check.__doc__ = f"Check a solution. {find_task(puzzle).task}"
    return check


check_round_trip = judge_of("scale_columns")
check_waits = judge_of("missing_wait")
check_banks = judge_of("bank_conflicts")
