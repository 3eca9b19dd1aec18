# SPDX-License-Identifier: MIT
"""A small site is built whole, with a notebook, the start page and a part of the library; what is wrong is said."""

import itertools
import json
import re
import shutil
import tomllib
from importlib.metadata import distribution, distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.site import browser
from docs.site.build import LIBRARIES, SiteError, build
from docs.site.library_pages import library_pages, names_on_pages
from docs.site.sources import ROOT, write_sources

NOTEBOOK = ROOT / "notebooks/42_system_tuning.ipynb"
TWO = [NOTEBOOK, ROOT / "notebooks/41_debugging_faults.ipynb"]
NEEDS = pytest.mark.skipif(
    LIBRARIES.check().status != "OK", reason="the site's generator is not installed; make site does it"
)


def test_the_reference_has_every_public_name_once():
    pages = library_pages()
    found = [f for text in pages.values() for f in re.findall(r"automodule:: (\S+)\n   :members: (.+)", text)]
    asked = {f"{module}.{name}" for module, names in found for name in names.split(", ")}
    assert asked == set(names_on_pages()) and len(asked) > 500
    assert set(re.findall(r"^   .+ <(\S+)>$", pages["index.rst"], re.M)) >= {p.removesuffix(".rst") for p in pages} - {
        "index"
    }


def needs(distribution):
    """Names that an installed distribution requires, without its extras."""
    found = map(Requirement, distribution.requires or [])
    return {canonicalize_name(r.name) for r in found if not r.marker or r.marker.evaluate({"extra": ""})}


@NEEDS
def test_the_generator_needs_nothing_that_only_jupyterlab_brings():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["course"]]
    course, new = set(), {canonicalize_name(Requirement(line).name) for line in listed}
    while new:
        course |= new
        new = set().union(*(needs(distribution(n)) for n in new if any(distributions(name=n)))) - course
    own = {canonicalize_name(d.name): d for d in distributions(path=[str(LIBRARIES.path)])}
    missing = {name: needs(d) - course - set(own) for name, d in own.items()}
    assert not any(missing.values()), missing
    assert "jupyterlab" not in course and "transformers" in course


def test_sources_that_did_not_change_keep_their_date_and_old_ones_go(tmp_path):
    files = write_sources(tmp_path, [NOTEBOOK], ["observe.system"])
    dates = {p: p.stat().st_mtime_ns for p in files}
    (tmp_path / "notebooks/99_gone.ipynb").touch()
    assert write_sources(tmp_path, [NOTEBOOK], ["observe.system"]) == files
    assert dates == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    formulae = {
        "cell_type": "markdown",
        "id": "a",
        "metadata": {},
        "source": "# 99\n\n$x^2$ costs $5 or $6\n\n$$x^2$$\n",
    }
    (folder / "99_formulae.ipynb").write_text(
        json.dumps({"cells": [formulae], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    said = build(folder / "site", folder / "sources", [*TWO, folder / "99_formulae.ipynb"], rooms=["observe.system"])
    return folder, said


@NEEDS
def test_a_small_site_is_whole(small):
    folder, said = small
    assert re.search(r"^\d+ pages, \d+ links .* 0 findings$", said)
    page = (folder / "site/notebooks/41_debugging_faults.html").read_text()
    assert 'alt="Line chart: Isolation names the module.' in page
    assert page.count('class="hide above-input') + page.count("<summary") >= 3, "solutions are open"
    assert not re.search(r"<script[^>]*(mathjax|require)", page, re.I)
    page = (folder / "site/notebooks/99_formulae.html").read_text()
    assert page.count("<math ") == 2 and "<msup><mi>x</mi><mn>2</mn></msup>" in page and "costs $5 or $6" in page
    page = (folder / "site/library/observe.system.html").read_text()
    assert "<h2>audit" in page and "rocm_guide.observe.system.audit" in page, "short headings, whole addresses"
    assert "static/site.js" in page and 'data-default-mode="auto"' in page


@NEEDS
def test_each_page_of_the_site_leads_home_back_on_and_into_itself_and_fits_a_phone(small):
    site = small[0] / "site"
    pages = sorted((site / "notebooks").glob("*.html"))
    assert len(pages) == 3
    ways = {
        page.name: dict(re.findall(r'<a class="(left-prev|right-next)"\s+href="([^"#]+)"', page.read_text()))
        for page in pages
    }
    assert all("left-prev" in way for way in ways.values()) and all("right-next" in w for w in [*ways.values()][:-1])
    for (name, way), (after, back) in itertools.pairwise(ways.items()):
        assert (way["right-next"], back["left-prev"]) == (after, name)
    for page in pages:
        text = page.read_text()
        assert re.search(r'<a class="navbar-brand logo" href="\.\./index\.html">', text), "home, with all contents"
        assert re.search(r'<meta name="viewport" content="width=device-width, initial-scale=1', text)
        assert 'id="pst-page-navigation-heading-2"' in text or "<h2" not in text, "the contents of this page"
        assert text.count("<table") == text.count('class="pst-scrollable-table-container"'), "each in one that scrolls"
    style = "".join(p.read_text() for p in (site / "_static").rglob("*.css"))
    assert "div.cell_output { overflow-x: auto; }" in style
    assert ".pst-scrollable-table-container{overflow-x:auto}" in style


@NEEDS
def test_a_broken_link_fails_the_build(small):
    folder, _ = small
    (folder / "site/extra.html").write_text('<h1>x</h1><a href="nowhere.html">x</a>')
    with pytest.raises(SiteError, match=r"extra.html: nowhere.html leads to no file"):
        build(
            folder / "site",
            folder / "sources",
            TWO,
            rooms=["observe.system"],
        )


def test_without_a_chromium_one_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert browser.main(["--site", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("no Chromium here: apt install chromium")


def test_the_pages_that_a_browser_opens_are_of_the_site(tmp_path):
    """A room that moves takes its page with it; the check then names a page that nobody writes."""
    write_sources(tmp_path, sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    written = {p.relative_to(tmp_path).with_suffix(".html").as_posix() for p in tmp_path.rglob("*.*")}
    assert set(browser.PAGES) - {"search.html"} <= written
