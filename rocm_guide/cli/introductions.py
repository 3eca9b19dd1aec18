# SPDX-License-Identifier: MIT
"""The notebook that introduces a helper: the first one, in reading order, whose code cells import it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rocm_guide.cli.lessons import cell_source, notebooks_folder, read_notebook
from rocm_guide.common.base import GuideError

__all__ = ["introduced_in", "introductions", "notebook_of"]

_NUMBER = re.compile(r"(\d{2})_(\w+)\.ipynb")
_PACKAGE, _TOOLKIT = "rocm_guide.", "cdna."


def introductions(folder: Path | None = None) -> dict[str, str]:
    """Return what the notebooks import from the course and from cdna,
    each with the number and topic of the first that does.

    A name stands as the cell writes it: ``tune.tunableop.plan`` if it comes from the room's face,
    ``tune.tunableop.planner.plan`` if from the module.

    Args:
        folder: where the notebooks are; found by :func:`~rocm_guide.cli.lessons.notebooks_folder` if left out.

    Returns:
        dotted name without ``rocm_guide.`` -> for example ``"17 (tunableop)"``.

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


def introduced_in(helper: str, folder: Path | None = None) -> str:
    """Return the notebook that introduces ``helper``, or an empty string if none does:
    only those that name it are parsed.

    Args:
        helper: for example ``tune.tunableop.planner.plan``.
        folder: as in :func:`introductions`.

    Raises:
        GuideError: no notebooks, or one that names the helper and cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as course:
    ...     cell = '{"cell_type": "code", "source": "from rocm_guide.tune.tunableop import plan"}'
    ...     _ = Path(course, "17_tunableop.ipynb").write_text('{"cells": [' + cell + "]}")
    ...     helpers = "tune.tunableop.planner.plan", "common.base.write_text"
    ...     [introduced_in(helper, Path(course)) for helper in helpers]
    ['17 (tunableop)', '']
    """
    import_names = set(_import_names(helper))
    word = helper.rpartition(".")[2].encode()
    for path in sorted((folder or notebooks_folder()).glob("[0-9]*.ipynb")):
        match = _NUMBER.fullmatch(path.name)
        if match and word in path.read_bytes() and not import_names.isdisjoint(_imported(path)):
            return f"{match[1]} ({match[2]})"
    return ""


def notebook_of(helper: str, found: dict[str, str]) -> str:
    """Return the notebook among ``found`` (of :func:`introductions`) that introduces ``helper``;
    empty if there is none.
    """
    return min((found[n] for n in _import_names(helper) if n in found), default="")


def _import_names(helper: str) -> Iterator[str]:
    """Yield the names under which ``helper`` can be imported: from its module, or from the face of a room around it."""
    *rooms, name = helper.removeprefix(_PACKAGE).split(".")
    return (".".join([*rooms[:depth], name]) for depth in range(len(rooms), -1, -1))


def _imported(path: Path) -> Iterator[str]:
    """Yield the names that a notebook's code cells import from this package,
    and attributes of modules that they import.
    """
    aliases: dict[str, str] = {}
    for cell in read_notebook(path)["cells"]:
        source = cell_source(cell)
        if cell.get("cell_type") != "code" or not (
            "rocm_guide" in source or "cdna" in source or any(f"{alias}." in source for alias in aliases)
        ):
            continue
        lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError as e:
            raise GuideError(f"{path.name}: a cell is not Python ({e}); correct it") from e
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith((_PACKAGE, _TOOLKIT)):
                module = f"{node.module}.".removeprefix(_PACKAGE)
                for alias in node.names:
                    aliases[alias.asname or alias.name] = module + alias.name
                    yield module + alias.name
            elif isinstance(node, ast.Import):
                aliases.update(
                    {
                        a.asname: a.name.removeprefix(_PACKAGE)
                        for a in node.names
                        if a.asname and a.name.startswith((_PACKAGE, _TOOLKIT))
                    }
                )
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                yield f"{aliases[node.value.id]}.{node.attr}"
