# SPDX-License-Identifier: MIT
"""A notebook as one HTML file that needs no network: pictures inside, formulae as MathML, which every browser draws."""

from __future__ import annotations

import copy
import re
import uuid
from typing import Any

__all__ = []

# Code comes first, so that a dollar in it stays one. A price is no formula: no space after the first dollar, no digit
# after the last.
_PARTS = re.compile(r"```.*?```|`[^`\n]*`|\$\$(?P<block>.+?)\$\$|\$(?!\s)(?P<line>[^$\n]+?)(?<!\s)\$(?!\d)", re.DOTALL)
# Scripts that nbconvert's pages would fetch: MathJax, which has nothing left to do, and Jupyter's widgets, which a
# stored page does not have.
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
    cells tagged solution open on a click.
    """
    from nbconvert import HTMLExporter

    nb, formulae = copy.deepcopy(nb), []

    def keep(match: re.Match[str]) -> str:
        formulae.append(match[0])
        return f"{mark}{len(formulae) - 1}x"

    # nbconvert removes tags that it does not know, so the formulae come in when it is done.
    mark = f"formula{uuid.uuid4().hex}"
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"<math .*?</math>", keep, math_to_markup(cell.source), flags=re.DOTALL)
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(nb, resources={"metadata": {"name": title}})
    page = re.sub(rf"{mark}(\d+)x", lambda m: formulae[int(m[1])], _REMOTE.sub("", page))
    return page.replace("</body>", f"{_COLLAPSE}</body>") if "celltag_solution" in page else page
