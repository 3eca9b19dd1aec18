# SPDX-License-Identifier: MIT
"""Machine code that one can read: who holds which element, which lanes collide in LDS, what a loop's lines are for.

In reading order:

- ``operand_map``: Which lane and register hold which element of A, B and D of a matrix instruction, by formula and by
  execution.
- ``banks``: Which lanes of an LDS access meet in a bank, from addresses, from executed code, from a TTGIR layout.
- ``listings``: A loop's machine code, line by line.
- ``specialize``: A kernel's source with the branches decided that its constants decide.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.explain.banks import bank_access, executed_accesses, layout_access
    from cdna.explain.listings import explain_loop
    from cdna.explain.operand_map import lane_map, who_answers
    from cdna.explain.specialize import specialized_source

__all__ = [
    "bank_access",
    "executed_accesses",
    "explain_loop",
    "lane_map",
    "layout_access",
    "specialized_source",
    "who_answers",
]

__getattr__, __dir__ = lazy_names(__name__)
