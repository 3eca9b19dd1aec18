# SPDX-License-Identifier: MIT
"""The command `rocm-guide`: finds its commands by name, and turns a GuideError into one line and exit code 2.

A command's module is imported only when that command is called, so `rocm-guide --help` is quick and a command whose
libraries are missing fails alone, in one line. To add one: write ``cli/<module>.py`` with a typer function (or a
``typer.Typer`` called ``app``), add its line to ``COMMANDS`` and its examples to ``cli/examples.py``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Annotated

import typer

from cdna.cli.program import Commands, Examples, lazy_group, run_program
from rocm_guide import __version__
from rocm_guide.common.base import GuideError

__all__ = ["COMMANDS", "NEEDS", "PLACES", "app", "examples", "main"]

# name -> (module in this folder, what it does), by the parts that the help shows
GROUPS = {
    "The course": {
        "list": ("notebooks", "The notebooks by parts, with measured time and memory."),
        "run": ("course.command", "Execute notebooks and write them with a report."),
        "lab": ("notebooks", "Open the notebooks in JupyterLab."),
        "copy": ("copy", "One helper, or a notebook's script, as a file that works alone."),
    },
    "Models": {
        "fit": ("fit", "Will this model fit on these GPUs?"),
        "launch": ("launch", "Launch files for several machines: torchrun, Slurm, Accelerate."),
        "passport": ("passport", "What a model of yours learnt, its size and its speed."),
        "serve": ("serve", "A server for a saved model, until Ctrl-C."),
        "bench": ("bench", "What users of a server get, at several loads."),
        "tunable": ("tunable", "Plan GEMMs; tune them; read tuned files."),
    },
    "Kernels, traces and faults": {
        "ck": ("ck", "Composable Kernel: search, check and write instances."),
        "trace": ("trace", "Profile a script; read what a profiler wrote."),
        "faults": ("faults", "Read GPU fault reports and debug-agent logs."),
    },
    "The machine": {
        "doctor": ("doctor", "Check this machine, with a fix for what is wrong."),
        "system": ("system", "System settings of an MI300X machine: check, set, reset."),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
# A second name of a command: `rocm-guide script 02` is `rocm-guide copy 02`.
ALSO = {"script": "copy"}
# Commands that are called otherwise since 2026-11-27.
FORMER = {
    "inspect": "cdna inspect",
    "step": "cdna step",
    "kernels": "python -m course table",
    "profile": "rocm-guide trace record",
    "hub": "python -m hub",
    "store": "python -m course store",
    "tunable covers": "rocm-guide tunable plan MODEL --covers FILE",
    "tunable explain": "rocm-guide tunable check FILE --explain",
}

# What a command needs beside the bare package: if one of them is missing, the others are looked for in the same breath.
NEEDS = {
    "fit": ("torch", "transformers"),
    "serve": ("httpx", "transformers"),
    "bench": ("httpx",),
    "ck": ("numpy",),
    "tunable": ("torch", "transformers"),
    "trace": ("torch",),
}

_COMPLETE = "_ROCM_GUIDE_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell")


# The same with the whole names of the modules; those of course/ are in a clone only.
_CLONE = importlib.util.find_spec("course") is not None
PLACES: Commands = {
    name: (module if module.startswith("course.") else f"rocm_guide.cli.{module}", words)
    for name, (module, words) in COMMANDS.items()
    if _CLONE or not module.startswith("course.")
}


def examples() -> Examples:
    """Return the examples of every command's help."""
    from rocm_guide.cli.examples import EXAMPLES

    return EXAMPLES


app = typer.Typer(
    cls=lazy_group(PLACES, examples, {name: title for title, group in GROUPS.items() for name in group}),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    show_completion: Annotated[
        str | None, typer.Option(metavar="SHELL", help="Print the completion script of bash, zsh, fish or powershell.")
    ] = None,
) -> None:
    """Learn to fine-tune and speed up language models on AMD Instinct MI300X."""
    if version:
        typer.echo(f"rocm-guide {__version__}")
        raise typer.Exit
    if show_completion is not None:
        # The shell is named: a guess by parent process is wrong inside make and CI.
        from typer.completion import get_completion_script

        if show_completion not in _SHELLS:
            raise GuideError(f"{show_completion!r}: no completion for this shell; choose from {', '.join(_SHELLS)}")
        script = get_completion_script(prog_name="rocm-guide", complete_var=_COMPLETE, shell=show_completion)
        typer.echo(script)
        raise typer.Exit


def _refused(line: str) -> int:
    print(line, file=sys.stderr)
    return 2


def main() -> None:
    """Run `rocm-guide`: its entry point."""
    if _COMPLETE in os.environ:
        from typer.completion import completion_init

        completion_init()
    from rocm_guide.common.installation import missing_library

    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    first = words[0] if words else ""
    if first in ALSO:
        sys.argv[sys.argv.index(first)] = ALSO[first]
    called = next((w for w in sys.argv[1:] if w in COMMANDS), "")
    if former := next((name for name in (" ".join(words[:2]), first) if name in FORMER), ""):
        where = "" if _CLONE or not FORMER[former].startswith("python") else ", in a clone of the course"
        sys.exit(_refused(f"rocm-guide {former}: is called {FORMER[former]} now{where}"))
    if called in COMMANDS and called not in PLACES:
        sys.exit(_refused(f"{called}: works in a clone of the course; elsewhere run: papermill IN.ipynb OUT.ipynb"))
    run_program(app, "rocm-guide", lambda error: missing_library(error, NEEDS.get(called, ())))


if __name__ == "__main__":
    main()
