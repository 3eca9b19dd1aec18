# SPDX-License-Identifier: MIT
"""Alt texts of a notebook's plots: read from the code that drew them, for readers who do not see them."""

from __future__ import annotations

import ast
import hashlib
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["alt_texts"]

_KINDS = {
    "bars": "Bar chart",
    "bar": "Bar chart",
    "barh": "Bar chart",
    "stacked_bars": "Stacked bar chart",
    "lines": "Line chart",
    "plot": "Line chart",
    "scatter": "Scatter plot",
    "hist": "Histogram",
    "imshow": "Map of values",
    "roofline": "Roofline plot",
    "staircase": "Staircase plot",
    "timeline": "Timeline",
    "strip": "Strip plot",
}
_BARE = {f"{kind}." for kind in _KINDS.values()}
_AXES = ("unit", "x", "y", "xlabel", "ylabel")
_PACKAGE = Path(__file__).parents[2]


def alt_texts(nb: dict[str, Any]) -> dict[str, str]:
    """Return a sentence or two for every stored picture of a notebook.

    The kind of plot, its titles and its axes come from the calls in the cell. A drawing made by a function of the
    library is described by the first sentence of that function's docstring. Where neither says anything, the
    section's heading does.

    Args:
        nb: the notebook as JSON.

    Returns:
        SHA-256 of the picture's bytes, in hexadecimal -> its text.
    """
    found: dict[str, str] = {}
    heading = ""
    strings: dict[str, str] = {}
    imports: dict[str, str] = {}
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heads = re.findall(r"^#{1,4} +(.+)$", source, re.M)
            heading = re.sub(r"[*`]", "", heads[-1]) if heads else heading
            continue
        if cell["cell_type"] != "code":
            continue
        try:
            tree = ast.parse(re.sub(r"^\s*%.*$", "", source, flags=re.M))
        except SyntaxError:
            tree = ast.parse("")
        _remember(tree, strings, imports)
        pictures = [p for o in cell.get("outputs", []) if (p := o.get("data", {}).get("image/png"))]
        if not pictures:
            continue
        words = _describe(tree, len(pictures), strings, imports)
        for picture, text in zip(pictures, words, strict=True):
            digest = hashlib.sha256(b64decode("".join(picture))).hexdigest()
            place = f"Plot of the section “{heading}”."
            found[digest] = f"{text} {place}" if text in _BARE else text or place
    return found


def _remember(tree: ast.Module, strings: dict[str, str], imports: dict[str, str]) -> None:
    """Note the names that stand for a text, those that come from the library, and where a notebook's own functions take
    their title, for this cell and those after it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if text := _text(node.value, strings):
                strings[node.targets[0].id] = text
        elif isinstance(node, ast.FunctionDef) and "title" in (names := [a.arg for a in node.args.args]):
            strings[f"def {node.name}"] = str(names.index("title"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocm_guide"):
            imports.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})


def _text(node: ast.expr | None, strings: dict[str, str]) -> str:
    """Return the text of an expression as far as it is known without running it; ``…`` for what is not.

    >>> _text(ast.parse('f"{name}: {n} rows"', mode="eval").body, {"name": "tiny"})
    'tiny: … rows'
    """
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str | int | float) else ""
    if isinstance(node, ast.Name):
        return strings.get(node.id, "")
    if isinstance(node, ast.JoinedStr):
        parts = [_text(v.value if isinstance(v, ast.FormattedValue) else v, strings) or "…" for v in node.values]
        return re.sub(r"(… ?){2,}", "… ", "".join(parts)).strip()
    return ""


@dataclass
class _Figure:
    """The words of the calls for one figure."""

    kinds: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    axes: list[str] = field(default_factory=list)

    def words(self) -> str:
        kinds, titles, axes = (list(dict.fromkeys(x)) for x in (self.kinds, self.titles, self.axes))
        start = " and ".join(kinds[:2])
        said = "; ".join(titles)
        shown = f"{start}: {said}" if start and said else start or said
        axes_said = f" Axes: {', '.join(axes)}." if axes else ""
        stop = "" if shown.endswith(("?", "!")) else "."
        return re.sub(r"\s+", " ", f"{shown.rstrip('.')}{stop}{axes_said}") if shown or axes else ""


def _describe(tree: ast.Module, count: int, strings: dict[str, str], imports: dict[str, str]) -> list[str]:
    """Return one text for each of the ``count`` figures of a cell."""
    units, shown = [_Figure()], [_Figure()]
    for call in _calls(tree):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "show":
            shown.append(_Figure())
            continue
        one = _of_call(call, name, strings, imports)
        if one.kinds or one.titles:
            shown[-1].kinds += one.kinds
            shown[-1].titles += one.titles
            shown[-1].axes += one.axes
            if one.titles:
                units.append(one)
    units, shown = ([f for f in each if f.words()] for each in (units, shown))
    for each in (shown, units):
        if len(each) == count:
            return [f.words() for f in each]
    whole = _Figure(*([x for f in shown for x in getattr(f, part)] for part in ("kinds", "titles", "axes"))).words()
    return [f"{whole} Picture {i} of {count}." if whole and count > 1 else whole for i in range(1, count + 1)]


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls in the order in which they stand."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    yield from sorted(found, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))


def _of_call(call: ast.Call, name: str, strings: dict[str, str], imports: dict[str, str]) -> _Figure:
    # A bare name draws if it is the course's own; str.strip and a simulated timeline do not.
    attribute = isinstance(call.func, ast.Attribute) and name not in ("strip", "lines")
    draws = attribute or "plots" in imports.get(name, "")
    one = _Figure(kinds=[_KINDS[name]] if name in _KINDS and draws else [])
    given = {k.arg: _text(k.value, strings) for k in call.keywords if k.arg}
    first = _text(call.args[0], strings) if call.args else ""
    if name in ("suptitle", "set_title", "title") and "loc" not in given:
        one.titles.append(first)
    elif name in ("set_xlabel", "set_ylabel", "xlabel", "ylabel"):
        one.axes.append(first)
    elif "title" in given:
        one.titles.append(given["title"])
    elif len(call.args) > (place := int(strings.get(f"def {name}", len(call.args)))):
        one.titles.append(_text(call.args[place], strings))
    if name in _KINDS or name == "set":
        one.axes += [given[a] for a in _AXES if given.get(a)]
    if name in imports and not one.titles and re.match(r"(draw|plot|show)_", name):
        # "Draw one wave: ..." says of the picture: "One wave: ...".
        said = _first_sentence(imports[name])
        one.titles.append(re.sub("^(?:Draw|Plot|Show) (.)", lambda m: m[1].upper(), said))
    one.titles = [t for t in one.titles if t.strip("… ")]
    return one


@cache
def _first_sentence(dotted: str) -> str:
    """Return the first sentence of a library function's docstring, found in the sources without importing them.

    >>> _first_sentence("rocm_guide.common.plots.house_style")
    "Set matplotlib's defaults for the course: readable at notebook width, same look everywhere."
    """
    module, _, name = dotted.rpartition(".")
    path = _PACKAGE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return ""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            text = re.sub(r"\s+", " ", ast.get_docstring(node) or "")
            return re.split(r"(?<=[.:]) (?=[A-Z])", re.sub(r":\w+:`~?([^`]*)`|`+", r"\1", text))[0]
        if isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            return _first_sentence(f"{node.module}.{name}")
    return ""
