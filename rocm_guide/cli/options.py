# SPDX-License-Identifier: MIT
"""Completion in the shell: numbers of notebooks and names of models, found at no cost."""

from __future__ import annotations

from rocm_guide.cli.lessons import notebooks_folder
from rocm_guide.common.base import GuideError

__all__ = ["model_names", "notebook_numbers"]


def notebook_numbers(incomplete: str) -> list[tuple[str, str]]:
    """Return the numbers of the notebooks, with their topics; from the names of the files alone."""
    try:
        names = sorted(p.stem for p in notebooks_folder().glob("[0-9][0-9]_*.ipynb"))
    except GuideError:
        return []  # outside a clone there is nothing to offer
    return [(n[:2], n[3:].replace("_", " ")) for n in names if n.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """Return the shapes of the guide, with and without ``random:``; a folder or a hub id is typed by hand."""
    from rocm_guide.models.shapes import SHAPES

    return [n for s in SHAPES for n in (s, f"random:{s}") if n.startswith(incomplete)]
