# SPDX-License-Identifier: MIT
"""The symptom tables of all notebooks and of docs/troubleshooting.md, searched by the text of an error."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_guide.cli.lessons import catalogue, cell_source, read_notebook

__all__ = ["Symptom", "all_symptoms", "explain"]

_HEAD = re.compile(r"^\|\s*\**symptom\**\s*\|\s*\**(?:likely )?cause\**\s*\|\s*\**fix\**\s*\|\s*$", re.I)
_CELL = re.compile(r"(?<!\\)\|")
# What a symptom quotes of an error: code or a quotation, in pieces where a name or number was left out.
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")
_GAP = re.compile(r"…|\.\.\.")
_WORD = re.compile(r"[a-z_][a-z0-9_]{2,}")
#: The share of a symptom's words, rare ones counting more, that have to stand in the text.
ENOUGH = 0.6
#: Characters of a quoted piece that are evidence by themselves; shorter ones stand in many texts.
LONG_ENOUGH = 12


@dataclass(frozen=True)
class Symptom:
    """A row of a table: ``where`` is the notebook or page that it stands in."""

    where: str
    symptom: str
    cause: str
    fix: str


def rows_of(text: str, where: str) -> Iterator[Symptom]:
    r"""Yield the rows of the symptom tables in a markdown text.

    >>> [row.fix for row in rows_of("| Symptom | Cause | Fix |\n|---|---|---|\n| `a \\| b` | c | d |\n", "x")]
    ['d']
    """
    inside = False
    for line in text.splitlines():
        if _HEAD.match(line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
            if len(cells) == 3:
                yield Symptom(where, *cells)


def all_symptoms(folder: Path | None = None) -> list[Symptom]:
    """Return every row of the notebooks' tables, then those of docs/troubleshooting.md where a clone has it."""
    found: list[Symptom] = []
    page = None
    for lesson in catalogue(folder):
        page = lesson.path.parent.parent / "docs" / "troubleshooting.md"
        for cell in read_notebook(lesson.path)["cells"]:
            if cell["cell_type"] == "markdown":
                found += rows_of(cell_source(cell), f"notebook {lesson.number}")
    if page is not None and page.is_file():
        found += rows_of(page.read_text(encoding="utf-8"), "docs/troubleshooting.md")
    return found


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("`", "").replace('"', "").replace("'", "")).lower()


def explain(text: str, symptoms: Sequence[Symptom], most: int = 3) -> list[Symptom]:
    """Return the rows that fit an error, the best first; none where too little of any symptom stands in the text.

    A piece that a symptom quotes and that stands in the text decides; without one, the share of its words does.

    Args:
        text: what was printed, with as much around it as there is.

    >>> rows = [Symptom("a", "`out of resource: shared memory`", "", ""), Symptom("b", "the port is in use", "", "")]
    >>> [row.where for row in explain("OutOfResources: out of resource: shared memory, Required: 9", rows)]
    ['a']
    >>> explain("all is well", rows)
    []
    """
    said = _plain(text).strip()
    words = set(_WORD.findall(said))
    known = [set(_WORD.findall(_plain(row.symptom))) for row in symptoms]
    count = Counter(word for own in known for word in own)
    weight = {word: math.log(1 + len(known) / n) for word, n in count.items()}
    scored = []
    for n, (row, own) in enumerate(zip(symptoms, known, strict=True)):
        quoted = ["".join(pair) for pair in _QUOTED.findall(row.symptom)]
        pieces = [p.strip() for q in quoted for p in _GAP.split(_plain(q))]
        literal = sum(len(p) for p in pieces if len(p) >= LONG_ENOUGH and p in said)
        if len(said) >= LONG_ENOUGH and any(said in p for p in pieces):
            literal = len(said)  # a piece of what is quoted
        total = sum(weight[w] for w in own)
        share = sum(weight[w] for w in own & words) / total if total and len(own) > 1 else 0.0
        if literal or share >= ENOUGH:
            scored.append((-literal, -share, n, row))
    return [row for *_, row in sorted(scored, key=lambda s: s[:3])[:most]]
