# SPDX-License-Identifier: MIT
"""Puzzles for kernel writers, and a grader that needs no GPU.

In reading order:

- ``puzzle``: A puzzle: a task, its reference in one line of PyTorch, cases that are planted for mistakes, and
  what the compiled code is to look like.
- ``elementwise``, ``rows``, ``products``, ``attention``: The puzzles; ``repairs``: those that begin with a slow kernel.
- ``listings``: Repairs of assembly listings, judged by executing them: a missing wait, bank conflicts.
- ``catalogue``: All puzzles by name.
- ``path``: The puzzles in the order to take them, each with its level, where it is taught, a hint and a starter.
- ``solved``: Solutions that notebook 38 shows folded away.
- ``limits``: Time, memory, no network, no other processes; ``cheats``: does the result come from the kernels?
- ``judge``: Run a solution in Triton's interpreter on every case, and say what the first wrong one means.
- ``structure``: Checks of a solution's code for MI300X against what the puzzle expects, read and executed.
- ``worker``: Processes that have Triton ready, so that a judgement takes a moment.
- ``grading``: Both judgements, and the time where there is a GPU.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.dojo.catalogue import PUZZLES
    from rocm_guide.dojo.grading import grade
    from rocm_guide.dojo.listings import LISTINGS
    from rocm_guide.dojo.path import PATH, start
    from rocm_guide.dojo.puzzle import DojoError
    from rocm_guide.dojo.solved.show import SOLVED, show_solution

__all__ = ["LISTINGS", "PATH", "PUZZLES", "SOLVED", "DojoError", "grade", "show_solution", "start"]

__getattr__, __dir__ = lazy_names(__name__, "puzzle", "catalogue", "listings", "path", "solved.show", "grading")
