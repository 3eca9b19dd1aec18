# SPDX-License-Identifier: MIT
"""Triton kernels, one operation per file, for Triton's interpreter, CUDA, ROCm, and gfx942 without a GPU."""
