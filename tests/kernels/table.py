# SPDX-License-Identifier: MIT
"""The rows of a module for tests of what its kernels take on MI300X."""

from __future__ import annotations

import triton

from course.resource_table import KernelRow, read_rows
from course.table_measure import measure_module

VERSION, ROWS = read_rows()
SAME_COMPILER = triton.__version__.split(".")[:2] == VERSION.split(".")[:2]


def rows_of(module: str) -> list[KernelRow]:
    """The committed rows, which test_resource_table.py holds against the compiler; another Triton compiles anew."""
    return [r for r in ROWS if r.case.split(":")[0] == module] if SAME_COMPILER else measure_module(module)
