# SPDX-License-Identifier: MIT
"""The launches of the row kernels that the resource table compiles for MI300X.

``layer_norm_cases`` holds those of the file ``layer_norm``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.rows.cross_entropy import cross_entropy_backward, cross_entropy_forward
from rocm_guide.kernels.rows.layer_norm import layer_norm_forward
from rocm_guide.kernels.rows.layer_norm_grad import layer_norm_backward
from rocm_guide.kernels.rows.rms_norm import rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rows.silu_mul import swiglu_backward, swiglu_forward
from rocm_guide.kernels.rows.softmax import softmax_backward, softmax_forward
from rocm_guide.kernels.rows.tile import FLOATS
from rocm_guide.kernels.rows.weight_grad import norm_weight_grad

__all__ = []

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def layer_norm_cases() -> Cases:
    """(label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield name, partial(layer_norm_forward, x, w, w)


def layer_norm_grad_cases() -> Cases:
    """(label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield name, partial(layer_norm_backward, x, w, x, r, r)


def rms_norm_cases() -> Cases:
    """(label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(rms_norm_forward, x, w)
            yield f"backward, {name}", partial(rms_norm_backward, x, w, x, r)


def softmax_cases() -> Cases:
    """(label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in (torch.float16, torch.bfloat16, torch.float32) if cols in (4096, 16384) else (torch.bfloat16,):
            x = torch.empty(2048, cols, dtype=dtype, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(softmax_forward, x)
            yield f"backward, {name}", partial(softmax_backward, x, x)


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


def weight_grad_cases() -> Cases:
    """(label, launch) for the resource table, with and without mean and bias; call it in a dry run."""
    for rows, cols in ((2048, 16384), (2048, 131072), (32, 16384)):
        x = torch.empty(rows, cols, dtype=torch.bfloat16, device="cuda")
        row = torch.empty(rows, dtype=torch.float32, device="cuda")
        name = f"{rows} rows of {cols}"
        yield f"RMSNorm, {name}", partial(norm_weight_grad, x, x, row)
        yield f"LayerNorm, {name}", partial(norm_weight_grad, x, x, row, row, bias=True)
