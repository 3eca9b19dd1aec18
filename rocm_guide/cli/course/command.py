# SPDX-License-Identifier: MIT
"""`rocm-guide list`, `run`, `lab` and `store`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdna.cli.options import JSON, between, out_folder
from rocm_guide.base import GuideError, shown
from rocm_guide.cli.options import notebook_numbers

if TYPE_CHECKING:
    from rocm_guide.course.lessons import Lesson

__all__ = ["lab", "list_", "resume_line", "run", "store"]

Folder = Annotated[
    Path | None, typer.Option("--notebooks", help="Folder with the notebooks, if it is not the course's own.")
]
Numbers = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NN]...", help="Numbers of notebooks; all if left out.", autocompletion=notebook_numbers),
]


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


def _check_model(name: str) -> None:
    """Refuse a shape's bare name before a notebook runs into it: it has no weights, and random ones are a choice."""
    from rocm_guide.zoo.shapes import SHAPES

    if name in SHAPES and not Path(name).is_dir():
        fix = f"give random:{name} (its size, random weights), or the hub id of a trained one"
        raise GuideError(f"-p MODEL {name}: the name of a shape, which has no weights; {fix}")


def _check_gpu_report(file: Path) -> None:
    """Refuse, before any work, a file that is no such table, or a machine without a GPU."""
    from rocm_guide.course.gpu_report import read_gpu_report
    from rocm_guide.doctor.software import gpu_nodes

    if not gpu_nodes():
        raise GuideError("--gpu-report: this machine has no GPU; leave it out")
    read_gpu_report(file)


def list_(notebooks: Folder = None, as_json: JSON = False) -> None:
    """List the notebooks: number, title, time and memory of their stored run, and whether its outputs are fresh."""
    from rocm_guide.course.lessons import catalogue

    lessons = catalogue(notebooks)
    if as_json:
        import json

        rows = [
            {
                "number": x.number,
                "topic": x.topic,
                "title": x.title,
                "path": str(x.path),
                "seconds": x.seconds,
                "peak_mib": x.peak_mib,
                "covers": x.covers,
                "hardware": x.stamp.get("hardware"),
                "outputs": _state(x),
            }
            for x in lessons
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    from cdna.cli.output import print_table

    table: list[tuple[str, ...]] = [("NN", "notebook", "time", "memory", "covers", "outputs")]
    for x in lessons:
        seconds = f"{x.seconds:.0f} s" if x.seconds else ""
        memory = f"{x.peak_mib:.0f} MiB" if x.peak_mib else ""
        words = (x.number, x.title, seconds, memory, re.sub("[*`]", "", x.covers), _state(x))
        table.append(tuple(shown(word) for word in words))
    print_table(table, right=(2, 3), folded=(1, 4))


def _state(lesson: Lesson) -> str:
    return "fresh" if lesson.fresh else "stale" if lesson.stamp else "none"


def _terminated(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def run(
    numbers: Numbers = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", callback=between(1, 1024), help="Notebooks at a time; else one per core."),
    ] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", metavar="NAME VALUE", help="Set a parameter.")] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=out_folder, metavar="FOLDER", help="Folder for executed notebooks and the report."
        ),
    ] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Run only what is missing, failed or stale.")] = False,
    notebooks: Folder = None,
    gpu_report: Annotated[
        Path | None,
        typer.Option(
            "--gpu-report", metavar="FILE", help="Merge how each notebook ended into this table of runs on GPUs."
        ),
    ] = None,
) -> None:
    """Execute notebooks; write each with its outputs, a page of HTML, and one report.

    Exit code 0: all ran. 1: a notebook failed (named, with cell and traceback). 2: bad input, and the fix.
    """
    from rich.console import Console

    from cdna.cli.output import PlainConsole, say
    from rocm_guide.cli.course.progress import RunDisplay
    from rocm_guide.course.lessons import catalogue, find_lessons
    from rocm_guide.course.report import times_of
    from rocm_guide.course.run import run_course

    lessons = find_lessons(numbers or [], catalogue(notebooks))
    given = [_pair(p) for p in parameter or []]
    if gpu_report is not None:
        _check_gpu_report(gpu_report)
    _check_model(dict(given).get("MODEL", ""))
    console = Console(soft_wrap=True, highlight=False)
    signal.signal(signal.SIGTERM, _terminated)
    with RunDisplay(lessons, console) as display:
        report = run_course(lessons, out, given=given, jobs=jobs, resume=resume, listener=display)
    entries = [report["notebooks"][x.number] for x in lessons]
    if gpu_report is not None:
        from rocm_guide.course.gpu_report import merge_gpu_report

        merge_gpu_report(gpu_report, report, lessons, day=datetime.now(UTC).date().isoformat())
    failed = [e for e in entries if e["status"] == "failed"]
    refused = [e for e in entries if e["status"] == "refused"]
    errors = PlainConsole(stderr=True)
    for entry in failed:
        errors.print(f"\n{_headline(entry)}", style="red")
        errors.print(entry["failure"].get("traceback", ""))
    for entry in refused:
        errors.print(_headline(entry), style="red")
    if report["interrupted"]:
        left = [e["number"] for e in entries if e["status"] in ("stopped", "missing")]
        again = resume_line(numbers, jobs, parameter, out, notebooks, gpu_report)
        errors.print(f"stopped; not done: {', '.join(left) or 'nothing'}; go on with: {shown(again, 4000)}")
        raise typer.Exit(130)
    say(times_of(report))
    say(f"report: {shown(out / 'report.html')}")
    raise typer.Exit(1 if failed else 2 if refused else 0)


def resume_line(
    numbers: Sequence[str] | None,
    jobs: int | None,
    parameters: Sequence[str] | None,
    out: Path,
    notebooks: Path | None,
    gpu_report: Path | None = None,
) -> str:
    """The command that goes on with exactly this run, quoted for a shell.

    >>> resume_line(["01", "25"], 2, ["MODEL=my model"], Path("runs"), None)
    "rocm-guide run 01 25 --resume --jobs 2 -p MODEL 'my model' --out runs"
    """
    words = ["rocm-guide", "run", *(numbers or []), "--resume"]
    words += ["--jobs", str(jobs)] if jobs is not None else []
    for pair in parameters or []:
        name, _, value = pair.partition("=")
        # A value that looks like an option would be taken for one unless it hangs on the name.
        words += ["-p", pair] if value.startswith("-") else ["-p", name, value]
    words += ["--out", str(out)]
    words += ["--notebooks", str(notebooks)] if notebooks is not None else []
    words += ["--gpu-report", str(gpu_report)] if gpu_report is not None else []
    return shlex.join(words)


def _headline(entry: dict[str, Any]) -> str:
    failure = entry["failure"]
    where = f", cell {failure['cell']} ({failure['heading']})" if failure.get("cell") else ""
    message = " ".join(failure["message"].split())
    return shown(f"notebook {entry['number']}{where}: {failure['error']}: {message}", 1500)


def store(
    numbers: Numbers = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", callback=between(1, 1024), help="Notebooks at a time; one measures best.")
    ] = 1,
    notebooks: Folder = None,
) -> None:
    """Re-execute notebooks on the CPU at tiny scale and keep them, outputs and stamp included, where they are.

    Also refreshes the course table in README.md.
    """
    from rich.console import Console

    from cdna.cli.output import PlainConsole
    from rocm_guide.cli.course.progress import RunDisplay
    from rocm_guide.course.lessons import catalogue, find_lessons, notebooks_folder
    from rocm_guide.course.lint import lint_notebook
    from rocm_guide.course.run import check_runnable
    from rocm_guide.course.store import store_course, update_readme

    check_runnable()
    folder = notebooks or notebooks_folder()
    lessons = find_lessons(numbers or [], catalogue(folder))
    console = Console(soft_wrap=True, highlight=False)
    signal.signal(signal.SIGTERM, _terminated)
    with RunDisplay(lessons, console) as display:
        failed = store_course(lessons, jobs=jobs, listener=display)
    errors = PlainConsole(stderr=True)
    for error in failed:
        errors.print(str(error), style="red")
    for lesson in lessons:
        for finding in lint_notebook(lesson.path):
            errors.print(str(finding), style="yellow")
    update_readme(folder.resolve().parent / "README.md")
    raise typer.Exit(1 if failed else 0)


def lab(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="For jupyter lab.")] = None,
    notebooks: Folder = None,
) -> None:
    """Open the notebooks in JupyterLab, with this Python as their kernel."""
    import importlib.util

    from rocm_guide.course.lessons import notebooks_folder

    folder = notebooks or notebooks_folder()
    if not folder.is_dir():
        raise GuideError(f"{folder}: no such folder; name the one that holds the NN_topic.ipynb files")
    if importlib.util.find_spec("jupyterlab") is None:
        from rocm_guide.installation import install_fix

        raise GuideError(f"jupyterlab is not installed; {install_fix(['jupyterlab'], extra='lab')}")
    environment = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    command = [sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={folder}", *(arguments or [])]
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
