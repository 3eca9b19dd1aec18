# SPDX-License-Identifier: MIT
"""Judge a solution two ways, without a GPU: is it right, and what does it become on MI300X?"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cdna.checks import Check
from cdna.compile_errors import find_gluon
from cdna.grade.judge import Verdict
from cdna.grade.limits import SECONDS
from cdna.grade.puzzle import GradeError, Puzzle, find_puzzle
from cdna.grade.ways import missing_gluon
from cdna.grade.worker import check_in_worker, judge_in_worker, prepare_workers
from cdna.kernel_source import SourceError, pack_objects

__all__ = ["Grade", "grade"]

_COLOURS = {"OK": "#2e7d32", "WARN": "#b26a00", "FAIL": "#c62828"}


@dataclass(frozen=True)
class Grade:
    """The verdict on one solution: printed as lines, shown as a table in a notebook.

    Attributes:
        puzzle: its name.
        checks: what was looked at.
        missing: why nothing could be, in one line; empty if it could.
    """

    puzzle: str
    checks: tuple[Check, ...]
    missing: str = ""

    @property
    def passed(self) -> bool:
        """Return whether it was judged and nothing failed."""
        return not self.missing and not _failed(list(self.checks))

    @property
    def _verdict(self) -> str:
        if self.missing:
            return f"stepped over: {self.missing}"
        return "passed" if self.passed else "not yet"

    def __str__(self) -> str:
        """Return a line for the puzzle and one for each check."""
        return "\n".join([f"{self.puzzle}: {self._verdict}", *map(str, self.checks)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same as a small table."""
        rows = []
        for c in self.checks:
            fix = f"<br><i>{html.escape(c.fix)}</i>" if c.fix else ""
            rows.append(
                f'<tr><td style="color:{_COLOURS[c.status]};font-weight:bold">{c.status}</td>'
                f'<td style="text-align:left">{html.escape(c.name)}</td>'
                f'<td style="text-align:left">{html.escape(c.found)}{fix}</td></tr>'
            )
        return f"<b>{html.escape(f'{self.puzzle}: {self._verdict}')}</b><table>{''.join(rows)}</table>"


def _failed(checks: list[Check]) -> bool:
    return any(c.status == "FAIL" for c in checks)


def right_checks(puzzle: Puzzle, verdict: Verdict) -> list[Check]:
    """Return what the cases showed, as checks: the result, and the bytes that were moved."""
    if verdict.found:
        return [Check("FAIL", verdict.check, verdict.found, verdict.hint)]
    checks = [Check("OK", "result", f"equals {puzzle.formula} in all {verdict.cases} cases")]
    if puzzle.expect.traffic and verdict.traffic:
        text = f"{verdict.traffic:.2f} times the floor (every input read once, every output written once)"
        good = verdict.traffic <= puzzle.expect.traffic * 1.02
        fix = "" if good else f"{puzzle.expect.traffic:g} times will do: {puzzle.expect.traffic_fix}"
        checks.append(Check("OK" if good else "FAIL", "bytes", text, fix))
    return checks


def grade(
    call: Callable[..., Any], place: str, name: str = "", arch: str = "gfx942", *, seconds: float = SECONDS
) -> Grade:
    """Judge ``call``, a function that launches kernels, as a solution of a puzzle.

    First all cases, against PyTorch in float64: in Triton's interpreter, or, where a kernel is in Gluon, as executed
    gfx942 machine code. Then, if they are right, the code for ``arch`` against what the puzzle expects, and what it
    does when it is executed. Time, memory, network and processes are limited, so that a mistake ends in a message; it
    is no sandbox for files of strangers. A Triton that has no Gluon for gfx942 steps over a puzzle that asks for it.

    Args:
        call: takes and returns what the puzzle's task says. It and its kernels may stand in a notebook cell.
        place: the module or the file (``puzzles.py``) in which the puzzle stands.
        name: the puzzle's name; may be left out where there is one only.
        arch: what the kernels are compiled for.
        seconds: by the clock that one call of ``call`` may take.

    Raises:
        GradeError: no such puzzle, ``call`` is no function, or ``seconds`` is not positive.
    """
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise GradeError(f"seconds={seconds!r}: give a positive number")
    puzzle = find_puzzle(place, name)
    if not callable(call) or hasattr(call, "run"):
        raise GradeError(f"{call!r:.60}: give the function that launches your kernel, not the kernel or its result")
    if puzzle.gluon and (missing := missing_gluon()):
        return Grade(puzzle.name, (), missing)
    try:
        packed = pack_objects([call])
    except SourceError as e:
        return Grade(puzzle.name, (Check("FAIL", "result", str(e)),))
    layers = {kind for function in packed["functions"] for kind, _ in function["layers"]}
    executed = puzzle.gluon or "gluon" in layers or bool(find_gluon(call))
    if executed and (missing := missing_gluon()):
        return Grade(puzzle.name, (), missing)
    prepare_workers(executed)
    checks = right_checks(puzzle, judge_in_worker(packed, place, puzzle.name, seconds, executed))
    if not _failed(checks):
        checks += check_in_worker(packed, place, puzzle.name, arch, seconds)
    return Grade(puzzle.name, tuple(checks))
