# SPDX-License-Identifier: MIT
"""The names that `rocm-guide copy` can copy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rocm_guide.cli.copying.scan import PACKAGE, TOOLKIT, scan, toolkit_folder
from rocm_guide.common.base import package_folder

__all__ = ["public_helpers"]

#: Rooms whose names serve the course alone: its command line, the judges of its exercises. So do files ``examples.py``,
#: which read what the notebooks read, and ``api.py``: a kernel is copied from its own file.
_LEFT_OUT = ("cli", "exercises", "moved")


def public_helpers(root: Path | None = None) -> list[str]:
    """Return every name that can be copied: the ``__all__`` of every module, subpackages included.

    Those of the course are written ``module.name``, those of the toolkit ``cdna.module.name``.

    Args:
        root: another package folder than these two.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tool.py").write_text("__all__ = ['LIMIT']\\nLIMIT = 2\\n")
    ...     public_helpers(Path(folder))
    ['tool.LIMIT']
    """
    if root is None:
        return [*public_helpers(package_folder()), *(f"{TOOLKIT}.{n}" for n in public_helpers(toolkit_folder()))]
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in _LEFT_OUT or parts[-1] in ("examples", "api") or path.name.startswith("__"):
            continue
        found += [f"{'.'.join(parts)}.{name}" for name in _defined_here(path, parts, root)]
    return found


def _defined_here(path: Path, parts: tuple[str, ...], root: Path) -> list[str]:
    """Return the names of a module's ``__all__`` that it defines;
    a name that is re-exported is copied from where it is.

    Most modules define each of them by a ``def``, ``class`` or ``NAME = `` at the margin, which a look at the text
    shows; only the others are parsed, which takes a hundred times as long.
    """
    text = path.read_text(encoding="utf-8")
    listed = re.search(r"^__all__ = (\[[^\]]*\])", text, re.M)
    plain = set(re.findall(r"^(?:(?:async )?def|class) (\w+)", text, re.M)) | set(
        re.findall(r"^(\w+)\b.*?=", text, re.M)
    )
    try:
        names = ast.literal_eval(listed[1]) if listed else []
    except (ValueError, SyntaxError):
        names = [""]
    if listed and plain.issuperset(names):
        return list(names)
    module = (
        scan(".".join((TOOLKIT if root == toolkit_folder() else PACKAGE, *parts)), root) if "__all__" in text else None
    )
    return [name for name in module.public if name in module.defined] if module else []
