# SPDX-License-Identifier: MIT
"""Kernels on AMD's CDNA GPUs (MI300X): compile them, read them, execute them; no GPU is needed.

The rooms inside: ``elf`` and ``isa`` read machine code, ``ir`` reads Triton's intermediate code, ``dry_run`` compiles
what an ordinary launch would run, ``suggest`` says what to change, ``interpreter`` is the process that interprets
kernels, ``run`` executes gfx942 code, ``step`` shows a wave at work, ``explain`` puts machine code into words and
pictures, ``predict`` gives a model's times, ``hip`` compiles HIP C++, ``examples`` are kernels to try it on.

In reading order:

- ``arch``: The limits of a compute unit (CU) as data, one row per architecture that we compile for.
- ``compile``: Compile a Triton kernel for an AMD GPU on a machine that has none.
- ``compile_errors``: What the compiler refuses, in one line that names the reader's own.
- ``costs``: Cycles that a model charges for each instruction, with the source of every number.
- ``resources``: What a kernel asks of the hardware: registers, LDS, scratch, as the assembly or the code object
  states it.
- ``occupancy``: Occupancy: how many waves of a kernel a compute unit can hold, what stops one more, and what would
  admit it.
- ``limits``: What the compiler lets pass and the hardware does not: too many threads, too much LDS, spills, an idle
  GPU.
- ``report``: One kernel's report: resources, limits, occupancy and instructions joined, for people (text) and
  programs (JSON).
- ``inspection``: One kernel and all that is known about it, from what there is: a launch, assembly, a code object, an
  IR dump.
- ``page``: The HTML form of an inspection: one self-contained page, figures inline, the user's code annotated line by
  line.
- ``kernel_source``: Take functions and kernels of a notebook apart, so that another process can define them again.
- ``guard``: Watch the memory accesses of kernels in Triton's interpreter: bounds, races and bytes moved.
- ``rounding``: Conversions and products of narrow types as the hardware computes them, in Triton's interpreter.
- ``interpret``: Check what a Triton kernel computes on a machine without a GPU: Triton's interpreter, in a process of
  its own.
- ``compiler_key``: Triton's cache: where it lies, and a name for Triton's build that is found without reading 400 MB of
  its library.
"""

__version__ = "0.1.0"
