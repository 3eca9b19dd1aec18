# SPDX-License-Identifier: MIT
"""The arguments of a kernel as the metadata at the end of an assembly text describes them.

Source: "User Guide for AMDGPU Backend", "Code Object V5 Metadata", LLVM, https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

import re

from cdna.run.arguments import Parameter

__all__ = ["number_of", "read_parameters"]

_NUMBER = re.compile(r"\d{1,9}$")


def number_of(found: dict[str, str], key: str, default: int) -> int:
    """A whole number from directives or metadata, ``default`` if there is none."""
    text = found.get(key, "").strip()
    return int(text) if _NUMBER.match(text) else default


_ITEM = re.compile(r"  (- |  )(\.\w+):")
_ARG = re.compile(r"      (- |  )(\.\w+):\s*(\S.*)?$")


def read_parameters(text: str, kernel: str) -> tuple[Parameter, ...]:
    """The ``.args`` of one kernel in the metadata at the end of the text."""
    _, found, note = text.partition(".amdgpu_metadata")
    if not found:
        return ()
    kernels: list[tuple[str, list[dict[str, str]]]] = []
    name, args = "", list[dict[str, str]]()
    for line in note.partition(".end_amdgpu_metadata")[0].split("\n"):
        if m := _ITEM.match(line):
            if m[1] == "- ":
                kernels.append((name, args))
                name, args = "", list[dict[str, str]]()
            if m[2] == ".name":
                name = line.partition(":")[2].strip().strip("'\"")
        elif m := _ARG.match(line):
            if m[1] == "- ":
                args.append({})
            if args:
                args[-1][m[2]] = (m[3] or "").strip("'\" ")
    kernels.append((name, args))
    for found_name, found_args in kernels:
        if found_name == kernel:
            sizes = [(number_of(p, ".offset", 0), number_of(p, ".size", 0)) for p in found_args]
            words = [(p.get(".value_kind", ""), p.get(".name", "")) for p in found_args]
            return tuple(Parameter(*size, *word) for size, word in zip(sizes, words, strict=True))
    return ()
