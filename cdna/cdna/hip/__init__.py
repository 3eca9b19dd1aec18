# SPDX-License-Identifier: MIT
"""Kernels in HIP C++, for what Triton cannot say: read for gfx942 and run on a CPU without ROCm, built with it."""
