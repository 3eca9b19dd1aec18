# SPDX-License-Identifier: MIT
"""The check of pages without a browser finds what it is for."""

import pytest

from docs.site.links import check_pages, main

GOOD = """<html><head><link rel="stylesheet" href="_static/a.css"><link rel="next" href="b.html"></head>
<body><h1 id="top">T</h1><a href="b.html#there">b</a> <a href="#top">up</a> <a href="https://example.org/x">out</a>
<img src="p.png" alt="A plot."> <math></math></body></html>"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/a.css").touch()
    (tmp_path / "p.png").touch()
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<h1>B</h1><p id="there">x</p>')
    return tmp_path


def test_a_whole_site(site, capsys):
    found = check_pages(site)
    assert (found.wrong, found.pages, found.links, found.pictures, found.formulae) == ([], 2, 5, 1, 1)
    assert main([str(site)]) == 0 and "0 findings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("b.html#there", "c.html", "c.html leads to no file"),
        ("b.html#there", "b.html#nowhere", "b.html#nowhere leads to no place of its page"),
        ('"#top"', '"#bottom"', "#bottom leads to no place"),
        ('alt="A plot."', "", "p.png has no alt text"),
        ('alt="A plot."', 'alt="p.png"', "p.png has no alt text"),
        ("_static/a.css", "https://cdn.example/a.css", "fetches https://cdn.example/a.css from elsewhere"),
        ("<math>", '<script src="//cdn.example/m.js"></script><math>', "fetches //cdn.example/m.js from elsewhere"),
        ("h1", "h2", "has no heading"),
    ],
)
def test_what_is_wrong_is_named(site, old, new, says, capsys):
    (site / "a.html").write_text(GOOD.replace(old, new))
    (wrong,) = check_pages(site).wrong
    assert wrong.startswith("a.html: ") and says in wrong
    assert main([str(site)]) == 1 and says in capsys.readouterr().out


def test_a_folder_without_pages_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "make site builds them" in capsys.readouterr().err
