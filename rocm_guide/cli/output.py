# SPDX-License-Identifier: MIT
"""Where the text that a command makes goes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rocm_guide.base import shown, write_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["announced", "plain_console", "write_or_print"]


def write_or_print(text: str, out: Path | None) -> None:
    """To the file, and say so; or to the screen if there is none."""
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"{shown(out)}: {len(text.splitlines())} lines")


@contextlib.contextmanager
def announced(what: str, after: float = 2.0) -> Iterator[None]:
    """Two lines on stderr around work that takes longer than ``after`` seconds, where no terminal shows a bar.

    What ends in an error has that error's line for its second one.
    """
    if sys.stderr.isatty():
        yield
        return
    began, stream, said = time.monotonic(), sys.stderr, threading.Event()

    def say() -> None:
        said.set()
        print(f"{what} ...", file=stream, flush=True)

    timer = threading.Timer(after, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if said.is_set():
        print(f"{what}: done in {time.monotonic() - began:.0f} s", file=stream, flush=True)


def plain_console() -> Console:
    """A console for text that holds names from outside: no markup, and what cannot be printed is shown escaped."""
    from rich.console import Console as RichConsole

    class Plain(RichConsole):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(_visible(str(o)) for o in objects), **options)

    return Plain(highlight=False, soft_wrap=True, markup=False, emoji=False)


def _visible(text: str) -> str:
    """:func:`shown` for each line."""
    return text if text.isprintable() else "\n".join(shown(line.expandtabs(), len(text)) for line in text.split("\n"))
