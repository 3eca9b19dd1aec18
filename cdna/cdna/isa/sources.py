# SPDX-License-Identifier: MIT
"""The user's code that a line of assembly came from, by the places that the compiler left in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["lines_of_code"]


def lines_of_code(places: Iterable[str], folder: Path | None) -> dict[str, str]:
    """Return the lines of code by ``file:line``, for those files that lie in ``folder`` itself; others are left out.

    >>> lines_of_code(["nowhere.py:3", ""], Path("."))
    {}
    """
    wanted: dict[str, set[int]] = {}
    for place in places:
        name, _, number = place.rpartition(":")
        if name and number.isascii() and number.isdigit() and len(number) < 10:
            wanted.setdefault(name, set()).add(int(number))
    found: dict[str, str] = {}
    for name, numbers in wanted.items():
        path = (folder or Path()) / Path(name).name
        if folder is None or not path.is_file():
            continue
        lines = path.read_text(errors="replace").split("\n")
        found |= {f"{name}:{n}": lines[n - 1].strip() for n in numbers if 0 < n <= len(lines)}
    return found
