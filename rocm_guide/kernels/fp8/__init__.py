# SPDX-License-Identifier: MIT
"""Kernels that end in 8-bit floats, and the formats themselves.

In reading order:

- ``formats``: The four 8-bit floating-point formats: which one a GPU computes in, their limits, and bit-exact
  conversion models.
- ``store``: What the kernels that end in FP8 share: saturation inside a kernel, and the output tensor around it.
- ``ladder``: The ladder to rmsnorm_fp8.py: the same operation with a static scale, one improvement at a time.
- ``rmsnorm``: Residual add, RMSNorm and conversion to FP8 in one kernel, forward.
- ``swiglu``: SwiGLU and conversion to FP8 in one kernel, forward.
- ``cases``: The launches, of the kernels that end in FP8, that the resource table compiles for MI300X.
"""
