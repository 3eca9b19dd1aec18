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
