# SPDX-License-Identifier: MIT
"""Kernels on AMD's CDNA GPUs (MI300X): compile them, read them, execute them; no GPU is needed.

In reading order; a file or a folder stands only on what is above it here:

- ``base``: The error that users see, the cache, files written whole. ``children``: functions in fresh processes.
- ``arch``: The limits of a compute unit (CU) as data. ``resources``: what a kernel asks for.
- ``kernel_source``: Take functions and kernels of a notebook apart, so that another process can define them again.
- ``elf``, ``isa``, ``ir``: Read code objects, assembly, and Triton's intermediate code.
- ``costs``: Cycles that a model charges for each instruction, with the source of every number.
- ``occupancy``, ``limits``: How many waves a compute unit can hold, what stops one more, what hardware minds.
- ``compile``, ``compile_errors``, ``compiler_key``: Compile a Triton kernel on a machine that has no AMD GPU.
- ``report``, ``dry_run``: One kernel's report; what an ordinary launch would run, compiled and reported.
- ``suggest``, ``inspection``, ``page``: What to change; all that is known about a kernel, and its HTML page.
- ``guard``, ``interpreter``, ``interpret``: Kernels in Triton's interpreter: accesses watched, results checked.
- ``run``: Execute gfx942 machine code on this CPU. ``step``: watch it, record it, lay it out in time.
- ``explain``: Machine code in words and pictures. ``predict``: GPUs as data, and models of time.
- ``hip``: HIP C++ compiled for gfx942, and for this CPU. ``examples``: kernels to try all this on.
"""

__version__ = "0.1.0"
