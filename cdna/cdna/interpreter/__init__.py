# SPDX-License-Identifier: MIT
"""The process in which kernels are interpreted.

In reading order:

- ``warm``: A process that has Triton's interpreter ready, so that a kernel runs in a moment and not after seconds of
  imports.
- ``older``: What the interpreter of Triton 3.6 to 3.8 lacks and that of 3.9 has, for every Triton that pyproject.toml
  allows.
"""
