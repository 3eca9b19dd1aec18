# SPDX-License-Identifier: MIT
"""Output of a command: where its text goes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from cdna.base import printable, write_text

__all__ = ["PlainConsole", "announced", "print_table", "say", "working", "write_or_print"]


def say(text: object, err: bool = False) -> None:
    """Print lines of ours that may hold names from outside: what cannot be printed is shown escaped.

    >>> say("kernel\x1b[2J.py: 2 lines")
    kernel\\x1b[2J.py: 2 lines
    """
    typer.echo(_visible(str(text)), err=err)


def write_or_print(text: str, out: Path | None) -> None:
    """Write to the file, and say so; or to the screen if there is none.

    A file or a pipe gets the text as it is; a terminal gets what cannot be printed escaped.
    """
    if out is None:
        # With color=True nothing is taken out of the text on its way to a pipe.
        typer.echo(_visible(text) if sys.stdout.isatty() else text, nl=False, color=True)
    else:
        write_text(out, text)
        say(f"{printable(out)}: {len(text.splitlines())} lines")


@contextlib.contextmanager
def announced(what: str, after: float = 2.0) -> Iterator[None]:
    """Print two lines on stderr around work that takes longer than ``after`` seconds, where no terminal shows a bar.

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


@contextlib.contextmanager
def working(what: str, after: float = 1.0) -> Iterator[Callable[[str], None]]:
    """Show a moving line on stderr while work of unknown length goes on, gone when it ends; only on a terminal.

    It appears ``after`` seconds, so that short work costs nothing. What ``with`` gives is called with the step that
    the work is at, for example ``"add, 3 compiled"``.
    """
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    step, lock, lines = [""], threading.Lock(), contextlib.ExitStack()
    timer = threading.Timer(after, lambda: _show_line(what, step, lock, lines))
    timer.daemon = True
    timer.start()
    try:
        yield lambda text: step.__setitem__(0, f": {text}")
    finally:
        timer.cancel()
        with lock, lines:
            step.clear()  # a timer that fires only now has nothing to show


def _show_line(what: str, step: list[str], lock: threading.Lock, lines: contextlib.ExitStack) -> None:
    """Start the line of :func:`working`; leaving ``lines`` ends it."""
    from rich.console import Console as RichConsole
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Step(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(printable(f"{what}{''.join(step)}"))

    with lock:
        if not step:
            return
        # What the work itself prints stays where it goes: with --json stdout is for JSON alone.
        console = RichConsole(stderr=True, highlight=False)
        bar = Progress(
            SpinnerColumn(), Step(), TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False
        )
        bar.add_task("")
        lines.enter_context(bar)


def print_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), folded: Sequence[int] = ()) -> None:
    """Print columns as wide as their longest text; those ``folded`` go over several lines where the terminal is too
    narrow.

    Plain text, written without rich: importing that takes a short command as long as its own work.

    >>> print_table([("NN", "covers"), ("02", "adapters")], right=[0])
    NN  covers
    02  adapters
    """
    import shutil
    import textwrap

    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    over = sum(widths) + 2 * (len(widths) - 1) - room
    while over > 0 and (widest := max(folded, key=lambda i: widths[i], default=None)) is not None:
        if widths[widest] <= 16:
            break
        widths[widest] -= 1
        over -= 1
    for row in rows:
        cells = [
            textwrap.wrap(text, widths[i]) or [""] if i in folded and len(text) > widths[i] else [text]
            for i, text in enumerate(row)
        ]
        for line in range(max(map(len, cells))):
            texts = [cell[line] if line < len(cell) else "" for cell in cells]
            shown_cells = (
                t.rjust(w) if i in right else t.ljust(w) for i, (t, w) in enumerate(zip(texts, widths, strict=True))
            )
            typer.echo("  ".join(shown_cells).rstrip())


_CODES = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class PlainConsole:
    """Prints text that holds names from outside: no markup, and what cannot be printed is shown escaped.

    Written without rich, whose import takes a short command longer than its own work. Styles are for a terminal only,
    and NO_COLOR switches them off.
    """

    def __init__(self, stderr: bool = False) -> None:
        self.stderr = stderr
        stream = sys.stderr if stderr else sys.stdout
        self.styled = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def print(self, text: object = "", style: str | None = None) -> None:
        """Print a text, perhaps of several lines, in one of the styles ``bold``, ``red``, ``green``, ``yellow``,
        ``cyan``.

        >>> PlainConsole().print("gemm\x1b[2J", style="red")
        gemm\\x1b[2J
        """
        words = _visible(str(text))
        if self.styled and style:
            words = f"\x1b[{_CODES[style]}m{words}\x1b[0m"
        typer.echo(words, err=self.stderr)


def _visible(text: str) -> str:
    """Apply :func:`printable` to each line."""
    lines = [line.expandtabs() for line in text.split("\n")]
    return text if text.isprintable() else "\n".join(printable(line, len(line)) for line in lines)
