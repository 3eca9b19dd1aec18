# SPDX-License-Identifier: MIT
"""The new names of modules that had another one before 2026-11-27: importing an old name says the new one in a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

__all__ = ["moved", "new_name"]


@cache
def moved() -> dict[str, str]:
    """Return old name below rocm_guide -> new name, from ``data/moved.tsv``."""
    text = (Path(__file__).parent / "data" / "moved.tsv").read_text(encoding="utf-8")
    return dict(line.split("\t") for line in text.splitlines() if not line.startswith("#"))


def new_name(old: str) -> str | None:
    """Return the name now of a module or name that was ``old``, which is written without ``rocm_guide.``.

    >>> new_name("zoo.load.load_model"), new_name("kernels")
    ('rocm_guide.models.load.load_model', None)
    """
    parts = old.split(".")
    for length in range(len(parts), 0, -1):
        if new := moved().get(".".join(parts[:length])):
            return ".".join([new, *parts[length:]])
    return None


class OldNames:
    """The last that Python asks where a module is: it finds none, and says of an old name which is the new one."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for an old name."""
        room, _, rest = name.partition(".")
        if room == "rocm_guide" and (new := new_name(rest)):
            raise ModuleNotFoundError(f"{name} is {new} now: change the import", name=name)
        return None


if OldNames not in sys.meta_path:
    sys.meta_path.append(OldNames)
