# SPDX-License-Identifier: MIT
"""Completion in the shell: numbers of notebooks, names of helpers, kernels and models, found at no cost."""

from __future__ import annotations

from pathlib import Path

__all__ = ["helper_names", "kernel_names", "model_names", "notebook_numbers"]


def notebook_numbers(incomplete: str) -> list[tuple[str, str]]:
    """Return the numbers of the notebooks, with their topics; from the names of the files alone."""
    from rocm_guide.cli.lessons import notebooks_folder
    from rocm_guide.common.base import GuideError

    try:
        names = sorted(p.stem for p in notebooks_folder().glob("[0-9][0-9]_*.ipynb"))
    except GuideError:
        return []  # outside a clone there is nothing to offer
    return [(n[:2], n[3:].replace("_", " ")) for n in names if n.startswith(incomplete)]


def helper_names(incomplete: str) -> list[str]:
    """Return the names that `rocm-guide copy` takes.
    Modules until one is chosen, then its names: one file is read, not all.
    """
    from rocm_guide.cli.copying.scan import is_machinery
    from rocm_guide.common.base import package_folder

    root = package_folder()
    module, dot, _ = incomplete.rpartition(".")
    found: list[str] = []
    if dot and not is_machinery(module):
        found = _public_names(root.joinpath(*module.split(".")).with_suffix(".py"), module)
    files = (p.relative_to(root).with_suffix("") for p in root.rglob("*.py") if not p.name.startswith("__"))
    modules = (".".join(f.parts) for f in files)
    found += sorted(f"{m}." for m in modules if m.startswith(incomplete.rstrip(".")) and not is_machinery(m))
    found = [m for m in found if m.startswith(incomplete) and m != incomplete]
    # One module left: its names at once.
    if len(found) == 1 and found[0].endswith("."):
        only = found[0][:-1]
        found = _public_names(root.joinpath(*only.split(".")).with_suffix(".py"), only)
    return [name for name in found if name.startswith(incomplete)]


def _public_names(file: Path, module: str) -> list[str]:
    """Return ``module.name`` for each word of ``__all__`` in ``file``, which is read and not imported."""
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
    """Return the shapes that ship with the guide, with and without ``random:``;
    a folder or a hub id is typed by hand.
    """
    from rocm_guide.models.shapes import SHAPES

    return [n for s in SHAPES for n in (s, f"random:{s}") if n.startswith(incomplete)]


def kernel_names(incomplete: str) -> list[str]:
    """Return the modules of kernels that are in the table; from the committed table, so that none is imported."""
    from rocm_guide.kernels.resource_table import read_rows

    modules = {r.case.split(":")[0] for r in read_rows()[1]}
    # The last word of a module's name is enough for the command.
    return sorted(n for m in modules for n in {m, m.rpartition(".")[2]} if n.startswith(incomplete))
