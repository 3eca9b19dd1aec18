# SPDX-License-Identifier: MIT
"""Words of the command line that are plainly what their option wants, read without typer's general machinery.

Typer from 0.29 on builds a pydantic validator for each option that is read, the first of which imports pydantic: half
of what a short command takes. A word that is plain text, a plain number or a path needs none of it. All else (odd
spellings of numbers, ranges, what a parser refuses) goes to typer's own reading, so its rules and messages stay.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, get_args, get_origin

__all__ = ["read_plain_values"]

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
