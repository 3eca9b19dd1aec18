# SPDX-License-Identifier: MIT
"""A suggestion: a finding with its numbers, what to try, and the lines that show it."""

from __future__ import annotations

from dataclasses import dataclass

from cdna.isa.body import Instruction

__all__ = ["Suggestion"]

SHOWN = 4  # lines of evidence per suggestion; the count is always given in full


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line that supports a suggestion: in which text, where, and what it says; ``source`` is the user's own line."""

    text: str
    line: int
    code: str
    source: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A finding (with its numbers), what to try, and the lines; ``weight`` orders them, the heaviest first."""

    rule: str
    found: str
    fix: str
    evidence: tuple[Evidence, ...]
    weight: int


def asm_evidence(items: list[Instruction]) -> tuple[Evidence, ...]:
    """Return the first few instructions as evidence."""
    return tuple(Evidence("assembly", i.line, f"{i.op} {i.args}".strip(), i.source) for i in items[:SHOWN])
