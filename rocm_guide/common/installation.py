# SPDX-License-Identifier: MIT
"""The command to type when a library is missing: in a clone of the course, and where only the package is installed.

The advice never names this project as something to fetch from a package index: it is not published on one, so that a
stranger could take its name there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["clone_folder", "install_fix", "missing_library"]

# Libraries whose module is not called like the project that brings it.
_PROJECTS = {"liger_kernel": "liger-kernel"}


def clone_folder() -> Path | None:
    """Return the clone of the course that this package runs from; None where it was installed from a wheel."""
    folder = Path(__file__).resolve().parents[2]
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return None
    return folder if re.search(r'^name = "rocm-guide"$', text, re.M) else None


def _requirements() -> dict[str, str]:
    """Return project name -> what this package asks for (``torch>=2.11,<2.14``), of every extra, without markers."""
    try:
        lines = importlib.metadata.requires("rocm-guide") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        wanted = line.split(";")[0].strip()
        name = re.split(r"[^A-Za-z0-9._-]", wanted, maxsplit=1)[0].lower()
        if name not in ("rocm-guide", "cdna"):
            found.setdefault(name, wanted)
    return found


def install_fix(libraries: Iterable[str], *, extra: str = "course") -> str:
    """Return the command that brings ``libraries`` (project names): the extra in a clone, else just these.

    >>> "rocm-guide[" in install_fix(["torch"])
    False
    """
    names, known = list(dict.fromkeys(libraries)), _requirements()
    clone = clone_folder()
    if clone is not None and {*known, *_course_names()}.issuperset(names):
        shown = str(clone).replace(str(Path.home()), "~", 1)
        return f'pip install -e ./cdna -e ".[{extra}]" in {shown}' + (f" (or: make {extra})" if extra != "dev" else "")
    return "pip install " + " ".join(f'"{known[n]}"' if n in known else n for n in names)


def missing_library(error: ImportError, needs: Iterable[str] = ()) -> str | None:
    """Return one line for an import that failed: what is missing, and the fix. None if the fault is this package's own.

    Args:
        error: what the import raised.
        needs: what the command needs besides; those that are not there either are named in the same line.

    >>> missing_library(ModuleNotFoundError("No module named 'rocm_guide.models'", name="rocm_guide.models")) is None
    True
    """
    module = (error.name or "").partition(".")[0]
    if module in ("rocm_guide", "cdna"):
        return None
    name = _PROJECTS.get(module, module)
    if not isinstance(error, ModuleNotFoundError):
        said = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no message")
        return f"{name or 'a library'} is installed but cannot be imported ({said[:160]}); install it again: " + (
            install_fix([name] if name else needs)
        )
    others = [n for n in needs if n != name and importlib.util.find_spec(n.replace("-", "_")) is None]
    known = {*_requirements(), *needs, *_course_names()}
    # A part of some other library: its project may be called differently, so that no name is safe to advise.
    wanted = [name, *others] if name in known else others
    words = ", ".join(dict.fromkeys([name, *others]))
    verb = "is" if len({name, *others}) == 1 else "are"
    python = f"in this Python ({sys.executable})"
    if not wanted:
        return f"{words} {verb} missing {python}, a part of another library; install again what needs it"
    return f"{words}: not installed {python}, and needed here; {install_fix(wanted)}"


def _course_names() -> set[str]:
    """Return the libraries that the course was tested with, by project name; they ship as a file with the package."""
    file = Path(__file__).parents[1] / "data" / "constraints.txt"
    try:
        return set(re.findall(r"^([A-Za-z0-9._-]+)==", file.read_text(encoding="utf-8").lower(), re.M))
    except OSError:
        return set()
