# SPDX-License-Identifier: MIT
"""The launches of the row kernels that the resource table compiles for MI300X.

``silu_mul_cases`` holds those of the file ``silu_mul``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.rows.cross_entropy import cross_entropy_backward, cross_entropy_forward
from rocm_guide.kernels.rows.silu_mul import FLOATS, swiglu_backward, swiglu_forward

__all__ = []

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def silu_mul_cases() -> Cases:
    """(label, launch) for the resource table, forward and backward; for a dry run."""
    for dtype in FLOATS:
        x = torch.empty(2048, 11008, dtype=dtype, device="cuda")
        yield f"forward, {str(dtype).removeprefix('torch.')}", partial(swiglu_forward, x, x)
        yield f"backward, {str(dtype).removeprefix('torch.')}", partial(swiglu_backward, x, x, x)


def cross_entropy_cases() -> Cases:
    """(label, launch) for the resource table: vocabularies of Llama 2 and 3, one of them with eight more
    words, and an odd one; for a dry run."""
    for cols in (32000, 32008, 128256, 50257):
        x = torch.empty(2048, cols, dtype=torch.bfloat16, device="cuda")
        labels = torch.empty(2048, dtype=torch.int64, device="cuda")
        row = torch.empty(2048, dtype=torch.float32, device="cuda")
        yield f"forward, {cols} columns", partial(cross_entropy_forward, x, labels)
        yield f"backward, {cols} columns", partial(cross_entropy_backward, x, labels, row, row)
