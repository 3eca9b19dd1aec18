# SPDX-License-Identifier: MIT
"""All puzzles by name."""

from __future__ import annotations

from cdna.grade.puzzle import GradeError, Puzzle
from rocm_guide.dojo.attention import ATTENTION
from rocm_guide.dojo.elementwise import ELEMENTWISE
from rocm_guide.dojo.gluon import GLUON
from rocm_guide.dojo.listings import LISTINGS
from rocm_guide.dojo.models import MODELS
from rocm_guide.dojo.products import PRODUCTS
from rocm_guide.dojo.repairs import REPAIRS
from rocm_guide.dojo.rows import ROWS

__all__ = ["PUZZLES", "find_puzzle"]

PUZZLES = {p.name: p for p in (*ELEMENTWISE, *ROWS, *PRODUCTS, *ATTENTION, *MODELS, *REPAIRS, *GLUON)}


def find_puzzle(name: str) -> Puzzle:
    """Return the puzzle of that name.

    Raises:
        GradeError: there is none.

    >>> find_puzzle("copy").formula
    'x.clone()'
    """
    if name not in PUZZLES:
        raise GradeError(f"puzzle {name!r}: there are {', '.join([*PUZZLES, *LISTINGS])}")
    return PUZZLES[name]
