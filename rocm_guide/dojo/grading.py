# SPDX-License-Identifier: MIT
"""Judge a solution three ways: is it right, what does it become on MI300X, and how fast is it where a GPU is.

Introduced by notebook 38.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cdna.kernel_source import SourceError, pack_objects
from rocm_guide.common.checks import Check
from rocm_guide.dojo.catalogue import find_puzzle
from rocm_guide.dojo.judge import Verdict
from rocm_guide.dojo.listings import LISTINGS, check_listing
from rocm_guide.dojo.puzzle import DojoError, Puzzle
from rocm_guide.dojo.structure import check_structure
from rocm_guide.dojo.worker import judge_in_worker

__all__ = ["Grade", "grade"]

_COLOURS = {"OK": "#2e7d32", "WARN": "#b26a00", "FAIL": "#c62828"}


@dataclass(frozen=True)
class Grade:
    """The verdict on one solution: printed as lines, shown as a table in a notebook."""

    puzzle: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Return whether nothing failed."""
        return not any(c.status == "FAIL" for c in self.checks)

    def __str__(self) -> str:
        """Return a line for the puzzle and one for each check."""
        verdict = "passed" if self.passed else "not yet"
        return "\n".join([f"{self.puzzle}: {verdict}", *map(str, self.checks)])

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
        verdict = "passed" if self.passed else "not yet"
        return f"<b>{html.escape(self.puzzle)}: {verdict}</b><table>{''.join(rows)}</table>"


def right_checks(puzzle: Puzzle, verdict: Verdict) -> list[Check]:
    """Return what the interpreter found, as checks: the result, and the bytes that were moved."""
    if verdict.found:
        return [Check("FAIL", "result", verdict.found, verdict.hint)]
    checks = [Check("OK", "result", f"equals {puzzle.formula} in all {verdict.cases} cases")]
    if puzzle.expect.traffic and verdict.traffic:
        text = f"{verdict.traffic:.2f} times the floor (every input read once, every output written once)"
        good = verdict.traffic <= puzzle.expect.traffic * 1.02
        fix = "" if good else f"{puzzle.expect.traffic:g} times will do: keep in registers what you read again"
        checks.append(Check("OK" if good else "FAIL", "bytes", text, fix))
    return checks


def _time_check(call: Callable[..., Any], puzzle: Puzzle) -> list[Check]:
    """Return the time of a solution beside that of PyTorch, on a GPU; no check without one.

    A GPU may lack what the puzzle is about: NVIDIA's have no FNUZ types. Its compiler's own words are passed on then.
    """
    import torch
    from triton.compiler.errors import CompilationError

    from rocm_guide.common.device import time_call

    if not torch.cuda.is_available():
        return []
    arguments = [
        a.normal_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in puzzle.shape("cuda")
    ]
    name = torch.cuda.get_device_name()
    try:
        call(*arguments)
    except CompilationError as e:
        return [Check("WARN", "time", f"not measured, {name} cannot run it: {str(e).strip().splitlines()[-1][:160]}")]
    mine = time_call(lambda: call(*arguments)).median * 1e6
    theirs = time_call(lambda: puzzle.reference(*arguments)).median * 1e6
    return [Check("OK", "time", f"{mine:.1f} us, the reference in PyTorch {theirs:.1f} us ({name})")]


def grade(call: Callable[..., Any] | str, puzzle: str, arch: str = "gfx942") -> Grade:
    """Judge ``call``, a function that launches your kernels, as a solution of a puzzle.

    Args:
        call: takes and returns what the puzzle's task says. It and its kernels may stand in a notebook cell. For a
            repair of a listing, its text.
        puzzle: its name, one of :data:`rocm_guide.dojo.catalogue.PUZZLES`, or of
            :data:`rocm_guide.dojo.listings.LISTINGS`.
        arch: what the kernels are compiled for.

    First all cases in Triton's interpreter, against PyTorch in float64; then, if they are right, the code for ``arch``
    against what the puzzle expects; then, if there is a GPU, the time.

    Raises:
        DojoError: no such puzzle, or ``call`` is no function.

    >>> import torch
    >>> print(grade(torch.clone, "copy"))  # right, but where is the kernel?
    copy: not yet
    [OK]   result       equals x.clone() in all 4 cases
    [FAIL] compiles     no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    """
    if puzzle in LISTINGS:
        return Grade(puzzle, tuple(check_listing(call, LISTINGS[puzzle])))
    chosen = find_puzzle(puzzle)
    if not callable(call) or hasattr(call, "run"):
        raise DojoError(f"{call!r:.60}: give the function that launches your kernel, not the kernel or its result")
    try:
        packed = pack_objects([call])
    except SourceError as e:
        return Grade(puzzle, (Check("FAIL", "result", str(e)),))
    checks = right_checks(chosen, judge_in_worker(packed, puzzle))
    if all(c.status == "OK" for c in checks):
        checks += check_structure(call, chosen, arch)
    if all(c.status == "OK" for c in checks):
        checks += _time_check(call, chosen)
    return Grade(puzzle, tuple(checks))
