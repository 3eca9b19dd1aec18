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
    "out_file",
    "out_folder",
]


def _nearest(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def out_file(text: str | Path) -> Path:
    """Check a file to write, refused before the work that fills it: no name, a folder, or a place that cannot be
    written.

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
    """Check a folder to write to; made later if it is not there."""
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
    """Return a check for an option that takes one of a few words.

    >>> choice("rocm", "cuda")("rocm")
    'rocm'
    """

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(allowed)}")
        return value

    return check


def between(least: float, most: float = 10**9) -> Callable[[float | None], float | None]:
    """Return a check for a number; the option parser's own range would not name the value.

    >>> between(1, 8)(8)
    8
    """

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value:,}: give a number from {least:,} to {most:,}")
        return value

    return check


def existing_folder(value: Path | None) -> Path | None:
    """Return a check for an option that names a folder to read."""
    if value is not None and not value.is_dir():
        raise typer.BadParameter(f"{str(value)!r}: no such folder")
    return value


JSON = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Top = Annotated[int, typer.Option("--top", help="How many to list.", callback=between(1))]
OutFile: Any = Annotated[
    Path | None,
    typer.Option("--out", "-o", parser=out_file, metavar="FILE", help="Write to this file instead of printing."),
]
OutFolder: Any = Annotated[Path, typer.Option("--out", parser=out_folder, metavar="FOLDER", help="Folder to write to.")]
