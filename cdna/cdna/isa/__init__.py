# SPDX-License-Identifier: MIT
"""The machine code of CDNA3 as text: instructions, loops, registers, waits.

In reading order:

- ``mnemonics``: What one AMDGCN mnemonic means: its kind, how many bits it moves per lane, and the matrix shape it
  multiplies.
- ``registers``: What a kernel's vector registers are for: accumulators, tiles in flight, values carried through a
  loop untouched.
- ``text``: The line-by-line half of :mod:`cdna.isa.kernel`: from text to functions, labels and
  resources.
- ``body``: From a function's raw lines to basic blocks, loops and instructions that know how deep they lie.
- ``loops``: Loops of a control-flow graph, found from the graph alone (not from comments or label names).
- ``in_flight``: How many loads are under way at each instruction of a loop: what ``s_waitcnt`` lets overlap and what
  it does not.
- ``kernel``: Read AMDGCN assembly: Triton's ``.amdgcn``, hipcc's or clang's ``.s``, and what ``llvm-objdump -d``
  prints.
- ``operands``: The registers that one AMDGCN instruction names, writes, and forms its address from.
- ``sources``: The user's code that a line of assembly came from, by the places that the compiler left in it.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.isa.in_flight import loads_in_flight
    from cdna.isa.kernel import IsaError, parse_asm

__all__ = ["IsaError", "loads_in_flight", "parse_asm"]

__getattr__, __dir__ = lazy_names(__name__, "in_flight", "kernel")
