# SPDX-License-Identifier: MIT
"""What a pretended GPU cannot do in the notebooks, cell by cell with the reason; and the smallest sizes of the rest."""

from __future__ import annotations

from typing import Any, NamedTuple


class LeftOut(NamedTuple):
    """One cell: a phrase that only it has, and why it is not executed."""

    notebook: str
    phrase: str
    why: str


#: Not executed.
LEFT_OUT: tuple[LeftOut, ...] = ()

#: Executed, but what they assert of the GPU's own clock is not held against them.
CLOCK: tuple[LeftOut, ...] = ()

#: Notebook -> parameters that make a notebook small where its defaults for a GPU are not.
SMALL: dict[str, dict[str, Any]] = {}
