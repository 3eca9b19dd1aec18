# SPDX-License-Identifier: MIT
"""`make site-check`: the site as a browser shows it.

Chromium opens every kind of page, wide and narrow, light and dark, without a network. It says what the page asked for,
what it complained about, and where contrast is too low.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.observe.doctor.own_folders import LibraryFolder

__all__ = ["BrowserMissingError", "check_site", "find_chromium"]

ROOT = Path(__file__).parents[2]
LIBRARIES = LibraryFolder(
    name="site_check",
    listed=Path(__file__).with_name("browser-requirements.txt").read_text(encoding="utf-8"),
    shown=("playwright", "axe-playwright-python"),
    needed_by="make site-check",
    in_cache=True,
)
PAGES = (
    "index.html",
    "notebooks/01_lora_from_scratch.html",
    "notebooks/15_flash_attention.html",
    "notebooks/25_inside_a_wave.html",
    "docs/commands.html",
    "library/kernels.html",
    "library/models.html",
    "docs/errata.html",
    "docs/troubleshooting.html",
    "search.html",
)
#: Rules of axe-core: levels A and AA of WCAG 2.0 and 2.1, contrast among them.
# Style sheets are not fetched again (from a file that would wait for nothing), and only what is wrong is reported.
_RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
    "preload": False,
}
_LOOKS = {"desktop": (1280, 900), "tablet": (768, 1024), "mobile": (375, 812)}
# Nothing may be wider than the window, and what is focused by the Tab key must be visible.
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
  const ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== 'none';
  const words = (e.textContent || e.getAttribute('aria-label') || '').trim().slice(0, 40);
  return [e.tagName, words, ring, r.width * r.height > 0];
}"""


class BrowserMissingError(GuideError):
    """There is no Chromium on this machine."""


def find_chromium() -> str:
    """Return the path of the Chromium to use: ``CHROMIUM``, else the usual names.

    Raises:
        BrowserMissingError: there is none.
    """
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    for name in filter(None, names):
        if found := shutil.which(name):
            return found
    raise BrowserMissingError("no Chromium here: apt install chromium, or set CHROMIUM to the path of one")


@contextmanager
def _opened(site: Path, look: str, dark: bool) -> Iterator[tuple[Any, list[str]]]:
    """Open a tab of its own without a network; give it, and what it complains about so far."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        width, height = _LOOKS[look]
        tab = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            is_mobile=look == "mobile",
        ).new_page()
        said: list[str] = []
        tab.on("console", lambda m: said.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: said.append(f"script error: {e}"))

        def ask(route: Any) -> None:
            if route.request.url.startswith((site.resolve().as_uri(), "data:", "blob:")):
                route.continue_()
            else:
                said.append(f"asks for {route.request.url}")
                route.abort()

        tab.route("**/*", ask)
        tab.set_default_timeout(120_000)
        yield tab, said
        browser.close()


def check_site(site: Path, pages: Sequence[str] = PAGES, pictures: Path | None = None) -> tuple[list[str], int]:
    """Open pages in every look; what is wrong with them, a line each, and how many openings there were.

    Args:
        site: the folder that `make site` wrote.
        pages: which of its pages.
        pictures: a folder for a screenshot of each opening.

    Raises:
        BrowserMissingError: there is no Chromium.
        GuideError: a page does not exist.
    """
    from axe_playwright_python.sync_playwright import Axe

    find_chromium()
    if missing := [p for p in pages if not (site / p).is_file()]:
        raise GuideError(f"{site / missing[0]} does not exist; make site writes it")
    wrong: list[str] = []
    opened = 0
    for look, dark in itertools.product(_LOOKS, (False, True)):
        with _opened(site, look, dark) as (tab, said):
            for page in pages:
                where = f"{page}, {look}, {'dark' if dark else 'light'}"
                tab.goto((site / page).resolve().as_uri(), wait_until="load")
                opened += 1
                if pictures:
                    pictures.mkdir(parents=True, exist_ok=True)
                    name = f"{page.removesuffix('.html').replace('/', '-')}-{look}-{'dark' if dark else 'light'}.png"
                    tab.screenshot(path=pictures / name)
                wrong += [f"{where}: {line}" for line in said]
                said.clear()
                if (extra := tab.evaluate(_TOO_WIDE)) > 0:
                    wrong.append(f"{where}: {extra} pixels wider than the window")
                tab.wait_for_function("document.getAnimations().every(a => a.playState !== 'running')")
                # Colours, which have stopped changing, are the same in a narrow window.
                for rule in Axe().run(tab, options=_RULES).response["violations"] if look == "desktop" else ():
                    first = rule["nodes"][0]
                    wrong.append(
                        f"{where}: {rule['id']}, {len(rule['nodes'])} times ({rule['help']}): "
                        f"{first['html'][:160]} {' '.join(first['failureSummary'].split())[:200]}"
                    )
                if look == "desktop" and not dark:
                    wrong += [f"{where}: {line}" for line in _by_keyboard(tab)]
    return wrong, opened


def _by_keyboard(tab: Any) -> list[str]:
    """Go through the first stops of the Tab key: each is visible and shows that it has the focus."""
    seen: list[list[Any]] = []
    for _ in range(8):
        tab.keyboard.press("Tab")
        seen.append(tab.evaluate(_FOCUSED))
    wrong = [f"the focus on {tag} “{text}” cannot be seen" for tag, text, ring, size in seen if not (ring and size)]
    if len({(tag, text) for tag, text, *_ in seen}) < 4:
        wrong.append("the Tab key does not get around the page")
    return wrong


def search_finds(site: Path, word: str) -> tuple[int, list[str]]:
    """Return the number of results that the search page shows for ``word``, and what is wrong with it."""
    with _opened(site, "desktop", False) as (tab, said):
        tab.goto(f"{(site / 'search.html').resolve().as_uri()}?q={word}")
        tab.wait_for_selector("#search-results li", timeout=120_000)
        tab.wait_for_load_state("networkidle")
        count = int(tab.locator("#search-results li").count())
        wrong = [f"search.html?q={word}: {line}" for line in said]
    return count, wrong if count else [*wrong, f"search.html: finds nothing for {word}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the site: 0 if all is well, 1 with a line for each finding, 2 if it could not be looked at."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.browser", description=main.__doc__)
    parser.add_argument("--site", type=Path, default=ROOT / "build/site", metavar="DIR", help="default: build/site")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep a screenshot of every opening here")
    parser.add_argument("pages", nargs="*", help="pages of the site, such as index.html; one of each kind if left out")
    given = parser.parse_args(arguments)
    try:
        find_chromium()
        if LIBRARIES.check().status != "OK":
            print("installing the browser's driver in a folder of its own (once)", flush=True)
            LIBRARIES.install()
        LIBRARIES.add_to_path()
        wrong, opened = check_site(given.site, given.pages or PAGES, given.pictures)
        found, more = search_finds(given.site, "occupancy")
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    wrong += more
    print(*wrong, f"{opened} openings; search for occupancy: {found} results; {len(wrong)} findings", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
