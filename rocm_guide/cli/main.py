# SPDX-License-Identifier: MIT
"""The command `rocm-guide`: finds its commands by name, and turns a GuideError into one line and exit code 2.

A command's module is imported only when that command is called, so `rocm-guide --help` is quick and a command whose
libraries are missing fails alone, in one line. To add one: write ``cli/<module>.py`` with a typer function (or a
``typer.Typer`` called ``app``), add its line to ``COMMANDS`` and its examples to ``cli/examples.py``.
"""

from __future__ import annotations

import errno
import gc
import importlib
import importlib.util
import io
import os
import sys
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from cdna.cli.plain_values import read_plain_values
from rocm_guide import __version__
from rocm_guide.base import GuideError

__all__ = ["COMMANDS", "NEEDS", "app", "main"]

# name -> (module in this folder, what it does)
COMMANDS = {
    "list": ("course.command", "The notebooks, with measured time and memory."),
    "run": ("course.command", "Execute notebooks and write them with a report."),
    "lab": ("course.command", "Open the notebooks in JupyterLab."),
    "store": ("course.command", "Re-execute notebooks and keep their outputs in the repository."),
    "doctor": ("doctor", "Check this machine, with a fix for what is wrong."),
    "copy": ("copy", "Print one helper as a file that works on its own."),
    "fit": ("fit.command", "Will this model fit on these GPUs?"),
    "passport": ("serving.passport", "What a model of yours learnt, its size and its speed."),
    "serve": ("serving.serve", "A server for a saved model, until Ctrl-C."),
    "bench": ("serving.bench", "What users of a server get, at several loads."),
    "launch": ("launch", "Launch files for several machines: torchrun, Slurm, Accelerate."),
    "inspect": ("inspect.command", "What a Triton kernel becomes on MI300X, without one."),
    "step": ("step.command", "Step through a wave of a kernel's MI300X code, without one."),
    "ck": ("ck", "Composable Kernel: search, check and write instances."),
    "kernels": ("kernels", "Triton kernels of the course, compiled for MI300X."),
    "measure": ("measure.command", "Time the course's kernels on this GPU; predicted against measured."),
    "tunable": ("tunable.command", "Read, compare and plan TunableOp results."),
    "profile": ("profile", "Profile a script, on any machine."),
    "trace": ("profile", "Read a profiler trace."),
    "faults": ("faults", "Read GPU fault reports and debug-agent logs."),
    "hub": ("hub", "Is this machine ready for a class, and for how many learners?"),
    "system": ("system", "System settings of an MI300X machine: check, set, reset."),
}

# What a command needs beside the bare package: if one of them is missing, the others are looked for in the same breath.
NEEDS = {
    "fit": ("torch", "transformers"),
    "serve": ("httpx", "transformers"),
    "bench": ("httpx",),
    "inspect": ("torch", "triton"),
    "step": ("numpy", "torch", "triton"),
    "ck": ("numpy",),
    "kernels": ("torch", "triton"),
    "measure": ("matplotlib", "torch", "triton"),
    "tunable": ("torch", "transformers"),
    "profile": ("torch",),
}

_COMPLETE = "_ROCM_GUIDE_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell")


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and help line, and imports the one that is called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The options before the command's name."""
        read_plain_values(self)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def list_commands(self, ctx: Any) -> list[str]:
        """Those commands whose module is there."""
        return [n for n, (module, _) in COMMANDS.items() if importlib.util.find_spec(f"rocm_guide.cli.{module}")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that carries the name and the help line; enough to print the help."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The real command, imported now."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, None, rest
        module = importlib.import_module(f"rocm_guide.cli.{COMMANDS[command.name][0]}")
        # A module may rewrite its arguments, for what the option parser cannot express.
        prepare = getattr(module, "prepare", list)
        return name, find_command(module, command.name), prepare(rest)


def find_command(module: ModuleType, name: str) -> Any:
    """The typer function, or the group, that ``module`` has for the command ``name``, with its examples."""
    from rocm_guide.cli.examples import add_examples

    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        command = typer.main.get_command(group)
        # A module may serve several names with one app that has a command for each.
        command = getattr(command, "commands", {}).get(name, command)
    else:
        spellings = (name, f"{name}_", f"{name}_command", f"{name}_cmd")
        function = next(getattr(module, s) for s in spellings if callable(getattr(module, s, None)))
        single = typer.Typer(add_completion=False)
        # Options that follow an unknown word belong to the program that the command starts (lab).
        single.command(name, context_settings=getattr(function, "context_settings", None))(function)
        command = typer.main.get_command(single)
    command.name = name
    add_examples(command, name)
    read_plain_values(command)
    return command


app = typer.Typer(
    cls=LazyGroup,
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
    install_completion: Annotated[
        str | None, typer.Option(metavar="SHELL", help="Install it for that shell, in your home folder.")
    ] = None,
) -> None:
    """Learn to fine-tune and speed up language models on AMD Instinct MI300X."""
    if version:
        typer.echo(f"rocm-guide {__version__}")
        raise typer.Exit
    if shell := show_completion if show_completion is not None else install_completion:
        _completion(shell, install=show_completion is None)
        raise typer.Exit
    if show_completion is not None or install_completion is not None:
        _completion("", install=False)


def _completion(shell: str, *, install: bool) -> None:
    """Typer's own scripts; the shell is named, because a guess by parent process is wrong inside make and CI."""
    from typer import completion

    if shell not in _SHELLS:
        raise GuideError(f"{shell!r}: no completion for this shell; choose from {', '.join(_SHELLS)}")
    if install:
        _, path = completion.install(shell=shell, prog_name="rocm-guide", complete_var=_COMPLETE)
        typer.echo(f"{path}: completion for {shell}; open a new terminal to use it")
    else:
        typer.echo(completion.get_completion_script(prog_name="rocm-guide", complete_var=_COMPLETE, shell=shell))


def main() -> None:
    """Entry point of `rocm-guide`."""
    if _COMPLETE in os.environ:
        from typer.completion import completion_init

        completion_init()
    if sys.stderr is None:  # closed by the caller: there is nobody to tell
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        _refuse("standard output is closed; send it to a file, or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may hold what the terminal's encoding does not
    before = gc.get_threshold()
    # Importing torch makes objects that stay: looking through them for garbage takes a sixth of a short command's time.
    gc.set_threshold(200_000, *before[1:])
    try:
        code = app(prog_name="rocm-guide", standalone_mode=False)
        sys.stdout.flush()
    except GuideError as e:
        _refuse(str(e))
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as e:
        if isinstance(e, FileNotFoundError) and _folder_is_gone():
            _refuse("the folder that you are in has been removed; cd to one that exists")
        if e.errno not in (errno.ENOSPC, errno.EDQUOT) or e.filename is not None:
            raise
        _disk_full(e)
    except ImportError as e:
        from rocm_guide.installation import missing_library

        called = next((w for w in sys.argv[1:] if w in COMMANDS), "")
        if (line := missing_library(e, NEEDS.get(called, ()))) is None:
            raise
        _refuse(line)
    except Exception as e:
        if type(e).__name__ == "Abort":  # Ctrl-C, as the option parser passes it on
            print("stopped", file=sys.stderr)
            sys.exit(130)
        # What the option parser has to say. Typer brings a copy of click along, so its errors are known by their form.
        if not hasattr(e, "format_message"):
            raise
        where = getattr(getattr(e, "ctx", None), "command_path", "rocm-guide")
        # Without any argument the help has been printed, and nothing is left to say.
        _refuse(f"{said.rstrip('.')}; see {where} --help" if (said := e.format_message()) else "")
    finally:
        gc.set_threshold(*before)
    sys.exit(code if isinstance(code, int) else 0)


def _folder_is_gone() -> bool:
    """Whether the current folder was removed while this process, or its shell, was in it."""
    try:
        os.getcwd()  # noqa: PTH109 - no path is wanted
    except FileNotFoundError:
        return True
    return False


def _disk_full(error: OSError) -> NoReturn:
    """The output could not be written: said in one line."""
    # What is still in the buffer would fail once more at exit, with a message of Python's own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _refuse(f"the output cannot be written ({error.strerror}); free some space")


def _refuse(line: str) -> NoReturn:
    """One red line on stderr, and exit code 2."""
    from rich.console import Console

    if line:
        line = " ".join(line.split())
        Console(stderr=True, soft_wrap=True, highlight=False).print(line, style="red", markup=False)
    sys.exit(2)


if __name__ == "__main__":
    main()
