# SPDX-License-Identifier: MIT
"""Triton's intermediate code (TTIR, TTGIR) as text: operations, layouts, what goes through LDS.

In reading order:

- ``text``: Read the text of a TTIR or TTGIR dump line by line: operations, types, source locations.
- ``values``: Operations, values and the result types that a dump leaves out.
- ``build``: From the lines of a dump to functions with operations, values and data-flow edges.
- ``layouts``: Layouts of Triton's GPU dialect: which lane, wave or LDS address holds which element.
- ``lds``: Which operations of a TTGIR program go through LDS, and why.
- ``program``: Read TTIR and TTGIR dumps: layouts, where each value lives, conversions, uses of LDS and why, and
  traces of a value.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.ir.build import IrNestingError
    from cdna.ir.layouts import wave_bits
    from cdna.ir.program import IrError, parse_ir

__all__ = ["IrError", "IrNestingError", "parse_ir", "wave_bits"]

__getattr__, __dir__ = lazy_names(__name__)
