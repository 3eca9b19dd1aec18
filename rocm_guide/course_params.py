# SPDX-License-Identifier: MIT
"""Parameters given on the command line, checked against the notebooks' own parameters cells before anything runs."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .base import GuideError
from .course import Lesson, cell_source, read_notebook

__all__ = ["Parameter", "parameters_for", "parameters_of", "parse_value"]


@dataclass(frozen=True)
class Parameter:
    """One knob of a notebook: its name, its default, and the accepted values if its comment lists them."""

    name: str
    default: Any
    choices: tuple[Any, ...] = ()


def parameters_of(nb: dict[str, Any]) -> dict[str, Parameter]:
    """The assignments in the cell tagged ``parameters``.

    A comment ``# one of: A, B`` on the line of an assignment limits the values.

    >>> cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]},
    ...         "source": "RANK = 16\\nSCALE = 'auto'  # one of: auto, tiny"}
    >>> parameters_of({"cells": [cell]})["SCALE"]
    Parameter(name='SCALE', default='auto', choices=('auto', 'tiny'))
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
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if not isinstance(target, ast.Name) or getattr(node, "value", None) is None:
                continue
            try:
                default = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                continue  # computed from others: not a knob
            listed = re.match(r"one of:?\s*(.+)", comments.get(node.end_lineno, ""))
            words = re.split(r",\s*|\s+or\s+", listed.group(1)) if listed else []
            choices = tuple(parse_value(target.id, w.strip(" \"'."), default) for w in words if w.strip(" \"'."))
            found[target.id] = Parameter(target.id, default, choices)
    return found


def parse_value(name: str, text: str, default: Any) -> Any:
    """Read ``text`` as the type that ``default`` has.

    Raises:
        GuideError: it is of another type.

    >>> parse_value("RANK", "32", 16), parse_value("LR", "1e-3", 0.1), parse_value("MODEL", "1", "tiny")
    (32, 0.001, '1')
    >>> parse_value("RANK", "many", 16)
    Traceback (most recent call last):
        ...
    rocm_guide.base.GuideError: parameter RANK=many: not an int; its default is 16
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
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if default is not None and type(value) is not type(default):
        kind = type(default).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        raise GuideError(f"parameter {name}={text}: not {article} {kind}; its default is {default!r}")
    return value


def parameters_for(lessons: Iterable[Lesson], given: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """For each lesson (by number) the parsed parameters that it takes.

    A parameter goes to the notebooks that have it.

    Raises:
        GuideError: no chosen notebook has the name, or the value has the wrong type or is not among the choices.
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
            if parameter.choices and value not in parameter.choices:
                accepted = ", ".join(map(str, parameter.choices))
                raise GuideError(f"parameter {name}={text}: notebook {number} accepts {accepted}")
            result[number][name] = value
    return result
