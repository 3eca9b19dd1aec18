# SPDX-License-Identifier: MIT
"""Judge a solution of the dojo: as cdna.grade does, listings too, and the time where there is a GPU.

Introduced by notebook 38.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.compiler.errors import CompilationError

import cdna.grade
from cdna.checks import Check
from cdna.compile_errors import find_gluon
from cdna.grade import Grade, GradeError, Puzzle
from cdna.grade.judge import all_results, compare_all
from cdna.grade.limits import SECONDS
from rocm_guide.common.device import accelerator, time_call
from rocm_guide.dojo.catalogue import find_task
from rocm_guide.dojo.listings import ListingPuzzle, check_listing

__all__ = ["Grade", "grade"]

CATALOGUE = "rocm_guide.dojo.catalogue"
_CACHES = 512 << 20  # bytes: more than the 256 MB of an MI300X's last level cache


def _time_check(call: Callable[..., Any], puzzle: Puzzle) -> list[Check]:
    """Return the time of a solution beside that of PyTorch, on a GPU; no check without one.

    Each repeat has new numbers and cold caches, and the result of the last is checked. A GPU may lack what the puzzle
    is about: NVIDIA's have no FNUZ types. Its compiler's own words are passed on then.
    """
    if not torch.cuda.is_available():
        return []
    if (puzzle.gluon or find_gluon(call)) and accelerator().arch != "gfx942":
        name = torch.cuda.get_device_name()
        return [Check("WARN", "time", f"not measured: the kernel's layouts are those of gfx942, and this is a {name}")]
    arguments, last = puzzle.shape("cuda"), [None]
    numbers = [a for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
    cold = torch.empty(_CACHES, dtype=torch.uint8, device=numbers[0].device)

    def renew() -> None:
        for a in numbers:
            a.copy_(torch.randn(a.shape, dtype=torch.float16, device=a.device))  # no normal_ for FP8
        cold.zero_()  # all of the caches is this now

    def keep() -> None:
        last[0] = call(*arguments)

    name = torch.cuda.get_device_name()
    try:
        renew()
        keep()
    except CompilationError as e:
        said = str(e).strip().splitlines()[-1].removeprefix('ValueError("').removesuffix('")').partition(". ")[0]
        return [Check("WARN", "time", f"not measured, {name} cannot run it: {said[:160]}")]
    mine = time_call(keep, before=renew).median * 1e6
    try:
        wrong = compare_all(puzzle, arguments, all_results(puzzle, arguments, last[0]))
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
        seconds: by the clock that one call of ``call`` may take; for the judgement, not on a GPU.

    First all cases, against PyTorch in float64: in Triton's interpreter, or, of a Gluon kernel, as executed gfx942
    machine code. Then, if they are right, the code for ``arch`` against what the puzzle expects, and what it does when
    it is executed; then, if there is a GPU, the time. Time, memory, network and processes are limited, so that a
    mistake ends in a message; it is no sandbox for files of strangers.

    Raises:
        GradeError: no such puzzle, ``call`` is no function, or ``seconds`` is not positive.

    >>> print(grade(torch.clone, "copy"))  # right, but where is the kernel?
    copy: not yet
    [FAIL] result       4,096 elements: no Triton kernel was launched -> launch your kernel: kernel[grid](…)
    """
    chosen = find_task(puzzle)
    if isinstance(chosen, ListingPuzzle):
        return Grade(puzzle, tuple(check_listing(call, chosen)))
    if isinstance(call, str):
        raise GradeError(f"{call!r:.60}: give the function that launches your kernel; a text is a listing's repair")
    found = cdna.grade.grade(call, CATALOGUE, puzzle, arch, seconds=seconds)
    return Grade(puzzle, (*found.checks, *_time_check(call, chosen))) if found.passed else found
