# SPDX-License-Identifier: MIT
"""A command line of several commands: each found by name, imported when it is called, and its errors said in one line.

A command's module is imported only when that command is called, so that ``--help`` is quick and a command whose
libraries are missing fails alone.
"""

from __future__ import annotations

import errno
import gc
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from cdna.base import InputError
from cdna.cli.plain_values import read_plain_values

__all__ = ["Commands", "Examples", "find_command", "lazy_group", "run_program"]

#: Name of a command -> (module with its function, what it does).
Commands = Mapping[str, tuple[str, str]]
#: Name of a command, of a group's too ("ck search") -> (command line, what it is for).
Examples = Mapping[str, Sequence[tuple[str, str]]]


def lazy_group(commands: Commands, examples: Callable[[], Examples]) -> type[TyperGroup]:
    """Make the class of a group that knows its commands by name and help line, and imports the one that is called.

    Args:
        commands: in the order of the help.
        examples: gives what stands at the end of a command's help; called when a command is.
    """

    class LazyGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Parse the options before the command's name."""
            read_plain_values(self)
            rest: list[str] = super().parse_args(ctx, args)
            return rest

        def list_commands(self, ctx: Any) -> list[str]:
            """Return those commands whose module is there."""
            return [n for n, (module, _) in commands.items() if importlib.util.find_spec(module)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Return a stand-in that carries the name and the help line; enough to print the help."""
            if cmd_name not in self.list_commands(ctx):
                return None
            return TyperCommand(cmd_name, help=commands[cmd_name][1])

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            """Import the real command."""
            name, command, rest = super().resolve_command(ctx, args)
            if command is None:
                return name, None, rest
            module = importlib.import_module(commands[command.name][0])
            # A module may rewrite its arguments, for what the option parser cannot express.
            prepare = getattr(module, "prepare", list)
            return name, find_command(module, command.name, examples()), prepare(rest)

    return LazyGroup


def find_command(module: ModuleType, name: str, examples: Examples) -> Any:
    """Return the typer function, or the group, that ``module`` has for the command ``name``, with its examples."""
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
    _add_examples(command, name, examples)
    read_plain_values(command)
    return command


def _add_examples(command: Any, path: str, examples: Examples) -> None:
    """Give ``command`` and its subcommands the examples of their path as the last lines of their help."""
    if path in examples:
        lines = [f"[cyan]{_plain(line)}[/]  # {_plain(what)}" for line, what in examples[path]]
        # An empty line between two: Rich would join them to one paragraph otherwise.
        command.epilog = "\n\n".join(["Examples:", *lines])
    for name, child in getattr(command, "commands", {}).items():
        _add_examples(child, f"{path} {name}", examples)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")  # square brackets would be Rich's markup


def run_program(app: typer.Typer, name: str, explain: Callable[[ImportError], str | None]) -> NoReturn:
    """Run ``app`` on this process's arguments and leave: an error of the user's is one red line and exit code 2.

    Args:
        app: the command line.
        name: as it is called.
        explain: one line for a library that is missing; None if the fault is the program's own.
    """
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
        code = app(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except InputError as e:
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
        if (line := explain(e)) is None:
            raise
        _refuse(line)
    except Exception as e:
        if type(e).__name__ == "Abort":  # Ctrl-C, as the option parser passes it on
            print("stopped", file=sys.stderr)
            sys.exit(130)
        # What the option parser has to say. Typer brings a copy of click along, so its errors are known by their form.
        if not hasattr(e, "format_message"):
            raise
        where = getattr(getattr(e, "ctx", None), "command_path", name)
        # Without any argument the help has been printed, and nothing is left to say.
        _refuse(f"{said.rstrip('.')}; see {where} --help" if (said := e.format_message()) else "")
    finally:
        gc.set_threshold(*before)
    sys.exit(code if isinstance(code, int) else 0)


def _folder_is_gone() -> bool:
    """Return whether the current folder was removed while this process, or its shell, was in it."""
    try:
        os.getcwd()  # noqa: PTH109 - no path is wanted
    except FileNotFoundError:
        return True
    return False


def _disk_full(error: OSError) -> NoReturn:
    """Say in one line that the output could not be written."""
    # What is still in the buffer would fail once more at exit, with a message of Python's own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _refuse(f"the output cannot be written ({error.strerror}); free some space")


def _refuse(line: str) -> NoReturn:
    """Print one red line on stderr, and exit with code 2."""
    from rich.console import Console

    if line:
        line = " ".join(line.split())
        Console(stderr=True, soft_wrap=True, highlight=False).print(line, style="red", markup=False)
    sys.exit(2)
