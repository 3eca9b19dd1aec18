# SPDX-License-Identifier: MIT
"""The process in which kernels are interpreted.

In reading order:

- ``warm``: A process that has Triton's interpreter ready, so that a kernel runs in a moment and not after seconds of
  imports.
"""
