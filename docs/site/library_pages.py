# SPDX-License-Identifier: MIT
"""Pages of the library reference: one for each room of ``rocm_guide``, from what its modules say they offer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["library_pages"]

_PACKAGE = Path(__file__).parents[2] / "rocm_guide"
#: Commands say what they do by ``--help``, and docs/commands.md has them in a table.
_LEFT_OUT = {"cli", "moved"}


def library_pages(package: Path = _PACKAGE) -> dict[str, str]:
    """Return file name -> reStructuredText, ``index.rst`` among them.

    >>> sorted(library_pages())[:2]
    ['common.rst', 'dojo.rst']
    """
    pages: dict[str, str] = {}
    for face in sorted(package.rglob("__init__.py")):
        room = ".".join(face.parent.relative_to(package).parts)
        if room and room.split(".")[0] not in _LEFT_OUT and not face.parent.is_symlink():
            pages[f"{room}.rst"] = _page(f"rocm_guide.{room}", face, _modules(face.parent))
    rooms = [name.removesuffix(".rst") for name in pages]
    names = "\n".join(f"   {room} <{room}>" for room in rooms)
    pages["index.rst"] = (
        _title("Library reference")
        + "What the notebooks import, room by room: a room is a folder of ``rocm_guide``, and :doc:`/docs/house` is\n"
        + "the map.\n"
        + "``rocm-guide copy NAME`` prints any of these helpers as a file of its own.\n\n"
        + f".. toctree::\n   :maxdepth: 1\n\n{names}\n"
    )
    return pages


def public_names(module: Path) -> list[str]:
    """Return the names in ``__all__`` of a module, without importing it.

    >>> public_names(_PACKAGE / "common/plots.py")[:2]
    ['PALETTE', 'bars']
    """
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            try:
                return list(ast.literal_eval(node.value))
            except ValueError:
                return []
    return []


def _modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n\n"


def _page(dotted: str, face: Path, modules: list[Path]) -> str:
    """Return the page of a room: what its docstring says, then each module that offers something."""
    parts = [_title(dotted), f".. automodule:: {dotted}\n   :no-members:\n\n"]
    parts += (_section(f"{dotted}.{m.stem}", m) for m in modules if public_names(m))
    return "".join(parts)


def _section(dotted: str, module: Path) -> str:
    members = ", ".join(public_names(module))
    # The heading is short, for the list of contents beside the page is narrow; the address for an import follows it.
    return _title(module.stem, "-") + f"``{dotted}``\n\n.. automodule:: {dotted}\n   :members: {members}\n\n"


def names_on_pages(package: Path = _PACKAGE) -> Iterator[str]:
    """Yield every dotted name that the reference should have an entry for."""
    for module in sorted(package.rglob("*.py")):
        parts = module.relative_to(package).with_suffix("").parts
        if module.name != "__init__.py" and parts[0] not in _LEFT_OUT and not module.name.startswith("_"):
            yield from (".".join(("rocm_guide", *parts, name)) for name in public_names(module))
