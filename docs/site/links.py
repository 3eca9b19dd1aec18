# SPDX-License-Identifier: MIT
"""Pages read as files, without a browser: broken links, resources from elsewhere, pictures without words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Findings", "check_pages"]

#: Attributes whose address a browser fetches by itself when a page is opened.
_FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "link": "href",
}
#: Kinds of <link> that are only told, never fetched.
_TOLD = {"index", "search", "next", "prev", "canonical", "author", "genindex", "top", "up", "help"}


class _Page(HTMLParser):
    """Anchors, links, fetched addresses and pictures of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.pictures: list[tuple[str, str | None]] = []
        self.formulae = 0
        self.titled = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names, links to, fetches or shows; the parser calls this for every element."""
        given = dict(attrs)
        self.anchors |= {a for a in (given.get("id"), given.get("name")) if a}
        self.titled = self.titled or tag == "h1"
        self.formulae += tag == "math"
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag in _FETCHED and (address := given.get(_FETCHED[tag])):
            kinds = set((given.get("rel") or "").split())
            (self.links if tag == "link" and kinds <= _TOLD and kinds else self.fetched).append(address)
        if tag == "img":
            self.pictures.append((given.get("src") or "", given.get("alt")))


@dataclass
class Findings:
    """The number of things looked at, and what is wrong with them, a line each."""

    pages: int = 0
    links: int = 0
    pictures: int = 0
    formulae: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return one line for the terminal."""
        looked = f"{self.pages} pages, {self.links} links within the site, {self.pictures} pictures with their words"
        return f"{looked}, {self.formulae} formulae; {len(self.wrong)} findings"


def check_pages(site: Path) -> Findings:
    """Look at every page below ``site``.

    Wrong is a link within the site that leads to no file or to no anchor of it, anything that a browser would fetch
    from elsewhere, a picture without an alt text or with its file's name for one, and a page without a heading.

    Raises:
        FileNotFoundError: there is no page.
    """
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" not in path.relative_to(site).parts:
            pages[path.resolve()] = _Page()
            pages[path.resolve()].feed(path.read_text(encoding="utf-8"))
    if not pages:
        raise FileNotFoundError(f"{site} has no pages; make site builds them")
    found = Findings(pages=len(pages))
    files = {p.resolve() for p in site.rglob("*") if p.is_file()}
    for path, page in pages.items():
        where = path.relative_to(site.resolve()).as_posix()
        found.formulae += page.formulae
        for address in page.fetched:
            if urlsplit(address).scheme not in ("", "data") or address.startswith("//"):
                found.wrong.append(f"{where}: fetches {address} from elsewhere")
        for address in (*page.links, *page.fetched):
            parts = urlsplit(address)
            if parts.scheme or address.startswith("//"):
                continue
            found.links += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target not in files:
                found.wrong.append(f"{where}: {address} leads to no file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.wrong.append(f"{where}: {address} leads to no place of its page")
        for source, alt in page.pictures:
            found.pictures += 1
            if alt is None or (alt and alt in source):
                found.wrong.append(f"{where}: the picture {source} has no alt text")
        # A page that only lists what the generator found needs no heading; one that forwards to another neither.
        if not page.titled and where not in ("search.html", "genindex.html"):
            found.wrong.append(f"{where}: has no heading")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m docs.site.links FOLDER`: 0 if all is well, 1 with a line for each finding,
    2 if there is no site.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        found = check_pages(Path(given[0] if given else "build/site"))
    except FileNotFoundError as e:
        print(e, file=sys.stderr)
        return 2
    print(*found.wrong, found, sep="\n")
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
