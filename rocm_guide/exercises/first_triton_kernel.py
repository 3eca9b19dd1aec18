# SPDX-License-Identifier: MIT
"""Checks of notebook 21: the reader's first three kernels, each judged as a puzzle of the dojo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.kernel_dojo import check_puzzle

__all__ = ["check_add", "check_row_sum", "check_softmax"]


def check_add(call: Callable[..., Any]) -> bool:
    """Check exercise 1: ``add(x, y)`` of two fp32 vectors; right at every length, all accesses of 128 bits.

    >>> import torch
    >>> check_add(torch.add)
    add: not yet
    [FAIL] result       4,096 elements: no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    False
    """
    return check_puzzle(call, "add")


def check_row_sum(call: Callable[..., Any]) -> bool:
    """Check exercise 2: ``row_sum(x)``, the sums of the rows of an fp16 matrix in fp32; each row is read once."""
    return check_puzzle(call, "row_sum")


def check_softmax(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``softmax(x)`` of each row of an fp16 matrix, in one kernel; each row is read once."""
    return check_puzzle(call, "softmax")
