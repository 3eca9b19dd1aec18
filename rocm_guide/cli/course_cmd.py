# SPDX-License-Identifier: MIT
"""`rocm-guide list`, `run`, `lab` and `store`."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rocm_guide.base import GuideError

__all__ = ["lab", "list_", "run", "store"]

Folder = Annotated[
    Path | None, typer.Option("--notebooks", help="Folder with the notebooks, if it is not the course's own.")
]
Numbers = Annotated[list[str] | None, typer.Argument(metavar="[NN]...", help="Numbers of notebooks; all if left out.")]


def prepare(arguments: list[str]) -> list[str]:
    """``-p NAME VALUE`` as the option parser can take it repeatedly: ``-p NAME=VALUE``.

    >>> prepare(["02", "-p", "RANK", "8", "--resume"])
    ['02', '-p', 'RANK=8', '--resume']
    """
    result: list[str] = []
    for word in arguments:
        option = word.startswith("--") or word in ("-p", "-j", "-h")
        if len(result) >= 2 and result[-2] == "-p" and result[-1].isidentifier() and not option:
            result[-1] += f"={word}"
        else:
            result.append(word)
    return result


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise GuideError(f"parameter {name}: no value given; write -p {name} VALUE")
    return name, value


def list_(notebooks: Folder = None) -> None:
    """List the notebooks: number, title, time and memory of their stored run, and whether its outputs are fresh."""
    from rich.console import Console
    from rich.table import Table

    from rocm_guide.course import catalogue

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("NN")
    table.add_column("notebook", overflow="fold")
    table.add_column("time", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("covers", overflow="fold")
    table.add_column("outputs")
    for x in catalogue(notebooks):
        seconds = f"{x.seconds:.0f} s" if x.seconds else ""
        memory = f"{x.peak_mib:.0f} MiB" if x.peak_mib else ""
        state = "fresh" if x.fresh else "stale" if x.stamp else "none"
        table.add_row(x.number, x.title, seconds, memory, re.sub("[*`]", "", x.covers), state)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _terminated(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def run(
    numbers: Numbers = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Notebooks at a time; else one per core.")] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", metavar="NAME VALUE", help="Set a parameter.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for executed notebooks and the report.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Run only what is missing, failed or stale.")] = False,
    notebooks: Folder = None,
) -> None:
    """Execute notebooks; write each with its outputs, a page of HTML, and one report.

    Exit code 0: all ran. 1: a notebook failed (named, with cell and traceback). 2: bad input, and the fix.
    """
    from rich.console import Console

    from rocm_guide.cli.course_progress import RunDisplay
    from rocm_guide.course import catalogue, find_lessons
    from rocm_guide.course_report import times_of
    from rocm_guide.course_run import run_course

    lessons = find_lessons(numbers or [], catalogue(notebooks))
    console = Console(soft_wrap=True, highlight=False)
    signal.signal(signal.SIGTERM, _terminated)
    with RunDisplay(lessons, console) as display:
        report = run_course(
            lessons, out, given=[_pair(p) for p in parameter or []], jobs=jobs, resume=resume, listener=display
        )
    entries = [report["notebooks"][x.number] for x in lessons]
    failed = [e for e in entries if e["status"] == "failed"]
    refused = [e for e in entries if e["status"] == "refused"]
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for entry in failed:
        errors.print(f"\n{_headline(entry)}", style="red", markup=False)
        errors.print(entry["failure"].get("traceback", ""), markup=False)
    for entry in refused:
        errors.print(_headline(entry), style="red", markup=False)
    if report["interrupted"]:
        left = [e["number"] for e in entries if e["status"] in ("stopped", "missing")]
        again = f"rocm-guide run --resume --out {out}"
        errors.print(f"stopped; not done: {', '.join(left) or 'nothing'}; go on with: {again}", markup=False)
        raise typer.Exit(130)
    console.print(times_of(report), markup=False)
    console.print(f"report: {out / 'report.html'}", markup=False)
    raise typer.Exit(1 if failed else 2 if refused else 0)


def _headline(entry: dict[str, Any]) -> str:
    failure = entry["failure"]
    where = f", cell {failure['cell']} ({failure['heading']})" if failure.get("cell") else ""
    message = " ".join(failure["message"].split())
    return f"notebook {entry['number']}{where}: {failure['error']}: {message}"


def store(
    numbers: Numbers = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Notebooks at a time; one measures best.")] = 1,
    notebooks: Folder = None,
) -> None:
    """Re-execute notebooks on the CPU at tiny scale and keep them, outputs and stamp included, where they are.

    Also refreshes the course table in README.md.
    """
    from rich.console import Console

    from rocm_guide.cli.course_progress import RunDisplay
    from rocm_guide.course import catalogue, find_lessons, notebooks_folder
    from rocm_guide.course_lint import lint_notebook
    from rocm_guide.course_run import check_runnable
    from rocm_guide.course_store import store_course, update_readme

    check_runnable()
    folder = notebooks or notebooks_folder()
    lessons = find_lessons(numbers or [], catalogue(folder))
    console = Console(soft_wrap=True, highlight=False)
    signal.signal(signal.SIGTERM, _terminated)
    with RunDisplay(lessons, console) as display:
        failed = store_course(lessons, jobs=jobs, listener=display)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for error in failed:
        errors.print(str(error), style="red", markup=False)
    for lesson in lessons:
        for finding in lint_notebook(lesson.path):
            errors.print(str(finding), style="yellow", markup=False)
    update_readme(folder.resolve().parent / "README.md")
    raise typer.Exit(1 if failed else 0)


def lab(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="For jupyter lab.")] = None,
    notebooks: Folder = None,
) -> None:
    """Open the notebooks in JupyterLab, with this Python as their kernel."""
    import importlib.util

    from rocm_guide.course import notebooks_folder

    folder = notebooks or notebooks_folder()
    if not folder.is_dir():
        raise GuideError(f"{folder}: no such folder; name the one that holds the NN_topic.ipynb files")
    if importlib.util.find_spec("jupyterlab") is None:
        raise GuideError("jupyterlab is not installed; pip install 'rocm-guide[lab]' (in a clone: make lab)")
    environment = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={folder}", *(arguments or [])]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
