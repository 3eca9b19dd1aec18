# SPDX-License-Identifier: MIT
"""Puzzles for kernel writers, and a grader that needs no GPU.

In reading order:

- ``elementwise``, ``rows``, ``products``, ``attention``, ``models``: The puzzles; ``repairs``: those that begin with a
  slow kernel; ``gluon``: one in which layouts are chosen, not left to the compiler.
- ``listings``: Repairs of assembly listings, judged by executing them: a missing wait, bank conflicts.
- ``catalogue``: All puzzles by name.
- ``path``: The puzzles in the order to take them, each with its level, where it is taught, a hint and a starter.
- ``solved``: Solutions that notebook 38 shows folded away.
- ``grading``: The grader (:mod:`cdna.grade`) for these puzzles and listings, and the time where there is a GPU.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.dojo.catalogue import PUZZLES
    from rocm_guide.dojo.grading import grade
    from rocm_guide.dojo.listings import LISTINGS
    from rocm_guide.dojo.path import PATH, start
    from rocm_guide.dojo.solved.show import SOLVED, show_solution

__all__ = ["LISTINGS", "PATH", "PUZZLES", "SOLVED", "grade", "show_solution", "start"]

__getattr__, __dir__ = lazy_names(__name__)
