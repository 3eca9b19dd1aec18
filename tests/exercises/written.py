# SPDX-License-Identifier: MIT
"""Exercises that write kernels, as a notebook has them: a starter, a solution, and what the check says of either."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

from cdna.testing import HEAD, run_cell


class Exercises:
    """The exercises of one notebook: ``whole`` and ``started`` are cells by the name of their check.

    Args:
        number: of the notebook.
        checks: the module of its judges.
        names: check -> the function that the reader writes.
        head: text before each cell.
    """

    def __init__(self, number: str, checks: ModuleType, names: dict[str, str], head: str = HEAD) -> None:
        (path,) = (Path(__file__).parents[2] / "notebooks").glob(f"{number}_*.ipynb")
        self.cells = ["".join(c["source"]) for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        self.checks, self.names, self.head = checks, names, head
        self.whole = {check: self.cell(f"assert check_{check}({name})") for check, name in names.items()}
        self.started = {check: self.cell(f"\ncheck_{check}({name});") for check, name in names.items()}

    def cell(self, text: str) -> str:
        """The first cell in which ``text`` stands."""
        return next(c for c in self.cells if text in c)

    def judged(self, check: str, cell: str, *pairs: tuple[str, str]) -> bool:
        """What the check says of a cell in which texts are replaced."""
        for old, new in pairs:
            assert old in cell, old
            cell = cell.replace(old, new)
        lines = [x for x in cell.splitlines() if "check_" not in x]
        made = run_cell(self.head + "\n".join(lines) + "\n")
        return getattr(self.checks, f"check_{check}")(made[self.names[check]])
