# SPDX-License-Identifier: MIT
"""The command `cdna`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cdna import __version__
from cdna.cli.program import lazy_group, run_program

__all__ = ["COMMANDS", "EXAMPLES", "app", "main"]

COMMANDS = {
    "inspect": ("cdna.cli.inspect.command", "What a Triton kernel becomes on MI300X, without one."),
    "step": ("cdna.cli.step.command", "Step through a wave of a kernel's MI300X code, without one."),
    "grade": ("cdna.cli.grade", "Judge a kernel as the solution of a puzzle, without a GPU."),
}

EXAMPLES = {
    "grade": [("cdna grade double.py::double puzzle.py", "puzzle.py has one Puzzle; the README shows both")],
    "inspect": [
        ("cdna inspect kernel.py::softmax", "launched by the file's own example()"),
        ("cdna inspect kernel.py::add --arg 'x=*fp16:16' --arg n=i32 --const BLOCK=1024", "by types"),
        ("cdna inspect kernel.py::softmax --run", "also execute it here, and count bytes and conflicts"),
        ("cdna inspect kernel.s --html page.html", "an assembly dump, as a page"),
    ],
    "step": [
        ("cdna step kernel.py::softmax", "launched by the file's own example(); keys n, b, g, q"),
        ("cdna step kernel.py::add --arg 'x=fp32[500]' --arg n=500 --const BLOCK=512 --grid 1", "by values"),
        ("cdna step kernel.s --arg 'x=fp32[64]' --grid 1 --html page.html", "assembly, as a page"),
    ],
}

app = typer.Typer(
    cls=lazy_group(COMMANDS, lambda: EXAMPLES),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    """Show what a kernel becomes on an AMD Instinct MI300X: compiled, read and executed on this machine."""
    if version:
        typer.echo(f"cdna {__version__}")
        raise typer.Exit


#: What the commands need that is not always installed -> what to install.
_LIBRARIES = {
    "triton": "triton>=3.6,<3.10",
    "torch": "torch",
    "matplotlib": "matplotlib",
    "ziglang": "ziglang",
}


def missing_library(error: ImportError) -> str | None:
    """Return one line for a library that is not installed; None for what is not the reader's to mend.

    >>> missing_library(ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib"))[:31]
    'matplotlib is not installed in '
    """
    name = (error.name or "").partition(".")[0]
    if name not in _LIBRARIES or not isinstance(error, ModuleNotFoundError):
        return None
    return f"{name} is not installed in this Python ({sys.executable}): pip install '{_LIBRARIES[name]}'"


def main() -> None:
    """Run the command `cdna`."""
    run_program(app, "cdna", missing_library)


if __name__ == "__main__":
    main()
