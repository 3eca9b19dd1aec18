# SPDX-License-Identifier: MIT
"""Checks of notebook 31: three products of the reader, each judged as a puzzle of the dojo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.kernel_dojo import check_puzzle

__all__ = ["check_matmul", "check_naive", "check_split_k"]


def check_naive(call: Callable[..., Any]) -> bool:
    """Check exercise 1: ``naive_matmul(a, b)`` of fp16 matrices in fp32, without ``tl.dot``; each load serves a tile.

    >>> import torch
    >>> check_naive(lambda a, b: a.float() @ b.float())
    naive_matmul: not yet
    [FAIL] result       64 x 64 x 64: no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    False
    """
    return check_puzzle(call, "naive_matmul")


def check_matmul(call: Callable[..., Any]) -> bool:
    """Check exercise 2: ``matmul(a, b)`` of fp16 matrices in fp32, with the matrix cores and wide loads."""
    return check_puzzle(call, "matmul")


def check_split_k(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``split_k(a, b)``, a small result of a long K; enough workgroups, each part added once."""
    return check_puzzle(call, "split_k")
