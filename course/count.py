# SPDX-License-Identifier: MIT
"""`python -m course count`: files and lines of every room, so that the house stays small."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from pathlib import Path

import typer

from cdna.cli.options import JSON
from rocm_guide.cli.lessons import cell_source, notebooks_folder, read_notebook
from rocm_guide.common.base import package_folder

__all__ = ["count", "lines_of"]

ROOT = package_folder().parent
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
KINDS = ("code", "docstrings", "comments", "empty")


def lines_of(text: str) -> dict[str, int]:
    """Return how many lines of a module are code, docstrings, comments alone, and empty.

    >>> lines_of("'Say.'\\n\\nx = 1  # one\\n# two\\n")
    {'code': 1, 'docstrings': 1, 'comments': 1, 'empty': 1}
    """
    lines = text.splitlines()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            said = node.body[0]
            docstrings |= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    alone = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and not t.line[: t.start[1]].strip()}
    empty = {n for n, line in enumerate(lines, 1) if not line.strip()} - docstrings
    code = len(lines) - len(docstrings) - len(alone) - len(empty)
    return {"code": code, "docstrings": len(docstrings), "comments": len(alone), "empty": len(empty)}


def _rooms() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "rocm_guide").rglob("*.py")):
        inside = path.relative_to(ROOT / "rocm_guide").parts
        rooms.setdefault(f"rocm_guide/{inside[0]}" if len(inside) > 1 else "rocm_guide", []).append(path)
    for name in ("cdna/cdna", "course", "hub", "docs", "benchmarks", "tests", "cdna/tests"):
        rooms[name] = sorted((ROOT / name).rglob("*.py"))
    return rooms


def count(as_json: JSON = False) -> None:
    """Count files and lines of Python by room; those of the notebooks' code cells too."""
    table = {}
    for room, files in _rooms().items():
        each = [lines_of(p.read_text(encoding="utf-8")) for p in files]
        table[room] = {"files": len(files), **{kind: sum(x[kind] for x in each) for kind in KINDS}}
    notebooks = sorted(notebooks_folder().glob("[0-9]*.ipynb"))
    cells = [c for p in notebooks for c in read_notebook(p)["cells"] if c["cell_type"] == "code"]
    code = sum(len([line for line in cell_source(c).splitlines() if line.strip()]) for c in cells)
    table["notebooks"] = {"files": len(notebooks), "code": code, "docstrings": 0, "comments": 0, "empty": 0}
    whole = [row for room, row in table.items() if room.startswith("rocm_guide")]
    table["rocm_guide, all"] = {key: sum(row[key] for row in whole) for key in ("files", *KINDS)}
    if as_json:
        typer.echo(json.dumps(table, indent=1))
        return
    typer.echo(f"{'':<24}{'files':>7}{'lines':>9}" + "".join(f"{kind:>12}" for kind in KINDS))
    for room, row in table.items():
        lines = sum(row[kind] for kind in KINDS)
        typer.echo(f"{room:<24}{row['files']:>7}{lines:>9,}" + "".join(f"{row[kind]:>12,}" for kind in KINDS))
