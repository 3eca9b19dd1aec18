# SPDX-License-Identifier: MIT
"""Checks of notebook 30: three row kernels of the reader, each judged as a puzzle of the dojo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.kernel_dojo import check_puzzle

__all__ = ["check_norm", "check_norm_backward", "check_online"]


def check_online(call: Callable[..., Any]) -> bool:
    """Check exercise 1: ``softmax_online(x)`` of rows too long for registers, each read twice at most.

    >>> check_online(lambda x: x.softmax(1))
    softmax_online: not yet
    [FAIL] result       4 x 5000: no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    False
    """
    return check_puzzle(call, "softmax_online")


def check_norm(call: Callable[..., Any]) -> bool:
    """Check exercise 2: ``rms_norm(x, w, eps)``, a row in registers, read once, with wide loads and four waves."""
    return check_puzzle(call, "rms_norm")


def check_norm_backward(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``rms_norm_backward(x, w, dy, eps)``, the gradient for x; each tensor is read once."""
    return check_puzzle(call, "rms_norm_backward")
