# SPDX-License-Identifier: MIT
"""Code objects: the ELF files that hold compiled kernels.

In reading order:

- ``code_object``: Read AMD GPU code objects (``.hsaco``, ``.co``): what the loader and the hardware are told about
  each kernel.
- ``elf64``: The little of ELF64 that a code object needs: sections, symbols, notes, bytes at an address. Every read
  is bounded.
- ``msgpack``: The metadata note of a code object, decoded by msgpack within bounds: a damaged file cannot ask for
  much memory.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.elf.code_object import ElfError, read_code_object
    from cdna.elf.elf64 import ElfFormatError
    from cdna.elf.msgpack import MsgpackError

__all__ = ["ElfError", "ElfFormatError", "MsgpackError", "read_code_object"]

__getattr__, __dir__ = lazy_names(__name__, "code_object", "elf64", "msgpack")
