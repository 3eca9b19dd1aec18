# SPDX-License-Identifier: MIT
"""Execute gfx942 (CDNA3) machine code on a CPU: :func:`~cdna.run.session.run`, or prepare and step.

In reading order:

- ``session``: the calls: a kernel, a grid and arguments in; results and counts out.
- ``launches``: ordinary wrappers of kernels, executed as their gfx942 machine code.
- ``arguments``, ``metadata``: where the arguments lie, and what the kernel's descriptor says.
- ``program``, ``decode``, ``operands``: text to operations, each bound to its operands once.
- ``machine``, ``wave``, ``execute``, ``stretches``: workgroups, waves, one instruction, and many at once.
- ``wait_states``: where an ``s_nop`` is missing.
- ``listing``: a disassembly with its code object.
- ``counters``, ``errors``: what was counted, and what the hardware does not allow.
- the rooms ``scalar``, ``vector`` and ``memory``: the instructions themselves.
"""

from typing import TYPE_CHECKING

from cdna.base import face

if TYPE_CHECKING:
    from cdna.run.counters import Counters
    from cdna.run.decode import Operation
    from cdna.run.errors import RunError
    from cdna.run.launches import executed_on_gfx942
    from cdna.run.machine import Machine, Observer
    from cdna.run.session import Result, Session, prepare, run
    from cdna.run.wave import Flight, Wave

__all__ = [
    "Counters",
    "Flight",
    "Machine",
    "Observer",
    "Operation",
    "Result",
    "RunError",
    "Session",
    "Wave",
    "executed_on_gfx942",
    "prepare",
    "run",
]

__getattr__, __dir__ = face(__name__, "session", "launches", "machine", "wave", "counters", "decode", "errors")
