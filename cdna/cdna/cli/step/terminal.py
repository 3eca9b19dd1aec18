# SPDX-License-Identifier: MIT
"""The terminal form of a recording: frames of text, and keys on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdna.base import InputError, printable

if TYPE_CHECKING:
    from cdna.step.state import Recording

__all__ = ["frame", "lanes_of_text", "play"]

_AROUND = 5
_NAMES = {106: "vcc_lo", 107: "vcc_hi", 124: "m0"}


def lanes_of_text(text: str) -> list[int]:
    """Return lanes as ``0-3,63``.

    >>> lanes_of_text("0-2,63")
    [0, 1, 2, 63]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not (first.isdecimal() and (last.isdecimal() if dash else not last))
            or not 0 <= int(first) <= int(last or first) <= 63
        ):
            raise InputError(f"--lanes {printable(text, 60)}: lanes are 0 to 63, as in 0-3,63")
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def _listing(r: Recording, at: int) -> Text:
    out = Text()
    for o in r.code[max(0, at - _AROUND) : at + _AROUND + 1]:
        here = o.index == at
        place = printable(o.source.rpartition(":")[0], 40)
        out.append(f"{'->' if here else '  '} {o.line:>5}  {printable(o.text, 90):<58}", "bold yellow" if here else "")
        out.append(f" {place}\n", "dim")
    return out


def _vectors(r: Recording, n: int, lanes: list[int]) -> Table:
    now = r.state(n)
    changed = set(r.steps[n - 1].vectors) if n else set()
    op = r.code[r.steps[n].index] if n < len(r.steps) else None
    touched = {*op.reads, *op.writes, *op.lane_reads} if op else set()
    table = Table("register", *(f"lane {lane}" for lane in lanes), box=None, pad_edge=False)
    for number in sorted(changed | touched & set(now.vectors)):
        name = f"v{number}" if number < 256 else f"a{number - 256}"
        flying = any(name in f.registers for f in now.loading)
        cells = []
        for lane in lanes:
            defined = now.valid[number] >> lane & 1
            cells.append(f"0x{int(now.vectors[number][lane]):08x}" if defined else "loading" if flying else "undefined")
        table.add_row(Text(name, "green" if number in changed else ""), *cells)
    return table


def frame(r: Recording, n: int, lanes: list[int]) -> RenderableType:
    """Show the wave before step ``n``: what comes next, and what the step before has changed."""
    now = r.state(n)
    ended = n >= len(r.steps)
    at = r.steps[n - 1].index if ended and n else now.pc
    head = Text(f"{r.name}, workgroup {r.group}, wave {r.wave}: step {n} of {len(r.steps)}", "bold")
    if ended:
        head.append("; " + (printable(r.error, 400) or r.cut or "the wave has ended"), "red")
    parts: list[RenderableType] = [head, _listing(r, at)]
    if not ended and r.source(n):
        parts.append(Text(f"source  {printable(r.source(n), 110)}", "blue"))
    parts.append(Text(f"exec    {now.exec:016x}  {now.exec.bit_count()} of 64 lanes; scc {int(now.scc)}"))
    flight = [
        f"{f.op} of line {f.line} -> {' '.join(f.registers) or 'memory'} ({f.counter}, {f.lanes} lanes)"
        for f in now.loading
    ]
    parts += [Text(f"flight  {text}") for text in flight or ["nothing"]]
    if n and (scalars := r.steps[n - 1].scalars):
        text = "  ".join(
            f"{_NAMES.get(k, f's{k}')}={v if not isinstance(v, int) else hex(v)}" for k, v in scalars.items()
        )
        parts.append(Text(f"scalars {text}", "green"))
    if n and (lds := r.steps[n - 1].lds):
        for where, size, write in lds:
            verb, last = "write" if write else "read", int(where.max()) + size - 1
            parts.append(
                Text(f"LDS     {verb} of {size} bytes by {len(where)} lanes, bytes {int(where.min())} to {last}")
            )
    return Group(*parts, _vectors(r, n, lanes), Text(""))


def play(
    r: Recording, n: int, lanes: list[int], console: Console, key: Callable[[], str], ask: Callable[[str], str]
) -> None:
    """Step by keys: n next, b back, g to a line, q quit (and the arrow keys)."""
    note = ""
    while True:
        console.clear()
        console.print(frame(r, n, lanes))
        console.print(Text(f"n next  b back  g to a line  q quit   {note}", "dim"))
        pressed, note = key(), ""
        if pressed in ("q", "\x03", "\x04", ""):
            return
        if pressed in ("n", " ", "\x1b[C", "\r", "\n"):
            n = min(n + 1, len(r.steps))
        elif pressed in ("b", "\x1b[D"):
            n = max(n - 1, 0)
        elif pressed == "g":
            text = ask("line").strip()
            try:
                n = r.find(int(text) if text.isdecimal() and len(text) < 10 else -1, after=n)
            except InputError as e:
                note = printable(str(e), 100)
