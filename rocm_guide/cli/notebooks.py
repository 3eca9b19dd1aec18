# SPDX-License-Identifier: MIT
"""`rocm-guide list` and `lab`."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON
from cdna.cli.output import print_table
from rocm_guide.cli.lessons import PARTS, Lesson, catalogue, notebooks_folder
from rocm_guide.cli.options import notebook_numbers
from rocm_guide.common.base import GuideError, shown

__all__ = ["Folder", "Numbers", "lab", "list_"]

Folder = Annotated[
    Path | None, typer.Option("--notebooks", help="Folder with the notebooks, if it is not the course's own.")
]
Numbers = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NN]...", help="Numbers of notebooks; all if left out.", autocompletion=notebook_numbers),
]


def list_(notebooks: Folder = None, as_json: JSON = False) -> None:
    """List the notebooks: number, title, time and memory of their stored run, and whether its outputs are fresh."""
    lessons = catalogue(notebooks)
    if as_json:
        import json

        said = ("number", "topic", "title", "seconds", "peak_mib", "covers")
        rows = [
            {name: getattr(x, name) for name in said}
            | {"part": PARTS.get(x.number[0], ""), "path": str(x.path)}
            | {"hardware": x.stamp.get("hardware"), "outputs": _state(x)}
            for x in lessons
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    table: list[tuple[str, ...]] = [("NN", "notebook", "time", "memory", "covers", "outputs")]
    part = ""
    for x in lessons:
        if part != (part := x.number[0]):
            table.append((f"{part}0", PARTS.get(part, "").upper(), "", "", "", ""))
        seconds = f"{x.seconds:.0f} s" if x.seconds else ""
        memory = f"{x.peak_mib:.0f} MiB" if x.peak_mib else ""
        words = (x.number, x.title, seconds, memory, re.sub("[*`]", "", x.covers), _state(x))
        table.append(tuple(shown(word) for word in words))
    print_table(table, right=(2, 3), folded=(1, 4))


def _state(lesson: Lesson) -> str:
    return "fresh" if lesson.fresh else "stale" if lesson.stamp else "none"


def lab(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="For jupyter lab.")] = None,
    notebooks: Folder = None,
) -> None:
    """Open the notebooks in JupyterLab, with this Python as their kernel."""
    folder = notebooks or notebooks_folder()
    if not folder.is_dir():
        raise GuideError(f"{folder}: no such folder; name the one that holds the NN_topic.ipynb files")
    if importlib.util.find_spec("jupyterlab") is None:
        from rocm_guide.common.installation import install_fix

        raise GuideError(f"jupyterlab is not installed; {install_fix(['jupyterlab'], extra='lab')}")
    environment = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={folder}", *(arguments or [])]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
