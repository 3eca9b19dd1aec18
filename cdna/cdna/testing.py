# SPDX-License-Identifier: MIT
"""Code executed as IPython executes a cell: in __main__'s manner, with lines that linecache knows, and no file."""

import itertools
import linecache

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
_NUMBER = itertools.count(1)


def run_cell(code, space=None):
    """The globals after executing ``code``; pass them on for the next cell of the same notebook."""
    name = f"<ipython-input-{next(_NUMBER)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    space = {"__name__": "__main__"} if space is None else space
    exec(compile(code, name, "exec"), space)  # noqa: S102  this is what a notebook does
    return space
