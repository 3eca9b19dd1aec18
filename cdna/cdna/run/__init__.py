# SPDX-License-Identifier: MIT
"""Execute gfx942 (CDNA3) machine code on a CPU: :func:`~cdna.run.session.run`, or prepare and step.

In reading order, from the calls down to single bytes:

- ``session``: a kernel, a grid and arguments in; results and counts out. ``launches``: ordinary wrappers of kernels,
  executed as their gfx942 machine code.
- ``arguments``: where the arguments lie. ``program``: from an assembly text to a program.
- ``machine``: workgroups and waves, one instruction at a time, with what must hold before it.
- ``decode``: one instruction's text to an operation. ``operands``, ``access``: its operands.
- ``scalar``, ``vector`` (its table is ``vector_table``), ``packed``, ``matrix``: the arithmetic units;
  ``arithmetic``: what numpy lacks for them.
- ``global_memory``, ``lds_ops``: instructions on memory; ``in_flight``: what the wave has not waited for.
- ``state``: programs, operations, workgroups, waves. ``memory``, ``lds``: the bytes. ``races``: order between
  workgroups. ``counters``, ``errors``: what was counted, and what the hardware does not allow.
- ``wait_states``: where an ``s_nop`` is missing.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.run.counters import Counters
    from cdna.run.errors import RunError
    from cdna.run.launches import executed_on_gfx942
    from cdna.run.machine import Machine, Observer
    from cdna.run.session import Result, Session, prepare, run
    from cdna.run.state import DecodedInstruction, Flight, Wave

__all__ = [
    "Counters",
    "DecodedInstruction",
    "Flight",
    "Machine",
    "Observer",
    "Result",
    "RunError",
    "Session",
    "Wave",
    "executed_on_gfx942",
    "prepare",
    "run",
]

__getattr__, __dir__ = lazy_names(__name__)
