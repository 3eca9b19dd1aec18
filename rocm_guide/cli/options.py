# SPDX-License-Identifier: MIT
"""Options that several commands share: checked before any work is done, and completed by the shell at no cost.

A value that is refused becomes one line that names the option, the value and the fix, and exit code 2.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "JSON",
    "OutFile",
    "OutFolder",
    "Top",
    "between",
    "choice",
    "existing_folder",
    "helper_names",
    "kernel_names",
    "model_names",
    "notebook_numbers",
    "out_file",
    "out_folder",
]


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def out_file(text: str | Path) -> Path:
    """A file to write, refused before the work that fills it: no name, a folder, or a place that cannot be written.

    >>> out_file("")
    Traceback (most recent call last):
        ...
    typer._click.exceptions.BadParameter: no file named; give a path such as result.txt
    """
    if not str(text).strip():
        raise typer.BadParameter("no file named; give a path such as result.txt")
    path = Path(text).expanduser()
    if path.is_dir():
        raise typer.BadParameter(f"{text} is a folder; name a file in it")
    _writable(path.parent, text)
    return path


def out_folder(text: str | Path) -> Path:
    """A folder to write to; made later if it is not there."""
    if not str(text).strip():
        raise typer.BadParameter("no folder named; give a path such as runs")
    path = Path(text).expanduser()
    _writable(path, text)
    return path


def _writable(folder: Path, text: str | Path) -> None:
    above = _nearest(folder.absolute())
    if not above.is_dir():
        raise typer.BadParameter(f"{text}: {above} is a file, not a folder; choose another path")
    if not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{text}: {above} cannot be written; choose a folder that you can write to")


def choice(*allowed: str) -> Callable[[str | None], str | None]:
    """A check for an option that takes one of a few words.

    >>> choice("rocm", "cuda")("rocm")
    'rocm'
    """

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return check


def between(least: float, most: float = 10**9) -> Callable[[float | None], float | None]:
    """A check for a number; the option parser's own range would not name the value.

    >>> between(1, 8)(8)
    8
    """

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value:,}: give a number from {least:,} to {most:,}")
        return value

    return check


def existing_folder(value: Path | None) -> Path | None:
    """A check for an option that names a folder to read."""
    if value is not None and not value.is_dir():
        raise typer.BadParameter(f"{str(value)!r}: no such folder")
    return value


def notebook_numbers(incomplete: str) -> list[tuple[str, str]]:
    """Numbers of the notebooks, with their topics; from the names of the files alone."""
    from rocm_guide.base import GuideError
    from rocm_guide.course.lessons import notebooks_folder

    try:
        names = sorted(p.stem for p in notebooks_folder().glob("[0-9][0-9]_*.ipynb"))
    except GuideError:
        return []  # outside a clone there is nothing to offer
    return [(n[:2], n[3:].replace("_", " ")) for n in names if n.startswith(incomplete)]


def helper_names(incomplete: str) -> list[str]:
    """Names that `rocm-guide copy` takes. Modules until one is chosen, then its names: one file is read, not all."""
    from rocm_guide.base import package_folder

    root = package_folder()
    module, dot, _ = incomplete.rpartition(".")
    found: list[str] = []
    if dot:
        found = _public_names(root.joinpath(*module.split(".")).with_suffix(".py"), module)
    files = (p.relative_to(root).with_suffix("") for p in root.rglob("*.py") if not p.name.startswith("__"))
    modules = (".".join(f.parts) + "." for f in files if f.parts[0] != "cli")
    found += sorted(m for m in modules if m.startswith(incomplete) and m != incomplete)
    # One module left: its names at once.
    if len(found) == 1 and found[0].endswith("."):
        only = found[0][:-1]
        found = _public_names(root.joinpath(*only.split(".")).with_suffix(".py"), only)
    return [name for name in found if name.startswith(incomplete)]


def _public_names(file: Path, module: str) -> list[str]:
    """``module.name`` for each word of ``__all__`` in ``file``, which is read and not imported."""
    import ast

    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []  # no such module: nothing to offer
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [f"{module}.{name}" for name in ast.literal_eval(node.value)]
    return []


def model_names(incomplete: str) -> list[str]:
    """Shapes that ship with the guide, with and without ``random:``; a folder or a hub id is typed by hand."""
    from rocm_guide.zoo.shapes import SHAPES

    return [n for s in SHAPES for n in (s, f"random:{s}") if n.startswith(incomplete)]


def kernel_names(incomplete: str) -> list[str]:
    """Modules of kernels that are in the table; from the committed table, so that none is imported."""
    from rocm_guide.kernels.resource_table import read_rows

    modules = {r.case.split(":")[0] for r in read_rows()[1]}
    # The last word of a module's name is enough for the command.
    return sorted(n for m in modules for n in {m, m.rpartition(".")[2]} if n.startswith(incomplete))


JSON = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Top = Annotated[int, typer.Option("--top", help="How many to list.", callback=between(1))]
OutFile: Any = Annotated[
    Path | None,
    typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Write to this file instead of printing."),
]
OutFolder: Any = Annotated[Path, typer.Option("--out", parser=out_folder, metavar="FOLDER", help="Folder to write to.")]
