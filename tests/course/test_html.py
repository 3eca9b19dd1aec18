# SPDX-License-Identifier: MIT
"""Pages: formulae become MathML, code keeps its dollars, nothing is fetched from a network."""

import re

import nbformat
import pytest

from course.html import math_to_markup, to_html


@pytest.mark.parametrize(
    "text",
    ["`echo $HOME $PATH`", "```bash\nexport A=$B$C\n```", "from $5 to $60", "one $ alone", r"broken $\left( x$ here"],
)
def test_what_is_no_formula_stays(text):
    assert math_to_markup(text) == text


def test_formulae_in_a_line_and_alone():
    page = math_to_markup("so $e^x$ and\n\n$$\\frac{\\alpha}{r} B A x$$\n\nis `$code$`")
    assert page.count("<math") == 2 and "<msup>" in page and "<mfrac>" in page and "`$code$`" in page
    assert 'display="block"' in page and 'display="inline"' in page


def test_a_page_fetches_nothing_and_the_notebook_stays_as_it_is():
    cells = [nbformat.v4.new_markdown_cell("# T\n\n$x_1$"), nbformat.v4.new_code_cell("a = '$x$'")]
    nb = nbformat.v4.new_notebook(cells=cells)
    page = to_html(nb, "T")
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in page and cells[0].source == "# T\n\n$x_1$"
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"https?:", page)


def test_solutions_are_behind_a_click():
    solution = nbformat.v4.new_code_cell("secret = 1", metadata={"tags": ["solution"]})
    page = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T"), solution]), "T")
    cell = page[page.index("<div", page.index("celltag_solution") - 200) :]
    assert "secret" in cell, "the tag is a class of the cell: that is what the script looks for"
    assert page.count('querySelectorAll(".celltag_solution")') == 1
    assert "celltag" not in to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")]), "T")
