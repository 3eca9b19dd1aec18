# SPDX-License-Identifier: MIT
"""Parts of the site that Sphinx has no setting for: formulae as MathML, and pages that ask nothing of the network."""

from __future__ import annotations

import html
import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.writers.html5 import HTML5Translator

from docs.site.alt_text import alt_texts

__all__ = ["setup"]


def _math(latex: str, display: str) -> str:
    markup = str(convert(" ".join(latex.split()), display=display))
    return markup.replace("<math ", f'<math aria-label="{html.escape(latex, quote=True)}" ', 1)


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_math(node.astext(), "inline"))
    raise nodes.SkipNode


def _display(self: HTML5Translator, node: nodes.math_block) -> None:
    # Not the class "math": the theme aligns that for MathJax. It scrolls by itself where a phone is too narrow.
    self.body.append(f'<div class="formula" tabindex="0">{_math(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def _leave(self: HTML5Translator, node: nodes.Element) -> None:
    """Do nothing at a formula's end: both of the above skip it."""


def _describe_plots(app: Sphinx, doctree: nodes.document) -> None:
    """Give alt texts to a notebook's pictures, which myst-nb names by the hash of their bytes."""
    source = Path(app.srcdir, f"{app.env.docname}.ipynb")
    if not source.is_file():
        return
    texts = alt_texts(json.loads(source.read_text(encoding="utf-8")))
    for picture in doctree.findall(nodes.image):
        if text := texts.get(Path(picture["uri"]).stem):
            picture["alt"] = text


def _plain_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring written for people into reStructuredText:
    `code` is code, a bar is a bar, and a table in Markdown stays as it is.
    """
    found: list[str] = []
    for line in lines:
        if re.match(r"\s*\|.*\|\s*$", line):
            indent = line[: len(line) - len(line.lstrip())]
            if not (found and found[-1].startswith(f"{indent}   |")):
                found += ["", f"{indent}.. code-block:: text", ""]
            found.append(f"{indent}   {line.strip()}")
            continue
        if found and re.match(r"\s+\|", found[-1]):
            found.append("")
        if not re.match(r"\s*(>>>|\.\.\. )", line):
            parts = re.split(r"(``.+?``|:\w+:`[^`]+`)", line)
            # A literal may go on in the next line: then this one is left alone.
            if not any("``" in p for p in parts[::2]):
                parts[::2] = [re.sub(r"(?<!`)`([^`\n]+)`(?![`_])", r"``\1``", p) for p in parts[::2]]
                parts = re.split(r"(``.+?``|:\w+:`[^`]+`)", "".join(parts))
                parts[::2] = [p.replace("|", "\\|") for p in parts[::2]]
            line = "".join(parts)
        found.append(line)
    lines[:] = found


class _OneTarget(PythonDomain):
    """A domain of Python that takes one target, the nearest,
    where several classes bear the short name in a signature.
    """

    def find_obj(self, env: Any, modname: Any, *arguments: Any, **options: Any) -> list[tuple[str, Any]]:
        """Find as the base class does, but never more than one."""
        found = super().find_obj(env, modname, *arguments, **options)
        if len(found) < 2:
            return found
        here = (modname or "").split(".")
        pairs = (zip(name.split("."), here, strict=False) for name, _ in found)
        shared = [sum(1 for _ in takewhile(lambda p: p[0] == p[1], pair)) for pair in pairs]
        nearest = [f for f, n in zip(found, shared, strict=True) if n == max(shared)]
        return nearest if len(nearest) == 1 else []


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts of this module to Sphinx, which finds it in conf.py."""
    app.add_html_math_renderer("mathml", (_inline, _leave), (_display, _leave))
    app.add_domain(_OneTarget, override=True)
    app.connect("doctree-read", _describe_plots)
    app.connect("autodoc-process-docstring", _plain_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
