# SPDX-License-Identifier: MIT
"""A grader of kernels that needs no GPU: a puzzle is data, and so are the mistakes that it is planted for.

In reading order:

- ``puzzle``: A puzzle, its cases, what is expected of the code; the files in which puzzles stand.
- ``limits``: Time, memory, no network, no other processes; ``cheats``: does the result come from the kernels?
- ``ways``: How cases are run: in Triton's interpreter, or, of Gluon kernels, as executed gfx942 machine code.
- ``judge``: Run a solution on every case, and say what the first wrong one means.
- ``structure``: Checks of a solution's code for MI300X against what the puzzle expects, read and executed.
- ``worker``: Processes that have Triton ready, so that a judgement takes a moment.
- ``grading``: Both judgements.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.grade.grading import Grade, grade
    from cdna.grade.puzzle import Case, Expect, Fault, GradeError, Puzzle

__all__ = ["Case", "Expect", "Fault", "Grade", "GradeError", "Puzzle", "grade"]

__getattr__, __dir__ = lazy_names(__name__)
