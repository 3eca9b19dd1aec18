# SPDX-License-Identifier: MIT
"""Checks of notebook 30: three row kernels of the reader, each judged as a puzzle of the dojo."""

from __future__ import annotations

from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_norm", "check_norm_backward", "check_online"]


check_online = judge_of("softmax_online")
check_norm = judge_of("rms_norm")
check_norm_backward = judge_of("rms_norm_backward")
