# SPDX-License-Identifier: MIT
"""The process in which kernels are interpreted.

In reading order:

- ``patches``: What older releases of Triton's interpreter lack, less work, narrow types rounded as hardware does.
- ``warm``: A process that has the interpreter ready, so that a kernel runs in a moment and not after seconds of
  imports.
"""
