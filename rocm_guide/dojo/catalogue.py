# SPDX-License-Identifier: MIT
"""All puzzles by name."""

from __future__ import annotations

from cdna.grade.puzzle import GradeError, Puzzle
from rocm_guide.dojo.attention import ATTENTION
from rocm_guide.dojo.elementwise import ELEMENTWISE
from rocm_guide.dojo.gluon import GLUON
from rocm_guide.dojo.listings import LISTINGS, ListingPuzzle
from rocm_guide.dojo.models import MODELS
from rocm_guide.dojo.products import PRODUCTS
from rocm_guide.dojo.repairs import REPAIRS
from rocm_guide.dojo.rows import ROWS

__all__ = ["PUZZLES", "find_task"]

PUZZLES = {p.name: p for p in (*ELEMENTWISE, *ROWS, *PRODUCTS, *ATTENTION, *MODELS, *REPAIRS, *GLUON)}


def find_task(name: str) -> Puzzle | ListingPuzzle:
    """Return the puzzle, or the listing, of that name.

    Raises:
        GradeError: there is none.

    >>> find_task("copy").formula
    'x.clone()'
    """
    if name in LISTINGS:
        return LISTINGS[name]
    if name not in PUZZLES:
        raise GradeError(f"puzzle {name!r}: there are {', '.join([*PUZZLES, *LISTINGS])}")
    return PUZZLES[name]
