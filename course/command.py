# SPDX-License-Identifier: MIT
"""`rocm-guide run`, and `python -m course store`."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cdna.cli.options import between, out_folder
from rocm_guide.cli.notebooks import Folder, Numbers
from rocm_guide.common.base import GuideError, package_folder, shown

__all__ = ["resume_line", "run", "store"]


def prepare(arguments: list[str]) -> list[str]:
    """Return ``-p NAME VALUE`` as the option parser can take it repeatedly: ``-p NAME=VALUE``.

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
    from rocm_guide.models.shapes import SHAPES

    if name in SHAPES and not Path(name).is_dir():
        fix = f"give random:{name} (its size, random weights), or the hub id of a trained one"
        raise GuideError(f"-p MODEL {name}: the name of a shape, which has no weights; {fix}")


def _check_gpu_report(file: Path) -> None:
    """Refuse, before any work, a file that is no such table, or a machine without a GPU."""
    from course.gpu_report import read_gpu_report
    from rocm_guide.observe.doctor.software import gpu_nodes

    if not gpu_nodes():
        raise GuideError("--gpu-report: this machine has no GPU; leave it out")
    read_gpu_report(file)


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
    from course.progress import RunDisplay
    from course.report import times_of
    from course.run import run_course
    from rocm_guide.cli.lessons import catalogue, find_lessons, old_number

    every = catalogue(notebooks)
    lessons = find_lessons(numbers or [], every)
    if moved := [m for n in numbers or [] if (m := old_number(n, every))]:
        typer.echo(f"notebooks have new numbers: what was {'; '.join(moved)}", err=True)
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
        from course.gpu_report import merge_gpu_report

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
    """Return the command that goes on with exactly this run, quoted for a shell.

    >>> resume_line(["01", "42"], 2, ["MODEL=my model"], Path("runs"), None)
    "rocm-guide run 01 42 --resume --jobs 2 -p MODEL 'my model' --out runs"
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

    Also refreshes the lists of notebooks in README.md and notebooks/README.md.
    """
    from rich.console import Console

    from cdna.cli.output import PlainConsole
    from course.lint import lint_notebook
    from course.progress import RunDisplay
    from course.run import check_runnable
    from course.store import store_course, update_readme
    from rocm_guide.cli.lessons import catalogue, find_lessons, notebooks_folder

    check_runnable()
    folder = notebooks or notebooks_folder()
    # An installed package's copy is overwritten by the next installation, and its author never sees the change.
    if folder.resolve().is_relative_to(package_folder()):
        raise GuideError(f"{folder}: the notebooks of an installed package; store those of a clone")
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
