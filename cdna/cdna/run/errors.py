# SPDX-License-Identifier: MIT
"""The error of a run: one line that names the instruction, the lane or register, and what is wrong with it."""

from __future__ import annotations

from cdna.base import InputError

__all__ = ["RunError"]


class RunError(InputError):
    """A listing that cannot be executed, or one that did what the hardware does not allow.

    Attributes:
        line: line of the instruction in the text, 0 when the error belongs to no instruction.
        rule: what kind of mistake it is: ``text``, ``unknown``, ``arguments``, ``bounds``, ``undefined``, ``wait``,
            ``wait states``, ``race``, ``limit``, ``deadlock``, ``read-only``.
        source: ``file:line:column`` of the kernel's own line that the instruction comes from, where that is known.
    """

    def __init__(self, message: str, line: int = 0, rule: str = "text", source: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.rule = rule
        self.source = source
