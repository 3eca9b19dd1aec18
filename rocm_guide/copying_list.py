# SPDX-License-Identifier: MIT
"""The names that `rocm-guide copy` can copy."""

from __future__ import annotations

from pathlib import Path

from .copying_scan import PACKAGE, scan

__all__ = ["public_helpers"]


def public_helpers(root: Path | None = None) -> list[str]:
    """Every name that can be copied, as ``module.name``: the ``__all__`` of every module, subpackages included.

    Args:
        root: another package folder than this one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tool.py").write_text("__all__ = ['LIMIT']\\nLIMIT = 2\\n")
    ...     public_helpers(Path(folder))
    ['tool.LIMIT']
    """
    root = root or Path(__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "cli" in parts or path.name.startswith("__"):
            continue
        module = scan(".".join((PACKAGE, *parts)), root)
        # A name that is re-exported is copied from where it is defined.
        found += [f"{'.'.join(parts)}.{name}" for name in module.public if name in module.defined] if module else []
    return found
