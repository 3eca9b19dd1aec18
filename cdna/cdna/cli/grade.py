# SPDX-License-Identifier: MIT
"""`cdna grade`: judge a kernel as the solution of a puzzle, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON, between

__all__ = ["grade"]


def grade(
    solution: Annotated[
        str, typer.Argument(metavar="FILE.py::FUNCTION", help="The function that launches the kernels.")
    ],
    puzzles: Annotated[str, typer.Argument(metavar="PUZZLES", help="The file with the puzzle, or a module's name.")],
    name: Annotated[str, typer.Option(help="Which puzzle, where there are several.")] = "",
    seconds: Annotated[float, typer.Option(help="By the clock, for one case.", callback=between(0.1))] = 10.0,
    as_json: JSON = False,
) -> None:
    """Run it on every case, compile it for MI300X, read the code and execute it.

    Cases run in Triton's interpreter; those of a Gluon kernel are executed as gfx942 machine code. Exit code 1: not
    right, not good yet, or stepped over because this Triton has no Gluon for gfx942. Time, memory, network and
    processes are limited; it is no sandbox for files of strangers: both files are executed.
    """
    import json
    from dataclasses import asdict

    from cdna.base import InputError
    from cdna.cli.inspect.python_file import load_module
    from cdna.grade.grading import grade as judge

    path, _, function = solution.partition("::")
    if not path.endswith(".py") or not function:
        raise InputError(f"{solution}: write FILE.py::FUNCTION, as copy.py::copy")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    call = getattr(load_module(Path(path)), function, None)
    if call is None:
        raise InputError(f"{path}: has no {function}")
    place = str(Path(puzzles).resolve()) if puzzles.endswith(".py") else puzzles
    verdict = judge(call, place, name, seconds=seconds)
    if as_json:
        checks = [asdict(check) for check in verdict.checks]
        said = {"puzzle": verdict.puzzle, "passed": verdict.passed, "checks": checks, "missing": verdict.missing}
        typer.echo(json.dumps(said))
    else:
        typer.echo(str(verdict))
    if not verdict.passed:
        raise typer.Exit(1)
