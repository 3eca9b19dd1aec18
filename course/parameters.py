# SPDX-License-Identifier: MIT
"""Parameters given on the command line, checked against the notebooks' own parameters cells before anything runs."""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rocm_guide.cli.lessons import Lesson, cell_source, read_notebook
from rocm_guide.common.base import GuideError

__all__ = []


#: What SCALE can be where its comment does not list its values; "full" only where the comment mentions it.
_SCALES = ("auto", "tiny", "full")


@dataclass(frozen=True)
class Parameter:
    """One knob of a notebook: its name, its default, the accepted values if its comment lists them, the least value."""

    name: str
    default: Any
    choices: tuple[Any, ...] = ()
    least: float | None = None

    def check(self, value: Any) -> str:
        """Return what is accepted instead of ``value``; empty if it is fine.

        >>> Parameter("RANK", 16, least=1).check(0)
        'at least 1'
        """
        if self.choices and value not in self.choices:
            return ", ".join(map(str, self.choices))
        if self.least is not None and isinstance(value, int | float) and not value >= self.least:
            return f"at least {self.least}"
        if isinstance(self.default, float) and self.default > 0 and not 0 < value < math.inf:
            return "a finite number above 0"
        return ""


def parameters_of(nb: dict[str, Any]) -> dict[str, Parameter]:
    """Return the assignments in the cell tagged ``parameters``.

    A comment ``# one of: A, B`` on the line of an assignment limits the values, ``# at least N`` sets the least. Where
    neither stands, a whole number that is positive stays positive, one that is 0 does not become negative, and SCALE
    is auto or tiny (or full, where its comment says so).

    >>> cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]},
    ...         "source": "RANK = 16\\nSCALE = 'auto'  # one of: auto, tiny"}
    >>> parameters_of({"cells": [cell]})["SCALE"]
    Parameter(name='SCALE', default='auto', choices=('auto', 'tiny'), least=None)
    """
    found = {}
    for cell in nb["cells"]:
        if "parameters" not in cell.get("metadata", {}).get("tags", []):
            continue
        source = cell_source(cell)
        comments = {
            t.start[0]: t.string.lstrip("# ")
            for t in tokenize.generate_tokens(io.StringIO(source).readline)
            if t.type == tokenize.COMMENT
        }
        for node in ast.parse(source).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not isinstance(target, ast.Name):
                continue
            try:
                default = ast.literal_eval(node.value)
            except ValueError:
                continue  # computed from others: not a knob
            comment = comments.get(node.end_lineno or node.lineno, "")
            found[target.id] = Parameter(target.id, default, *_limits(target.id, default, comment))
    return found


def _limits(name: str, default: Any, comment: str) -> tuple[tuple[Any, ...], float | None]:
    """Return the accepted values and the least value of a knob, from its comment and its default."""
    if listed := re.match(r"one of:?\s*(.+)", comment):
        words = [w.strip(" \"'.") for w in re.split(r",\s*|\s+or\s+", listed.group(1))]
        return tuple(parse_value(name, w, default) for w in words if w), None
    if name == "SCALE":
        return tuple(w for w in _SCALES if w != "full" or re.search(r"\bfull\b", comment)), None
    if said := re.match(r"at least (\d+)", comment):
        return (), int(said.group(1))
    if isinstance(default, int) and not isinstance(default, bool) and default >= 0:
        return (), min(default, 1)
    return (), None


def parse_value(name: str, text: str, default: Any) -> Any:
    """Read ``text`` as the type that ``default`` has; of a list of words also words with commas between them.

    Raises:
        GuideError: it is of another type.

    >>> parse_value("RANK", "32", 16), parse_value("LR", "1e-3", 0.1), parse_value("MODEL", "1", "tiny")
    (32, 0.001, '1')
    >>> parse_value("TARGETS", "all-linear", ["q_proj"]), parse_value("TARGETS", "['o_proj']", ["q_proj"])
    (['all-linear'], ['o_proj'])
    >>> parse_value("RANK", "many", 16)
    Traceback (most recent call last):
        ...
    cdna.base.InputError: parameter RANK=many: not an int; its default is 16
    """
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise GuideError(f"parameter {name}={text}: neither true nor false; its default is {default}")
        return words[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(default, list) and isinstance(value, str) and all(isinstance(d, str) for d in default):
        value = [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if default is not None and type(value) is not type(default):
        kind = type(default).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        raise GuideError(f"parameter {name}={text}: not {article} {kind}; its default is {default!r}")
    return value


def parameters_for(lessons: Iterable[Lesson], given: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the parsed parameters that each lesson (by number) takes.

    A parameter goes to the notebooks that have it.

    Raises:
        GuideError: no chosen notebook has the name, or it does not accept the value.
    """
    known = {x.number: parameters_of(read_notebook(x.path)) for x in lessons}
    result: dict[str, dict[str, Any]] = {number: {} for number in known}
    for name, text in given:
        takers = {number: p[name] for number, p in known.items() if name in p}
        if not takers:
            names = sorted({n for p in known.values() for n in p})
            raise GuideError(f"parameter {name}: no chosen notebook has it; they have {', '.join(names) or 'none'}")
        for number, parameter in takers.items():
            value = parse_value(name, text, parameter.default)
            if accepted := parameter.check(value):
                raise GuideError(f"parameter {name}={text}: notebook {number} accepts {accepted}")
            result[number][name] = value
    return result
