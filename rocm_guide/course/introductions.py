# SPDX-License-Identifier: MIT
"""Which notebook introduces a helper: the first one, in reading order, whose code cells import it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rocm_guide.base import GuideError
from rocm_guide.course.lessons import cell_source, notebooks_folder, read_notebook

__all__ = ["introductions", "notebook_of"]

_NUMBER = re.compile(r"(\d{2})_(\w+)\.ipynb")
_PACKAGE = "rocm_guide."


def introductions(folder: Path | None = None) -> dict[str, str]:
    """What the notebooks import from this package, each with the number and topic of the first that does.

    A name stands as the cell writes it: ``tunableop.plan`` if it comes from the room's face, ``tunableop.planner.plan``
    if from the module.

    Args:
        folder: where the notebooks are; found by :func:`~rocm_guide.course.lessons.notebooks_folder` if left out.

    Returns:
        dotted name without ``rocm_guide.`` -> for example ``"11 (tunableop)"``.

    Raises:
        GuideError: no notebooks, or one that cannot be read.
    """
    first: dict[str, str] = {}
    for path in sorted((folder or notebooks_folder()).glob("[0-9]*.ipynb")):
        match = _NUMBER.fullmatch(path.name)
        if match is None:
            continue
        for name in _imported(path):
            first.setdefault(name, f"{match[1]} ({match[2]})")
    return first


def notebook_of(helper: str, found: dict[str, str]) -> str:
    """The notebook among ``found`` (of :func:`introductions`) that introduces ``helper``; empty if there is none.

    The import may come from the helper's module or from the face of a room around it.
    """
    *rooms, name = helper.removeprefix(_PACKAGE).split(".")
    ways = (".".join([*rooms[:depth], name]) for depth in range(len(rooms), -1, -1))
    return min((found[way] for way in ways if way in found), default="")


def _imported(path: Path) -> Iterator[str]:
    """Names that a notebook's code cells import from this package, and attributes of modules that they import."""
    aliases: dict[str, str] = {}
    for cell in read_notebook(path)["cells"]:
        source = cell_source(cell)
        if cell.get("cell_type") != "code" or not ("rocm_guide" in source or aliases):
            continue
        lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError as e:
            raise GuideError(f"{path.name}: a cell is not Python ({e}); correct it") from e
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(_PACKAGE):
                module = f"{node.module}."[len(_PACKAGE) :]
                for alias in node.names:
                    aliases[alias.asname or alias.name] = module + alias.name
                    yield module + alias.name
            elif isinstance(node, ast.Import):
                aliases.update(
                    {a.asname: a.name.removeprefix(_PACKAGE) for a in node.names if a.asname and _PACKAGE in a.name}
                )
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                yield f"{aliases[node.value.id]}.{node.attr}"
