# SPDX-License-Identifier: MIT
"""`python -m course currency`: what the course says of projects that move, and what to look at again.

The list is docs/currency.md, for people and for this command alike.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import between
from rocm_guide.common.base import GuideError

__all__ = ["Statement", "currency", "read_statements", "to_look_at"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "currency.md"
_ROW = re.compile(
    r"\| (?P<says>.+?) \| notebook (?P<notebook>\d\d) “(?P<words>.+?)” \| (?P<package>[\w.-]+ [\w.+-]+)? ?\| "
    r"(?P<day>\d{4}-\d\d-\d\d) \| (?P<link>https://\S+) \|"
)


@dataclass(frozen=True)
class Statement:
    """A row of the page.

    Attributes:
        says: what the course says, in short.
        notebook, words: where, and the words that stand there.
        package: a distribution and its version, if the statement is of one; else "".
        day: when somebody last looked.
        link: where to look.
    """

    says: str
    notebook: str
    words: str
    package: str
    day: date
    link: str


def read_statements(page: Path = PAGE) -> list[Statement]:
    """Return the rows of ``page``.

    Raises:
        GuideError: a row is not as it should be; the message has its line.
    """
    rows = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("| ") or line.startswith("| What the course says"):
            continue
        found = _ROW.fullmatch(line)
        try:
            if found is None:
                raise ValueError("columns as in the others are wanted")
            day = date.fromisoformat(found["day"])
        except ValueError as e:
            raise GuideError(f"{page.name}, line {number}: {line[:60]}…: {e}") from e
        words = found["words"].replace("\\|", "|")
        rows.append(Statement(found["says"], found["notebook"], words, found["package"] or "", day, found["link"]))
    return rows


def to_look_at(rows: Sequence[Statement], today: date, days: int) -> list[tuple[Statement, str]]:
    """Return (row, why) of each that is more than ``days`` days old, or whose package is here in another version."""
    found = []
    for row in rows:
        why = [f"looked at {(today - row.day).days} days ago"] if (today - row.day).days > days else []
        if row.package:
            name, version = row.package.split()
            try:
                here = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:  # in an environment of its own, or not wanted here
                here = version
            if here.partition("+")[0] != version:
                why.append(f"{name} {here} is installed")
        if why:
            found.append((row, "; ".join(why)))
    return found


def currency(
    days: Annotated[int, typer.Option(help="What was looked at longer ago than this.", callback=between(0))] = 90,
) -> None:
    """List what the course says of projects that move, and that is to be looked at again."""
    rows = read_statements()
    again = to_look_at(rows, datetime.now(UTC).date(), days)
    for row, why in again:
        typer.echo(f"notebook {row.notebook}  {row.says} ({why})\n             {row.link}")
    typer.echo(f"{len(again)} of {len(rows)} statements to look at again")
