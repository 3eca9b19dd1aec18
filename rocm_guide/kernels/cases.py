# SPDX-License-Identifier: MIT
"""The launches of the kernels in this folder that the resource table compiles for MI300X, beside the families'.

``bandwidth_cases`` holds those of the file ``bandwidth``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.bandwidth import stream
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.rms_norm import FLOATS, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward

__all__ = []

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def bandwidth_cases() -> Cases:
    """(label, launch) of every stream in fp32 and bf16, for the resource table; to be called in a dry run."""
    for dtype in (torch.float32, torch.bfloat16):
        x, y, z = (torch.empty(1 << 28, dtype=dtype, device="cuda") for _ in range(3))
        name = str(dtype).removeprefix("torch.")
        yield f"read {name}", partial(stream, "read", None, x)
        yield f"write {name}", partial(stream, "write", z)
        yield f"copy {name}", partial(stream, "copy", z, x)
        yield f"triad {name}", partial(stream, "triad", z, x, y)


def layer_norm_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(layer_norm_forward, x, w, w)
            yield f"backward, {name}", partial(layer_norm_backward, x, w, x, r, r)


def rms_norm_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x, w = torch.empty(2048, cols, dtype=dtype, device="cuda"), torch.empty(cols, dtype=dtype, device="cuda")
            r = torch.empty(2048, dtype=torch.float32, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(rms_norm_forward, x, w)
            yield f"backward, {name}", partial(rms_norm_backward, x, w, x, r)


def softmax_cases() -> Cases:
    """Yield (label, launch) for the resource table: usual row lengths, odd ones, a blocked one; for a dry run."""
    for cols in (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072):
        for dtype in FLOATS if cols in (4096, 16384) else (torch.bfloat16,):
            x = torch.empty(2048, cols, dtype=dtype, device="cuda")
            name = f"{cols} columns, {str(dtype).removeprefix('torch.')}"
            yield f"forward, {name}", partial(softmax_forward, x)
            yield f"backward, {name}", partial(softmax_backward, x, x)
