# SPDX-License-Identifier: MIT
"""A disassembly together with the code object that it was made from.

``llvm-objdump -d`` prints the instructions of a code object and nothing else. Which registers are set at the start,
how much LDS there is and where the arguments lie stand in the object's kernel descriptor and its metadata.
Source: "User Guide for AMDGPU Backend", "Kernel Descriptor", "Code Object V5 Metadata", LLVM,
https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdna.elf.code_object import CodeKernel, read_code_object
from cdna.run.arguments import Parameter
from cdna.run.errors import RunError
from cdna.run.program import Program, entry_of, load_program, settings_of

__all__ = ["load_listing"]


def _parameters(kernel: CodeKernel) -> tuple[Parameter, ...]:
    listed: Any = kernel.metadata.get(".args") or []
    try:
        return tuple(
            Parameter(int(a[".offset"]), int(a[".size"]), str(a[".value_kind"]), str(a.get(".name", "")))
            for a in listed
        )
    except (KeyError, TypeError, ValueError):
        raise RunError(
            f"the code object describes the arguments of {kernel.name} in a way that makes no sense; build it again",
            rule="arguments",
        ) from None


def load_listing(text: str, name: str | None, data: bytes) -> Program:
    """The program of a disassembly, with the descriptor and the metadata of its code object (``.hsaco``, bundle).

    Raises:
        RunError: see :func:`~cdna.run.program.load_program`; the object lacks the kernel.
        ElfError: it is no code object.
    """
    if not isinstance(data, bytes):
        raise RunError(f"code_object={data!r:.60}: give the bytes of the file", rule="arguments")
    found = {k.name: k for k in read_code_object(data, "gfx942").kernels}
    program = load_program(text, name, tuple(found))
    kernel = found.get(program.name)
    if kernel is None or not kernel.directives:
        raise RunError(
            f"the code object has no kernel {program.name!r}; it has {', '.join(found)[:200] or 'none'}",
            rule="arguments",
        )
    directives = {name: str(value) for name, value in kernel.directives.items()}
    metadata = {str(k): str(v) for k, v in kernel.metadata.items()}
    settings = settings_of(directives, metadata)
    made = replace(program, settings=settings, parameters=_parameters(kernel))
    made.flushes = made.flushes or settings.mode & 0x30 != 0x30
    made.entry = entry_of(made)
    return made
