# SPDX-License-Identifier: MIT
"""A check's result: how it stands, what was found, and the fix. The doctor, the system and the profiler print it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdna.base import printable

__all__ = ["Check", "Status"]

Status = Literal["OK", "WARN", "FAIL"]


@dataclass(frozen=True)
class Check:
    r"""One checked thing: how it stands, what was looked at, what was found, and what to do about it.

    >>> print(Check("WARN", "memory", "3.0 GiB free", "close other programs"))
    [WARN] memory       3.0 GiB free -> close other programs
    >>> print(Check("OK", "devices", "SPX\x1b[2J\n[OK]   all"))
    [OK]   devices      SPX\x1b[2J\n[OK]   all
    """

    status: Status
    name: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        """Return the line as it is printed."""
        line = f"{'[' + self.status + ']':<6} {self.name:<12} {self.found}"
        return printable(f"{line} -> {self.fix}" if self.fix else line, 4000)
