# SPDX-License-Identifier: MIT
"""A kernel's source as the compiler sees it once its constants are known: the branches that they decide are gone.

A kernel for every case has a branch for every case, and a reader who wants to follow one of them reads all. Triton
itself specializes: an argument that is ``None`` and a ``tl.constexpr`` decide branches when the kernel is compiled.
This does the same with the text, comments and all, so that the case at hand can be read from top to bottom.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from cdna.base import InputError

__all__ = ["SpecializeError", "specialized_source"]

_UNKNOWN = object()
#: From which character to which the text is replaced, and by what.
_Edit = tuple[int, int, str]


class SpecializeError(InputError):
    """The source cannot be read, or a name is not one that the kernel reads."""


def specialized_source(kernel: Any, *, docstring: bool = True, **known: Any) -> str:
    """Return the source of ``kernel`` with every branch decided that the values of ``known`` decide.

    Args:
        kernel: a function, or what ``triton.jit`` makes of one.
        docstring: False leaves the function's docstring out.
        known: values of parameters (a ``tl.constexpr``, or ``None`` for a tensor that is not there) or of local names.
            A parameter that only other branches read leaves the signature (a call to it still names it), an assignment
            that repeats a known value leaves the body, and comments that speak to the linter go.

    Returns:
        Python source, dedented; statements that no value decides stand as they were written.

    Raises:
        SpecializeError: the source is not at hand, or the kernel has no such name.

    >>> def scaled(x, FAST):
    ...     if FAST:
    ...         x *= 2  # one instruction
    ...     else:
    ...         x = x + x
    ...     return x
    >>> print(specialized_source(scaled, FAST=True))
    def scaled(x):
        x *= 2  # one instruction
        return x
    """
    function = getattr(kernel, "fn", kernel)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as e:
        raise SpecializeError(f"{getattr(function, '__name__', function)}: its source is not at hand ({e})") from None
    text = re.sub(r" *# (noqa|fmt: ).*", "", text)
    names = {p.arg for p in _head(text).args.args} | _names(_head(text))
    if strange := sorted(set(known) - names):
        raise SpecializeError(f"{strange[0]}: {function.__name__} has no such name; it has {', '.join(sorted(names))}")
    while (edit := next(_edits(text, known, docstring), None)) is not None:
        first, last, new = edit
        text = text[:first] + new + text[last:]
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def _head(text: str) -> ast.FunctionDef:
    return next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _edits(text: str, known: dict[str, Any], docstring: bool) -> Iterator[_Edit]:
    """Find what is still to be decided, one change of the text at a time: statements, then expressions, then
    parameters.
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    encoded = [line.encode() for line in text.splitlines()]

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(encoded[line - 1][:column].decode())

    def lines(first: ast.stmt, last: ast.stmt) -> tuple[int, int]:
        return starts[first.lineno - 1], starts[last.end_lineno or last.lineno]

    function = _head(text)
    if not docstring and ast.get_docstring(function) is not None and len(function.body) > 1:
        yield (*lines(function.body[0], function.body[0]), "")
    for block in _blocks(function):
        for i, statement in enumerate(block):
            if isinstance(statement, ast.If) and (taken := _value(statement.test, known)) is not _UNKNOWN:
                live = statement.body if taken else statement.orelse
                yield (*lines(statement, statement), _branch(text, starts, statement, live))
            if isinstance(statement, ast.Assign) and _repeats(statement, known):
                yield (*lines(statement, statement), "")
            if isinstance(statement, ast.Return) and i + 1 < len(block):
                yield (*lines(block[i + 1], block[-1]), "")
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp) and (taken := _value(node.test, known)) is not _UNKNOWN:
            chosen = node.body if taken else node.orelse
            new = ast.get_source_segment(text, chosen) or ast.unparse(chosen)
            if not isinstance(chosen, ast.Name | ast.Call | ast.Constant | ast.Attribute | ast.Subscript):
                new = f"({new})"
            yield at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0), new
    still = _names(function)
    for parameter in function.args.args:
        if parameter.arg in known and parameter.arg not in still:
            first = at(parameter.lineno, parameter.col_offset)
            # Its annotation, default and comma go with it, and its line if it had one of its own.
            rest = re.match(r"[^,()\n]*(\([^()]*\))?[^,()\n]*,?[ ]*", text[first:])
            last = first + (rest.end() if rest else 0)
            own_line = not text[starts[parameter.lineno - 1] : first].strip() and text[last : last + 1] == "\n"
            if text[last : last + 1] == ")":
                first = len(text[:first].rstrip(", "))
            yield (starts[parameter.lineno - 1], last + 1, "") if own_line else (first, last, "")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Return every list of statements inside ``node``, outer ones first."""
    for each in ast.walk(node):
        for name in ("body", "orelse"):
            block = getattr(each, name, None)
            if isinstance(block, list) and block:
                yield block


def _branch(text: str, starts: list[int], statement: ast.If, live: list[ast.stmt]) -> str:
    """Return the lines of the branch that is taken, with the comments before it, where ``statement`` stood."""
    if not live:
        return ""
    # From the line after `if …:` or `else:`, so that a comment at the head of the branch stays.
    before = statement.test.end_lineno if live is statement.body else statement.body[-1].end_lineno
    first = before or statement.lineno
    if live is statement.orelse and not _is_elif(statement, live):
        while not text[starts[first] : starts[first + 1]].lstrip().startswith("else"):
            first += 1
        first += 1
    branch = text[starts[first] : starts[live[-1].end_lineno or 0]]
    if live is statement.orelse and _is_elif(statement, live):
        return re.sub(r"^( *)elif", r"\1if", branch, count=1, flags=re.M)
    return textwrap.indent(textwrap.dedent(branch), " " * statement.col_offset)


def _is_elif(statement: ast.If, live: list[ast.stmt]) -> bool:
    return live[0].col_offset == statement.col_offset


def _repeats(statement: ast.Assign, known: dict[str, Any]) -> bool:
    """Return whether a known name is given the value that it is known to have."""
    target = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(target, ast.Name) or target.id not in known:
        return False
    value = _value(statement.value, known)
    return value is not _UNKNOWN and value is known[target.id]


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """Evaluate an expression, as far as the known names say; part of `and` and `or` may be enough."""
    if isinstance(node, ast.BoolOp):
        stop = isinstance(node.op, ast.Or)
        values = [_value(v, known) for v in node.values]
        if any(v is not _UNKNOWN and bool(v) is stop for v in values):
            return stop
        return _UNKNOWN if any(v is _UNKNOWN for v in values) else not stop
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = _value(node.operand, known)
        return _UNKNOWN if value is _UNKNOWN else not value
    if not _names(node) <= set(known):
        return _UNKNOWN
    try:
        return eval(compile(ast.Expression(node), "<constant>", "eval"), {"__builtins__": {}}, dict(known))
    except (AttributeError, NameError, TypeError):
        return _UNKNOWN  # a method that the given value does not have
