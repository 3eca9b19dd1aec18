# SPDX-License-Identifier: MIT
"""A command line of several commands: each found by name, imported when it is called, and its errors said in one line.

A command's module is imported only when that command is called, so that ``--help`` is quick and a command whose
libraries are missing fails alone. Words that are plainly what their option wants are read without typer's general
machinery: typer from 0.29 on builds a pydantic validator for each option that is read, the first of which imports
pydantic, half of what a short command takes. A word that is plain text, a plain number or a path needs none of it. All
else (odd spellings of numbers, ranges, what a parser refuses) goes to typer's own reading, so its rules and messages
stay.
"""

from __future__ import annotations

import errno
import gc
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from cdna.base import InputError, printable

__all__ = ["Commands", "Examples", "epilog", "find_command", "lazy_group", "read_plain_values", "run_program"]

_INT = re.compile(r"[+-]?[0-9]{1,15}")
_FLOAT = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?(e[+-]?[0-9]{1,2})?")
# What typer may be asked to check or to do beside reading the type; each has this value where nothing is asked.
_UNASKED = {
    "parser": None,
    "min": None,
    "max": None,
    "clamp": False,
    "exists": False,
    "file_okay": True,
    "dir_okay": True,
    "writable": False,
    "readable": True,
    "resolve_path": False,
    "allow_dash": False,
    "path_type": None,
}
# What the system has against a path that was named: no fault of the program's.
_OF_THE_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS)


class _NotPlain(Exception):
    """A word for typer's own reading."""


def _plain(value: Any, kind: Any) -> Any:
    """Return ``value`` as a ``kind``; a default that is one already stays.

    Raises:
        _NotPlain: a word that is not plainly such a value.
    """
    if kind is Path and isinstance(value, str | Path):
        path = Path(value)
        if path.exists() and not os.access(path, os.R_OK):
            raise _NotPlain
        return path
    if type(value) is kind:
        if kind is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _NotPlain from None
        return value
    if kind is float and type(value) is int:  # a default written without its point
        return float(value)
    if kind is int and isinstance(value, str) and _INT.fullmatch(value):
        return int(value)
    if kind is float and isinstance(value, str) and _FLOAT.fullmatch(value):
        return float(value)
    raise _NotPlain


class _PlainReader:
    """Stands where typer keeps the reader of one parameter."""

    def __init__(self, parameter: Any) -> None:
        self.descriptor = parameter.type_descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert as :meth:`typer._coercion.RuntimeParam.coerce` does: a missing value, several values, or one."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind, info = self.descriptor.annotation, self.descriptor.parameter_info
        try:
            if any(getattr(info, name, usual) != usual for name, usual in _UNASKED.items()):
                raise _NotPlain
            if not several:
                return _plain(value, kind)
            if get_origin(kind) is not list or not isinstance(value, list | tuple):
                raise _NotPlain
            return [_plain(v, get_args(kind)[0]) for v in value]
        except _NotPlain:
            # The class's own method builds typer's reader and keeps it.
            return type(param).get_runtime_param(param).coerce(value, param=param, ctx=ctx)


def read_plain_values(command: Any) -> None:
    """Make every parameter of ``command``, and of the commands of a group, read plain values by itself.

    Does nothing with a release of typer that reads values in another way.
    """
    all_of = command.get_params  # --help is among these, not among command.params

    def with_plain_readers(ctx: Any) -> Any:
        found = all_of(ctx)
        for parameter in found:
            if hasattr(type(parameter), "get_runtime_param") and hasattr(parameter, "type_descriptor"):
                reader = _PlainReader(parameter)
                parameter.get_runtime_param = lambda reader=reader: reader
        return found

    command.get_params = with_plain_readers
    for inner in getattr(command, "commands", {}).values():
        read_plain_values(inner)


#: Name of a command -> (module with its function, what it does).
Commands = Mapping[str, tuple[str, str]]
#: Name of a command, of a group's too ("ck search") -> (command line, what it is for).
Examples = Mapping[str, Sequence[tuple[str, str]]]


def lazy_group(
    commands: Commands, examples: Callable[[], Examples], panels: Mapping[str, str] | None = None
) -> type[TyperGroup]:
    """Make the class of a group that knows its commands by name and help line, and imports the one that is called.

    Args:
        commands: in the order of the help.
        examples: gives what stands at the end of a command's help; called when a command is.
        panels: name of a command -> the heading under which the help shows it.
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
            panel = (panels or {}).get(cmd_name)
            return TyperCommand(cmd_name, help=commands[cmd_name][1], rich_help_panel=panel)

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
    _name_options(command)
    return command


def _name_options(command: Any) -> None:
    """Let what ``command`` and its subcommands refuse name the options as they are typed.

    The library below speaks of its own parameters (``new_tokens=0: …``), which nobody typed (``--new-tokens 0: …``).
    """
    invoke = command.invoke

    def named(ctx: Any) -> Any:
        try:
            return invoke(ctx)
        except InputError as e:
            raise InputError(_as_typed(str(e), command.params)) from e

    command.invoke = named
    for inner in getattr(command, "commands", {}).values():
        _name_options(inner)


def _as_typed(line: str, parameters: Sequence[Any]) -> str:
    """Return ``line`` with ``name=`` as the option of that name; of an argument, which has none, the value is left."""
    for parameter in parameters:
        called = f"{parameter.name}="
        # A word of the user's own that looks so (--arg group=3) stays as it was typed.
        if called in line and not any(called in word.replace(f"--{called}", "") for word in sys.argv[1:]):
            long = next((f"{word} " for word in parameter.opts if word.startswith("--")), "")
            value = "True" if getattr(parameter, "is_flag", False) else ""
            line = re.sub(rf"(?<![\w-]){re.escape(called)}{value} ?", long, line)
    return line


def _add_examples(command: Any, path: str, examples: Examples) -> None:
    """Give ``command`` and its subcommands the examples of their path as the last lines of their help."""
    if path in examples:
        command.epilog = epilog(examples[path])
    for name, child in getattr(command, "commands", {}).items():
        _add_examples(child, f"{path} {name}", examples)


def epilog(lines: Sequence[tuple[str, str]]) -> str:
    """Return the end of a command's help: its examples, each a command line and what it is for."""
    shown = [f"[cyan]{_escape_brackets(line)}[/]  # {_escape_brackets(what)}" for line, what in lines]
    # An empty line between two: Rich would join them to one paragraph otherwise.
    return "\n\n".join(["Examples:", *shown])


def _escape_brackets(text: str) -> str:
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
        command = typer.main.get_command(app)
        _name_options(command)
        code = command(prog_name=name, standalone_mode=False)
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
        if e.filename is not None and e.errno in _OF_THE_NAME:
            _refuse(f"{printable(os.fsdecode(e.filename))}: {e.strerror}; give another path")
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
        if isinstance(e, RuntimeError) and "home directory" in str(e):  # pathlib's words for ~nobody
            tilde = next((word for word in sys.argv[1:] if word.startswith("~")), "~")
            _refuse(f"{printable(tilde)}: no user has this home folder; write it out, without ~")
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
