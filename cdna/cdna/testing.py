# SPDX-License-Identifier: MIT
"""Code executed as IPython executes a cell: in __main__'s manner, with lines that linecache knows, and no file."""

from __future__ import annotations

import itertools
import linecache
from typing import Any

__all__ = ["HEAD", "run_cell"]

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
_NUMBER = itertools.count(1)


def run_cell(code: str, space: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute ``code`` and return its globals; pass them on for the next cell of the same notebook.

    >>> run_cell("y = x + 1", run_cell("x = 1"))["y"]
    2
    """
    name = f"<ipython-input-{next(_NUMBER)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    space = {"__name__": "__main__"} if space is None else space
    exec(compile(code, name, "exec"), space)  # noqa: S102  this is what a notebook does
    return space
