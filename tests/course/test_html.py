# SPDX-License-Identifier: MIT
"""Pages: formulae become MathML, code keeps its dollars, nothing is fetched from a network."""

import re

import nbformat
import pytest

from course.html import link_pages, math_to_markup, to_html
from course.report import render


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
    view, state = (f"application/vnd.jupyter.widget-{kind}+json" for kind in ("view", "state"))
    for shown in ({view: {"model_id": "0e42"}, "text/plain": "Loading: 0%"}, {"text/plain": "kept"}):
        cells[1].outputs.append(nbformat.v4.new_output("display_data", shown))
    model = {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls", "model_module_version": "2.0.0"}
    widgets = {state: {"version_major": 2, "version_minor": 0, "state": {"0e42": {**model, "state": {}}}}}
    nb = nbformat.v4.new_notebook(cells=cells, metadata={"widgets": widgets})
    page = to_html(nb, "T")
    assert "kept" in page and "Loading: 0%" not in page and len(cells[1].outputs) == 2 and nb.metadata.widgets
    assert "unpkg.com" not in page
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in page and cells[0].source == "# T\n\n$x_1$"
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"https?:", page)


def test_solutions_are_behind_a_click():
    solution = nbformat.v4.new_code_cell("secret = 1", metadata={"tags": ["solution"]})
    page = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T"), solution]), "T")
    cell = page[page.index("<div", page.index("celltag_solution") - 200) :]
    assert "secret" in cell, "the tag is a class of the cell: that is what the script looks for"
    assert page.count('querySelectorAll(".celltag_solution")') == 1
    assert "celltag" not in to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")]), "T")


def links(page):
    return re.findall(r'<a (?:rel="(\w+)" )?href="([^"]+\.html)">([^<]*)</a>', page)


def test_a_page_leads_to_its_report_its_sections_and_its_neighbours(tmp_path):
    text = "# T\n\n## One `a` & $x^2$\n\n### not this\n\n## Two"
    page = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "T")
    assert links(page) == 2 * [("", "report.html", "Report")], "above and below"
    contents = page[page.index("<summary>Contents") : page.index("</details>")]
    targets = re.findall(r'<li><a href="#([^"]+)">', contents)
    assert len(targets) == 2 and all(f'id="{t}"' in page for t in targets) and "One a &amp; x2" in contents
    files = [("01_a.html", "01 First & <b>"), ("02_b.html", "02 Second"), ("10_c.html", "10 Third")]
    for file, _ in files:
        (tmp_path / file).write_text(page)
    link_pages(tmp_path, files)
    seen = {file: links((tmp_path / file).read_text()) for file, _ in files}
    first, last = seen["01_a.html"], seen["10_c.html"]
    assert first == 2 * [("", "report.html", "Report"), ("next", "02_b.html", "Next: 02 Second")]
    assert [rel for rel, _, _ in seen["02_b.html"][:3]] == ["", "prev", "next"] and len(seen["02_b.html"]) == 6
    assert ("prev", "01_a.html", "Previous: 01 First &amp; &lt;b&gt;") in seen["02_b.html"]
    assert last == 2 * [("", "report.html", "Report"), ("prev", "02_b.html", "Previous: 02 Second")]
    link_pages(tmp_path, [files[0], files[2]])  # a later run of two notebooks in the same folder
    assert ("next", "10_c.html", "Next: 10 Third") in links((tmp_path / "01_a.html").read_text())
    assert "02_b" not in (tmp_path / "01_a.html").read_text()


def test_on_a_phone_the_reports_table_fits_and_the_rest_scrolls_by_itself():
    entry = {"number": "01", "title": "T", "status": "ok", "seconds": 1.0, "cpu_seconds": 0.5, "waited_seconds": 0.1}
    report = {"notebooks": {"01": entry}, "parameters": [], "hardware": "CPU", "jobs": 1, "versions": {}}
    page = render(report)
    narrow = re.search(r"@media\(max-width:40rem\)\{((?:[^{}]*\{[^{}]*\})*)\}", page)[1]
    assert "th.more,td.more{display:none}" in narrow and "pre{white-space:pre-wrap" in narrow
    heads = re.findall(r"<th( class=\"[^\"]*\")?>", page)
    cells = re.findall(r"<td( class=\"[^\"]*\")?>", page[page.index("<tbody>") :])
    assert len(heads) == len(cells) == 7 and sum("more" in c for c in cells) == sum("more" in h for h in heads) == 2
    assert re.search(r"<div class='wide'><table>.*</table></div>", page, re.DOTALL) and 'name="viewport"' in page
    notebook = to_html(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T")]), "T")
    assert "table{display:block;overflow-x:auto}" in notebook and ".jp-InputPrompt,.jp-OutputPrompt" in notebook
    assert len(re.findall(r"<meta[^>]*viewport", notebook)) == 1
