# SPDX-License-Identifier: MIT
"""`rocm-guide script 02`: the cells of a notebook that are to be taken away, as one script that needs no course."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

from rocm_guide.cli.lessons import catalogue, cell_source, find_lessons, read_notebook
from rocm_guide.common.base import GuideError

__all__ = ["script_of"]

#: What only the course knows, in the comment beside a parameter: "a hub id or a folder (tiny: the course's own)".
_OURS = re.compile(r" ?\(tiny\b[^)]*\)")
#: What a 0 stands for, at the end of such a comment: "learning rate; 0: 2e-4".
_ZERO = re.compile(r"; 0: (\S+)$")
#: torchrun would take --run for the start of its own --run-path, even behind the script's name.
_CALLED = {"RUN": "out"}
_WIDTH = 5  # names in one line of assignments


def script_of(notebook: str) -> str:
    """Return the cells tagged ``take`` of a notebook, in order, below a parser of the parameters that they read.

    A parameter becomes an option of its name with its default, and the comment beside it becomes the help. A default
    of "tiny" becomes a required option: the tiny model is the course's. Where a comment ends in "; 0: 2e-4", that is
    the default.

    Raises:
        GuideError: there is no such notebook, or it has no such cells; the message names those that have.
    """
    lessons = catalogue()
    (lesson,) = find_lessons([notebook], lessons)
    nb = read_notebook(lesson.path)
    cells = _tagged(nb, "take")
    if not cells:
        having = ", ".join(x.number for x in lessons if _tagged(read_notebook(x.path), "take")) or "none yet"
        raise GuideError(f"notebook {lesson.number}: has no cells to take away; these have: {having}")
    imports: dict[str, set[str]] = {"import argparse": set()}
    bodies, read = [], set()
    for source in cells:
        tree = ast.parse(source)
        read |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        lines = source.splitlines()
        for node in reversed(tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = {ast.unparse(name) for name in node.names}
                if isinstance(node, ast.ImportFrom):
                    imports.setdefault(f"from {node.module} import", set()).update(named)
                else:
                    imports |= {f"import {name}": set() for name in named}
                del lines[node.lineno - 1 : node.end_lineno]
        bodies.append("\n".join(lines).strip())
    options = [option for option in _parameters(nb) if option[0] in read]
    names = [name for name, *_ in options]
    fives = [names[i : i + _WIDTH] for i in range(0, len(names), _WIDTH)]
    head = f"{lesson.title}, as notebook {lesson.number} of the ROCm LLM Guide does it."
    parts = [
        f'# SPDX-License-Identifier: MIT\n"""{head}"""',
        "\n".join(f"{line} {', '.join(sorted(imports[line]))}".rstrip() for line in sorted(imports, key=_order)),
        "\n".join(
            [
                "parser = argparse.ArgumentParser(description=__doc__)",
                *(_option(*option) for option in options),
                "args = parser.parse_args()",
                *(f"{', '.join(five)} = {', '.join(f'args.{_called(name)}' for name in five)}" for five in fives),
            ]
        ),
        *(body for body in bodies if body),
    ]
    return "\n\n".join(parts) + "\n"


def _called(name: str) -> str:
    return _CALLED.get(name, name.lower())


def _tagged(nb: dict[str, Any], tag: str) -> list[str]:
    """Return the sources of the code cells with this tag."""
    cells = (c for c in nb["cells"] if c["cell_type"] == "code" and tag in c.get("metadata", {}).get("tags", []))
    return [cell_source(cell).strip() for cell in cells]


def _order(line: str) -> tuple[bool, bool, str]:
    """Return where an import belongs: the standard library's first, whole modules before names of them."""
    standard = line.split()[1].partition(".")[0] in sys.stdlib_module_names
    return not standard, line.startswith("from"), line


def _parameters(nb: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield name, default and comment of each assignment of the parameters cell."""
    for source in _tagged(nb, "parameters"):
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, ast.literal_eval(node.value), comments.get(node.lineno, "")


def _option(name: str, default: Any, comment: str) -> str:
    """Return the line that adds a parameter to the parser."""
    words, kind = _OURS.sub("", comment), type(default)
    if stands := _ZERO.search(words):
        words, default = words[: stands.start()], kind(float(stands[1]))
    more = [f"default={json.dumps(default)}"]
    if default == "tiny":
        more = ["required=True"]
    elif kind is bool:
        more = ["default=True", "action=argparse.BooleanOptionalAction"] if default else ['action="store_true"']
    elif kind is list:
        kinds = {type(value).__name__ for value in default} - {"str"}
        more += ['nargs="+"', *(f"type={name}" for name in sorted(kinds))]
    elif kind is not str:
        more.append(f"type={kind.__name__}")
    if words:  # a single % would be argparse's
        more.append(f"help={json.dumps(words.replace('%', '%%'), ensure_ascii=False)}")
    line = f'parser.add_argument("--{_called(name)}", {", ".join(more)})'
    return line if len(line) <= 120 else line.replace(", help=", ",\n    help=")
