# SPDX-License-Identifier: MIT
"""A notebook as one HTML file that needs no network: pictures inside, formulae as MathML, which every browser draws."""

from __future__ import annotations

import copy
import html
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocm_guide.common.base import write_text

__all__ = []

# Code comes first, so that a dollar in it stays one. A price is no formula: no space after the first dollar, no digit
# after the last.
_PARTS = re.compile(r"```.*?```|`[^`\n]*`|\$\$(?P<block>.+?)\$\$|\$(?!\s)(?P<line>[^$\n]+?)(?<!\s)\$(?!\d)", re.DOTALL)
# Scripts that nbconvert's pages would fetch: MathJax, which has nothing left to do, and one for Jupyter's widgets.
_REMOTE = re.compile(r"<script[^>]*\ssrc=\"https?://[^\"]*\"[^>]*>\s*</script>")

# nbconvert shows every cell open, also those that Jupyter collapses: a page must not give solutions away either.
_COLLAPSE = """
<style>summary.solution{margin:.4rem 0 .4rem 80px;cursor:pointer;font:15px system-ui,sans-serif;color:#1f4e8c}</style>
<script>
for (const cell of document.querySelectorAll(".celltag_solution")) {
  const box = document.createElement("details"), label = document.createElement("summary");
  label.textContent = "Solution";
  label.className = "solution";
  cell.before(box);
  box.append(label, cell);
}
</script>
"""

_WIDGET = "application/vnd.jupyter.widget-view+json"
_HEADING = re.compile(r'<h2[^>]* id="(?P<id>[^"]+)"[^>]*>(?P<text>.*?)(?:<a [^>]*class="anchor-link"|</h2>)', re.DOTALL)
_STYLE = """
<style>
nav.run{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:.5rem 1rem;color:#1b1b1b}
nav.run .ways{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem}nav.run a{color:#1f4e8c}nav.run ol{margin:.25rem 0}
.jp-RenderedHTMLCommon table{display:block;overflow-x:auto}
@media(max-width:40rem){body.jp-Notebook{padding:.3rem}.jp-InputPrompt,.jp-OutputPrompt,.jp-Collapser{display:none}
.jp-Cell{padding:.2rem 0}summary.solution{margin-left:0!important}}
body.jp-Notebook{--jp-cell-editor-background:#fff}
.jp-Notebook .jp-InputPrompt,.jp-Notebook .jp-OutputPrompt{opacity:1!important;color:#5c5c5c!important}
@media print{nav.run{display:none}}
</style>
"""
#: Between these stands what changes with the run that a page belongs to.
_WAYS = re.compile(r"<!-- ways -->.*?<!-- /ways -->", re.DOTALL)


def _ways(before: tuple[str, str] | None = None, after: tuple[str, str] | None = None) -> str:
    """Return the links of a page to its report and its neighbours, each (file, title)."""
    links = ['<a href="report.html">Report</a>']
    for word, rel, to in (("Previous", "prev", before), ("Next", "next", after)):
        if to:
            links.append(f'<a rel="{rel}" href="{html.escape(to[0])}">{word}: {html.escape(to[1])}</a>')
    return f'<!-- ways --><div class="ways">{"".join(links)}</div><!-- /ways -->'


def _with_navigation(page: str) -> str:
    """Put the way back to the report and the contents above a page, and the ways on below it."""
    entries = "".join(
        f'<li><a href="#{m["id"]}">{re.sub("<[^>]+>", "", m["text"]).strip()}</a></li>' for m in _HEADING.finditer(page)
    )
    contents = f"<details><summary>Contents</summary><ol>{entries}</ol></details>" if entries else ""
    page = page.replace("</head>", f"{_STYLE}</head>", 1)
    top = f'<nav class="run" aria-label="Course">{_ways()}{contents}</nav>'
    page = re.sub(r"<body[^>]*>", lambda m: m[0] + top, page, count=1)
    head, end, tail = page.rpartition("</body>")
    return f'{head}<nav class="run" aria-label="Notebooks">{_ways()}</nav>{end}{tail}'


def link_pages(folder: Path, pages: Sequence[tuple[str, str]]) -> None:
    """Let each page of a run lead to those before and after it; a page of an earlier run too.

    Args:
        folder: where they lie.
        pages: (file, title) of each, in reading order.
    """
    for i, (file, _) in enumerate(pages):
        path = folder / file
        text = path.read_text(encoding="utf-8")
        ways = _ways(pages[i - 1] if i else None, pages[i + 1] if i + 1 < len(pages) else None)
        linked = _WAYS.sub(ways.replace("\\", r"\\"), text)  # a backslash in a title is no group's
        if linked != text:
            write_text(path, linked)


def math_to_markup(text: str) -> str:
    """Convert LaTeX between dollars in Markdown to MathML. What cannot be converted stays as it is, readable.

    >>> math_to_markup("`$HOME` costs $5 or $6")
    '`$HOME` costs $5 or $6'
    >>> "<msup><mi>x</mi><mn>2</mn></msup>" in math_to_markup("so $x^2$ grows")
    True
    """
    from latex2mathml.converter import convert

    def replace(match: re.Match[str]) -> str:
        latex = match["block"] or match["line"]
        if latex is None:
            return match[0]
        try:
            return str(convert(" ".join(latex.split()), display="block" if match["block"] else "inline"))
        except Exception:  # noqa: BLE001 - besides its own errors the converter raises StopIteration, IndexError, …
            return match[0]

    return _PARTS.sub(replace, text)


def to_html(nb: Any, title: str) -> str:
    """Return a page of its own for a notebook (an nbformat node, left as it is);
    cells tagged solution open on a click. Above and below stands the way back to the report, above also the contents.
    """
    from nbconvert import HTMLExporter

    nb, formulae = copy.deepcopy(nb), []

    def keep(match: re.Match[str]) -> str:
        formulae.append(match[0])
        return f"{mark}{len(formulae) - 1}x"

    # nbconvert removes tags that it does not know, so the formulae come in when it is done.
    mark = f"formula{uuid.uuid4().hex}"
    # Progress bars: their script would come from another machine, and without it they stand at 0 %.
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if _WIDGET not in o.get("data", {})]
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"<math .*?</math>", keep, math_to_markup(cell.source), flags=re.DOTALL)
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(nb, resources={"metadata": {"name": title}})
    page = re.sub(rf"{mark}(\d+)x", lambda m: formulae[int(m[1])], _REMOTE.sub("", page))
    if "celltag_solution" in page:
        page = page.replace("</body>", f"{_COLLAPSE}</body>")
    return _with_navigation(page)
