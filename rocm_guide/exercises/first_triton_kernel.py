# SPDX-License-Identifier: MIT
"""Checks of notebook 21: the reader's first three kernels, each judged as a puzzle of the dojo."""

from __future__ import annotations

from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_add", "check_row_sum", "check_softmax"]


check_add = judge_of("add")
check_row_sum = judge_of("row_sum")
check_softmax = judge_of("softmax")
