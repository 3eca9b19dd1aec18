# SPDX-License-Identifier: MIT
"""A class in Chromium: learners at once log in to a real hub, open notebooks, run all cells; nothing may go wrong.

    python -m benchmarks.hub.in_browser [--learners 3] [--notebooks 01 24] [--pictures DIR] [--out FILE]

Needs what `make hub` and `make site-check` install, and a Chromium. The GPUs are pretended; the rest is real. A learner
clears a notebook's outputs, saves it, runs all cells from the menu, and saves it again; what the file on disk then
holds is judged: every code cell has run, and none shows an error. Exit code 0 if all is well, 1 with a line for each
finding, 2 with one line if something is missing. Writes results/hub_in_browser.json: seconds and CPU seconds until a
learner sees JupyterLab, and the memory of each learner's processes (PSS) beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.hub.stamp import MIB, stamp
from benchmarks.timing import RESULTS
from docs.site.browser import LIBRARIES, find_chromium
from rocm_guide.common.base import GuideError, write_text
from tests.hub.running_hub import MISSING, ROOT, Hub, hub_is_installed

NAMES = ("ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")
# Saving is work for the learner's server, too.
_SAVED_EVERY = 10.0


@dataclass
class Visit:
    """The record of one learner's visit: seconds and memory of each step, and what was wrong."""

    name: str
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    idle_mib: float = 0.0
    notebooks: dict[str, dict[str, Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def cells_of(file: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook that have something in them; none while it is being written."""
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError):
        return []
    return [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]


def errors_of(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each cell that shows an error."""
    found = []
    for n, cell in enumerate(cells, 1):
        errors = (o for o in cell["outputs"] if o["output_type"] == "error")
        found += [f"code cell {n}: {e['ename']}: {e['evalue'][:200]}" for e in errors]
    return found


@contextlib.asynccontextmanager
async def peak_memory(hub: Hub, name: str) -> AsyncIterator[list[int]]:
    """Watch the largest memory of a learner's processes while the block runs, every two seconds."""
    peak = [0]

    async def watch() -> None:
        while True:
            peak[0] = max(peak[0], await asyncio.to_thread(hub.memory, name))
            await asyncio.sleep(2)

    watching = asyncio.create_task(watch())
    try:
        yield peak
    finally:
        watching.cancel()


async def choose(tab: Any, menu: str, entry: str) -> None:
    """Choose an entry of JupyterLab's menu, by mouse."""
    await tab.locator(".lm-MenuBar-item", has_text=menu).first.click()
    await tab.locator(".lm-Menu-item", has_text=entry).first.click()


async def log_in(tab: Any, hub: Hub, visit: Visit) -> None:
    """Go from the login page to a JupyterLab that shows the course's folder."""
    await tab.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fspawn")
    await tab.fill("#username_input", visit.name)
    await tab.fill("#password_input", hub.password)
    began = time.monotonic()
    await tab.click("#login_submit")
    await tab.wait_for_url("**/user/**/lab/**")
    await tab.wait_for_selector(".jp-DirListing-item")
    visit.start_s = round(time.monotonic() - began, 1)
    visit.start_cpu_s = round(await asyncio.to_thread(hub.cpu, visit.name), 1)
    # What JupyterLab loads after its window is there counts as idle, too.
    await asyncio.sleep(15)
    visit.idle_mib = round(await asyncio.to_thread(hub.memory, visit.name) / MIB)


async def save(tab: Any) -> None:
    await tab.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").first.press("Control+s")


async def run_all(tab: Any, hub: Hub, visit: Visit, notebook: str, seconds: float) -> None:
    """Open a notebook, run all its cells, and judge the file that is then on the disk."""
    file = hub.home(visit.name) / "rocm-llm-guide" / notebook
    address = f"{hub.url}/user/{quote(visit.name, safe='@~')}/lab/tree/rocm-llm-guide/{notebook}?reset"
    began = time.monotonic()
    await tab.goto(address)
    panel = ".jp-NotebookPanel:not(.lm-mod-hidden)"
    idle = tab.locator(f'{panel} .jp-Notebook-ExecutionIndicator[data-status="idle"]')
    await idle.first.wait_for()
    await tab.locator(f"{panel} .jp-Cell").first.click()
    await choose(tab, "Edit", "Clear Outputs of All Cells")
    while any(c["execution_count"] or c["outputs"] for c in cells_of(file)) or not cells_of(file):
        await save(tab)
        await asyncio.sleep(1)
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{notebook} could not be cleared and saved in {seconds:g} s")
    cpu = await asyncio.to_thread(hub.cpu, visit.name)
    async with peak_memory(hub, visit.name) as peak:
        ran = time.monotonic()
        await choose(tab, "Run", "Run All Cells")
        while True:
            await asyncio.sleep(_SAVED_EVERY)
            await save(tab)
            cells = cells_of(file)
            # An error stops the cells behind it, so it ends the wait, too.
            done = cells and all(c["execution_count"] for c in cells)
            if (done and await idle.count()) or errors_of(cells):
                break
            if time.monotonic() - ran > seconds:
                count = sum(bool(c["execution_count"]) for c in cells)
                visit.wrong.append(f"{notebook}: {count} of {len(cells)} code cells had run after {seconds:g} s")
                break
    # The last output may have come after the last save.
    await save(tab)
    await asyncio.sleep(2)
    cells = cells_of(file)
    visit.wrong += [f"{notebook}, {line}" for line in errors_of(cells)]
    visit.notebooks[notebook] = {
        "cells": sum(bool(c["execution_count"]) for c in cells),
        "seconds": round(time.monotonic() - ran),
        "cpu_s": round(await asyncio.to_thread(hub.cpu, visit.name) - cpu, 1),
        "peak_mib": round(peak[0] / MIB),
    }


async def visit_class(browser: Any, hub: Hub, name: str, notebooks: Sequence[str], given: argparse.Namespace) -> Visit:
    """Do everything that one learner does, in a browser profile of their own."""
    from playwright.async_api import Error

    visit = Visit(name)
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(given.seconds * 1000)
    tab = await context.new_page()
    tab.on("pageerror", lambda e: visit.wrong.append(f"script error: {e}"))
    tab.on("request", lambda r: visit.outside.append(r.url) if not r.url.startswith((hub.url, "data:", "blob:")) else 0)
    doing = "log in"
    try:
        await log_in(tab, hub, visit)
        for doing in notebooks:
            await run_all(tab, hub, visit, doing, given.seconds)
            if given.pictures:
                await tab.screenshot(path=given.pictures / f"{name}-{doing.removesuffix('.ipynb')}.png")
    except (Error, OSError, TimeoutError) as e:
        visit.wrong.append(f"{doing}: {type(e).__name__}: {str(e).splitlines()[0]}")
        if given.pictures:
            await tab.screenshot(path=given.pictures / f"{name}-failed.png")
    await context.close()
    return visit


async def hold_class(
    hub: Hub, names: Sequence[str], notebooks: Sequence[str], given: argparse.Namespace
) -> list[Visit]:
    """Let all learners work at once, in one Chromium."""
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        visits = await asyncio.gather(*(visit_class(browser, hub, name, notebooks, given) for name in names))
        await browser.close()
    return list(visits)


def ready() -> None:
    """Put the browser's driver on the path.

    Raises:
        GuideError: JupyterHub, Chromium or its driver is missing; the line says how to get it.
    """
    if not hub_is_installed():
        raise GuideError(MISSING)
    find_chromium()
    if LIBRARIES.check().status != "OK":
        raise GuideError("the browser's driver is not installed; make site-check installs it")
    LIBRARIES.add_to_path()


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hub.in_browser", description=__doc__)
    parser.add_argument("--learners", type=int, default=3, choices=range(1, len(NAMES) + 1), metavar="N")
    parser.add_argument("--notebooks", nargs="+", default=["01", "24"], metavar="NN", help="default: 01 24")
    parser.add_argument("--seconds", type=float, default=1800, help="the longest wait for a step")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep screenshots here")
    parser.add_argument("--out", type=Path, default=RESULTS / "hub_in_browser.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Hold the class, print, write."""
    given = options(arguments)
    try:
        ready()
        notebooks = [p.name for nn in given.notebooks for p in (ROOT / "notebooks").glob(f"{nn}_*.ipynb")]
        if len(notebooks) != len(given.notebooks):
            raise GuideError(f"{' '.join(given.notebooks)}: not all of them are notebooks; give their numbers")
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rocm-guide-class-"))
    about = stamp()
    hub = Hub(folder, gpus=given.learners)
    try:
        visits = asyncio.run(hold_class(hub, NAMES[: given.learners], notebooks, given))
        own = hub.memory()
    finally:
        hub.end()
        shutil.rmtree(folder, ignore_errors=True)
    wrong = [f"{v.name}: {line}" for v in visits for line in v.wrong]
    for v in visits:
        ran = "; ".join(
            f"{k} {n['cells']} cells, {n['seconds']} s, {n['peak_mib']} MiB" for k, n in v.notebooks.items()
        )
        print(f"{v.name}: JupyterLab after {v.start_s} s ({v.start_cpu_s} CPU s), idle {v.idle_mib} MiB; {ran}")
    print(*wrong, f"{len(visits)} learners at once, {len(wrong)} findings", sep="\n")
    question = "learners at once in Chromium: start, memory (PSS, MiB) of each learner's processes, cells that ran"
    data = {"question": question, **about, "hub_mib": round(own / MIB), "learners": [asdict(v) for v in visits]}
    write_text(given.out, json.dumps(data, indent=1) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
