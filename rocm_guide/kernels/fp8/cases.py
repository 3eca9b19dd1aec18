# SPDX-License-Identifier: MIT
"""The launches, of the kernels that end in FP8, that the resource table compiles for MI300X.

``ladder_cases`` holds those of the file ``ladder``. Each case is a label and a function without arguments that
launches; :mod:`rocm_guide.kernels.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.fp8.ladder import RUNGS, run_rung
from rocm_guide.kernels.fp8.rmsnorm import rmsnorm_fp8
from rocm_guide.kernels.fp8.swiglu import swiglu_fp8

__all__ = ["rmsnorm_cases", "swiglu_cases"]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]


def ladder_cases() -> Cases:
    """The rungs at 16,384 columns, for the table of gfx942 resources: (label, launch on empty tensors)."""
    for rung, name in enumerate(RUNGS[:4], 1):

        def launch(rung: int = rung) -> object:
            x, r = (torch.empty(1024, 16384, dtype=torch.float16, device="cuda") for _ in range(2))
            return run_rung(rung, x, r, torch.empty(16384, dtype=torch.float16, device="cuda"), 0.5)

        yield f"rung {rung}, {name}", launch


def rmsnorm_cases() -> Cases:
    """Every configuration, for the table of gfx942 resources: (label, launch on empty tensors)."""
    for columns in (1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536, 131072):
        for scale in (0.5, None):
            for dtype in (torch.float16, torch.bfloat16) if columns == 16384 else (torch.bfloat16,):
                name = (
                    f"{str(dtype).removeprefix('torch.')} {columns} columns, {'static' if scale else 'per-row'} scale"
                )

                def launch(columns: int = columns, scale: float | None = scale, dtype: torch.dtype = dtype) -> object:
                    x, r = (torch.empty(1024, columns, dtype=dtype, device="cuda") for _ in range(2))
                    return rmsnorm_fp8(x, r, torch.empty(columns, dtype=dtype, device="cuda"), scale)

                yield name, launch


def swiglu_cases() -> Cases:
    """Every configuration, for the table of gfx942 resources: (label, launch on empty tensors)."""
    for columns in (1024, 2048, 4096, 8192, 14336, 16384, 28672, 53248):
        for scale in (0.5, None):
            for dtype in (torch.float16, torch.bfloat16) if columns == 8192 else (torch.bfloat16,):
                name = (
                    f"{str(dtype).removeprefix('torch.')} {columns} columns, {'static' if scale else 'per-row'} scale"
                )

                def launch(columns: int = columns, scale: float | None = scale, dtype: torch.dtype = dtype) -> object:
                    return swiglu_fp8(torch.empty(1024, 2 * columns, dtype=dtype, device="cuda"), scale)

                yield name, launch
