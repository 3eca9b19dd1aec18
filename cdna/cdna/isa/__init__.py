# SPDX-License-Identifier: MIT
"""The machine code of CDNA3 as text: instructions, loops, registers, waits.

In reading order:

- ``mnemonics``: Meaning of an AMDGCN mnemonic: its kind, how many bits it moves per lane, and the matrix shape it
  multiplies.
- ``text``: The line-by-line half of :mod:`cdna.isa.kernel`: from text to functions, labels and
  resources.
- ``body``: From a function's raw lines to basic blocks, loops and instructions that know how deep they lie.
- ``kernel``: Read AMDGCN assembly: Triton's ``.amdgcn``, hipcc's or clang's ``.s``, and what ``llvm-objdump -d``
  prints.
- ``operands``: The registers that one AMDGCN instruction names, writes, and forms its address from.
- ``analysis``: Roles of a loop's registers, and the loads in flight at each instruction.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.isa.analysis import loads_in_flight
    from cdna.isa.kernel import IsaError, parse_asm

__all__ = ["IsaError", "loads_in_flight", "parse_asm"]

__getattr__, __dir__ = lazy_names(__name__)
