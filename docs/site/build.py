# SPDX-License-Identifier: MIT
"""`make site`: the course as pages that need no network, neither to be built nor to be read.

Sphinx and its theme lie in a folder of their own, in the versions of ``docs/site/requirements.txt``: they are no part
of the course's environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from docs.site.links import check_pages
from docs.site.sources import ROOT, write_sources
from rocm_guide.common.base import GuideError
from rocm_guide.observe.doctor.own_folders import LibraryFolder

__all__ = ["LIBRARIES", "SiteError", "build"]

LIBRARIES = LibraryFolder(
    name="site",
    listed=Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8"),
    shown=("sphinx", "myst-nb"),
    needed_by="the site",
    in_cache=True,
)


class SiteError(GuideError):
    """The site could not be built, or is not as it should be."""


def build(out: Path, sources: Path, notebooks: Iterable[Path], *, rooms: Iterable[str] | None = None) -> str:
    """Build the site in ``out`` and look at every page of it; what was not changed since is kept.

    Args:
        out: the folder of the pages.
        sources: a folder for what Sphinx reads.
        notebooks: which notebooks to show.
        rooms: names of library pages; all of them if left out.

    Returns:
        What was looked at, in one line.

    Raises:
        SiteError: Sphinx failed or warned, or a page has a broken link, a picture without words, something foreign.
    """
    write_sources(sources, notebooks, rooms)
    # A process of its own: the library's heavy imports are replaced by stand-ins while Sphinx reads docstrings.
    paths = [str(ROOT), str(LIBRARIES.path), os.environ.get("PYTHONPATH", "")]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "sphinx", "-q", "-j", str(min(2, os.cpu_count() or 1)), "-b", "html"]
    command += ["-c", str(Path(__file__).parent), "-d", str(sources.with_name(f"{sources.name}-state"))]
    done = subprocess.run(
        [*command, str(sources), str(out)], env=settings, capture_output=True, text=True, cwd=ROOT, check=False
    )
    said = [line for line in done.stderr.splitlines() if re.search(r"WARNING|ERROR|CRITICAL|Error", line)]
    if done.returncode or said:
        raise SiteError("\n".join(said or done.stderr.splitlines()[-3:] or ["Sphinx failed without a message"]))
    found = check_pages(out)
    if found.wrong:
        raise SiteError("\n".join((*found.wrong, str(found))))
    return str(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site into build/site: 0 if it is whole, 2 with a line for each thing that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.build", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", metavar="DIR", help="default: build/site")
    parser.add_argument("--libraries", action="store_true", help="only install the generator, if it is missing")
    parser.add_argument("--news", type=Path, metavar="FILE", help="touch FILE when it was installed")
    given = parser.parse_args(arguments)
    try:
        if LIBRARIES.check().status != "OK":
            print("installing the site's generator in a folder of its own (once)", flush=True)
            if LIBRARIES.install() and given.news:
                given.news.touch()
        if given.libraries:
            return 0
        began = time.monotonic()
        found = build(given.out, given.out.with_name(f"{given.out.name}-sources"), ROOT.glob("notebooks/[0-9]*.ipynb"))
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    print(f"{found}\nbuilt in {time.monotonic() - began:.0f} s: {given.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
