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
from rocm_guide.dojo.judge import Verdict, compare_all
from rocm_guide.dojo.limits import SECONDS
from rocm_guide.dojo.listings import LISTINGS, check_listing
from rocm_guide.dojo.puzzle import DojoError, Puzzle
from rocm_guide.dojo.worker import check_in_worker, judge_in_worker, prepare_workers

__all__ = ["Grade", "grade"]

_CACHES = 512 << 20  # bytes: more than the 256 MB of an MI300X's last level cache
_COLOURS = {"OK": "#2e7d32", "WARN": "#b26a00", "FAIL": "#c62828"}


@dataclass(frozen=True)
class Grade:
    """The verdict on one solution: printed as lines, shown as a table in a notebook."""

    puzzle: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Return whether nothing failed."""
        return not _failed(list(self.checks))

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


def _failed(checks: list[Check]) -> bool:
    return any(c.status == "FAIL" for c in checks)


def right_checks(puzzle: Puzzle, verdict: Verdict) -> list[Check]:
    """Return what the interpreter found, as checks: the result, and the bytes that were moved."""
    if verdict.found:
        return [Check("FAIL", "result", verdict.found, verdict.hint)]
    checks = [Check("OK", "result", f"equals {puzzle.formula} in all {verdict.cases} cases")]
    if puzzle.expect.traffic and verdict.traffic:
        text = f"{verdict.traffic:.2f} times the floor (every input read once, every output written once)"
        good = verdict.traffic <= puzzle.expect.traffic * 1.02
        fix = "" if good else f"{puzzle.expect.traffic:g} times will do: {puzzle.expect.traffic_fix}"
        checks.append(Check("OK" if good else "FAIL", "bytes", text, fix))
    return checks


def _time_check(call: Callable[..., Any], puzzle: Puzzle) -> list[Check]:
    """Return the time of a solution beside that of PyTorch, on a GPU; no check without one.

    Each repeat has new numbers and cold caches, and the result of the last is checked. A GPU may lack what the puzzle
    is about: NVIDIA's have no FNUZ types. Its compiler's own words are passed on then.
    """
    import torch
    from triton.compiler.errors import CompilationError

    from rocm_guide.common.device import time_call

    if not torch.cuda.is_available():
        return []
    arguments, last = puzzle.shape("cuda"), [None]
    numbers = [a for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
    cold = torch.empty(_CACHES, dtype=torch.uint8, device=numbers[0].device)

    def renew() -> None:
        for a in numbers:
            a.normal_()
        cold.zero_()  # all of the caches is this now

    def keep() -> None:
        last[0] = call(*arguments)

    name = torch.cuda.get_device_name()
    try:
        renew()
        keep()
    except CompilationError as e:
        return [Check("WARN", "time", f"not measured, {name} cannot run it: {str(e).strip().splitlines()[-1][:160]}")]
    mine = time_call(keep, before=renew).median * 1e6
    try:
        wrong = compare_all(puzzle, arguments, last[0])
    except torch.OutOfMemoryError:
        wrong = ""  # the reference in float64 does not fit beside it; the small cases were right
    if wrong:
        fix = "right in every small case: an offset beyond 32 bits, a race, or a result that was kept"
        return [Check("FAIL", "time", f"the last timed call on {name}: {wrong}", fix)]
    theirs = time_call(lambda: puzzle.reference(*arguments), before=renew).median * 1e6
    return [Check("OK", "time", f"{mine:.1f} us, the reference in PyTorch {theirs:.1f} us ({name})")]


def grade(call: Callable[..., Any] | str, puzzle: str, arch: str = "gfx942", *, seconds: float = SECONDS) -> Grade:
    """Judge ``call``, a function that launches your kernels, as a solution of a puzzle.

    Args:
        call: takes and returns what the puzzle's task says. It and its kernels may stand in a notebook cell. For a
            repair of a listing, its text.
        puzzle: its name, one of :data:`rocm_guide.dojo.catalogue.PUZZLES`, or of
            :data:`rocm_guide.dojo.listings.LISTINGS`.
        arch: what the kernels are compiled for.
        seconds: by the clock that one call of ``call`` may take; for the judgement, not on a GPU.

    First all cases in Triton's interpreter, against PyTorch in float64; then, if they are right, the code for ``arch``
    against what the puzzle expects, and what it does when it is executed; then, if there is a GPU, the time. Time,
    memory, network and processes are limited, so that a mistake ends in a message; it is no sandbox for files of
    strangers.

    Raises:
        DojoError: no such puzzle, ``call`` is no function, or ``seconds`` is not positive.

    >>> import torch
    >>> print(grade(torch.clone, "copy"))  # right, but where is the kernel?
    copy: not yet
    [FAIL] result       4,096 elements: no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    """
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise DojoError(f"seconds={seconds!r}: give a positive number")
    if puzzle in LISTINGS:
        return Grade(puzzle, tuple(check_listing(call, LISTINGS[puzzle])))
    chosen = find_puzzle(puzzle)
    if not callable(call) or hasattr(call, "run"):
        raise DojoError(f"{call!r:.60}: give the function that launches your kernel, not the kernel or its result")
    try:
        packed = pack_objects([call])
    except SourceError as e:
        return Grade(puzzle, (Check("FAIL", "result", str(e)),))
    prepare_workers()
    checks = right_checks(chosen, judge_in_worker(packed, puzzle, seconds))
    if not _failed(checks):
        checks += check_in_worker(packed, puzzle, arch, seconds)
    if not _failed(checks):
        checks += _time_check(call, chosen)
    return Grade(puzzle, tuple(checks))
