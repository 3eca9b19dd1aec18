# SPDX-License-Identifier: MIT
"""Execute gfx942 (CDNA3) machine code on a CPU: :func:`run`, or :func:`prepare` and step through it."""

from .counters import Counters
from .decode import Operation
from .errors import RunError
from .launches import executed_on_gfx942
from .machine import Machine, Observer
from .run import Result, Session, prepare, run
from .wave import Flight, Wave

__all__ = ["Counters", "Flight", "Machine", "Observer", "Operation", "Result", "RunError", "Session", "Wave",
           "executed_on_gfx942", "prepare", "run"]  # fmt: skip
