# SPDX-License-Identifier: MIT
"""`rocm-guide run`: execute chosen notebooks into a folder, keep a report, resume what an earlier run left open."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from course.gpu_report import code_hash
from course.html import link_pages
from course.parameters import parameters_for
from course.pool import Job, Pool, default_jobs
from course.report import hardware, is_current, load_report, package_digest, save_report, versions
from rocm_guide.cli.lessons import Lesson, read_notebook, source_hash
from rocm_guide.common.base import GuideError, write_bytes
from rocm_guide.common.host import host_facts
from rocm_guide.common.installation import install_fix

__all__ = ["check_runnable", "run_course"]

_TRAINS = "02"  # the notebook that fine-tunes the model of a run
Listener = Callable[[str, dict[str, Any]], None]


def check_writable(out: Path) -> None:
    """Make sure of the output folder before an hour of work goes into it.

    Raises:
        GuideError: it cannot be made or written to.
    """
    made = not out.exists()
    try:
        # Written, not only asked for: permissions alone do not tell of a full or read-only disk.
        write_bytes(out / ".probe", b"x" * 4096).unlink()
    except GuideError as e:
        if made and out.is_dir() and not any(out.iterdir()):
            out.rmdir()
        reason = str(e).split("(")[-1].split(")")[0]
        raise GuideError(f"{out}: cannot be written ({reason}); choose another folder with --out") from e


def check_runnable() -> None:
    """Make sure that the libraries that execute notebooks are there: the bare package comes without them.

    Raises:
        GuideError: some are missing.
    """
    needed = ("papermill", "nbclient", "nbformat", "nbconvert", "latex2mathml", "ipykernel", "psutil")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        fix = install_fix([name.replace("_", "-") for name in missing])
        raise GuideError(f"{', '.join(missing)}: not installed, and needed to execute notebooks; {fix}")


@contextmanager
def refuse_interrupts() -> Iterator[None]:
    """Let no second Ctrl-C cut off the clearing up after the first one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wanted(nb: dict[str, Any], parameters: dict[str, Any], found: dict[str, str], digest: str) -> dict[str, Any]:
    # What a result must have come from to count as current.
    return {"source": source_hash(nb), "parameters": parameters, "versions": found, "package": digest}


def run_course(
    lessons: Sequence[Lesson],
    out: Path,
    *,
    given: Sequence[tuple[str, str]] = (),
    jobs: int | None = None,
    resume: bool = False,
    listener: Listener = lambda number, event: None,
) -> dict[str, Any]:
    """Execute ``lessons`` and write, for each, the executed notebook and a page of HTML; and one report.

    Args:
        lessons: what to run, from :func:`rocm_guide.cli.lessons.catalogue`.
        out: folder for the results; made if it does not exist.
        given: parameters as (name, text) pairs; each goes to the notebooks that have it.
        jobs: how many at once; see :func:`course.pool.default_jobs`.
        resume: keep results in ``out`` that are complete and came from the same source, parameters and versions.
        listener: called with (number, event) for every event: start, plan, cell, done, and "kept" for a kept result.

    Returns:
        the report: hardware, versions, and per notebook its status (ok, failed, refused, stopped, missing), seconds,
        peak_mib and failure. ``report["interrupted"]`` says whether Ctrl-C ended the run.

    Raises:
        GuideError: bad parameters, a folder or disk that cannot be written. Nothing keeps running.
    """
    check_runnable()
    taken = parameters_for(lessons, given)
    pool_size = default_jobs(len(lessons)) if jobs is None else jobs
    # Threads: one per notebook unless a single large model has the machine to itself.
    alone = pool_size == 1 and any(n == "MODEL" and v != "tiny" for n, v in given)
    pool = Pool(pool_size, one_thread=not alone)
    check_writable(out)
    found, digest = versions(), package_digest()
    report: dict[str, Any] = {
        "hardware": hardware(),
        "host": host_facts(),
        "versions": found,
        "parameters": [list(pair) for pair in given],
        "jobs": pool_size,
        "installed_in": _installed_in(),
        "ran_in": None,
        "interrupted": False,
        "notebooks": {},
    }
    earlier = load_report(out)["notebooks"] if resume else {}
    entries: dict[str, dict[str, Any]] = report["notebooks"]
    entries.update(earlier)
    todo = []
    # The longest first, so that all jobs end at about the same time; one after the other, in the reading order.
    longest = sorted(lessons, key=lambda x: -(x.seconds or math.inf)) if pool_size > 1 else lessons
    notebooks = {lesson.number: read_notebook(lesson.path) for lesson in longest}
    # 02 trains what others go on with. While it is at work they would train it, too, and 02 would find it there.
    goes_on = {number for number, nb in notebooks.items() if "open_run(" in json.dumps(nb["cells"])}
    if pool_size > 1 and _TRAINS in goes_on:
        longest = sorted(longest, key=lambda x: x.number != _TRAINS)
    for lesson in longest:
        nb = notebooks[lesson.number]
        wanted = _wanted(nb, taken[lesson.number], found, digest)
        if resume and is_current(earlier.get(lesson.number), wanted, out):
            listener(lesson.number, {"event": "kept"})
            continue
        stem = lesson.path.stem
        entry = {"number": lesson.number, "title": lesson.title, "status": "missing", "code": code_hash(nb), **wanted}
        entries[lesson.number] = entry
        html, after = out / f"{stem}.html", _TRAINS if lesson.number in goes_on - {_TRAINS} else ""
        todo.append(Job(lesson.number, lesson.path, out / f"{stem}.ipynb", html, taken[lesson.number], after))
    save_report(report, out)
    _execute(pool, todo, report, out, listener)
    pages = [(e["html"], f"{n} {e['title']}") for n, e in sorted(entries.items()) if e.get("html")]
    link_pages(out, [(file, title) for file, title in pages if (out / file).is_file()])
    return report


def _installed_in() -> float | None:
    """Return the seconds that `make course` spent on the installation just now; None if all was there."""
    try:
        return float(os.environ.get("ROCM_GUIDE_INSTALLED_IN", ""))
    except ValueError:
        return None


def _execute(pool: Pool, todo: Sequence[Job], report: dict[str, Any], out: Path, listener: Listener) -> None:
    entries, files = report["notebooks"], {job.number: job for job in todo}
    began = time.monotonic()
    try:
        with closing(pool.run(todo)) as events:
            for number, event in events:
                if event["event"] == "start":
                    entries[number]["status"] = "stopped"  # true until it is done
                if event["event"] == "done":
                    entries[number].update({k: v for k, v in event.items() if k not in ("event", "written")})
                    if event.get("written"):
                        entries[number].update(notebook=files[number].out.name, html=f"{files[number].out.stem}.html")
                    report["ran_in"] = round(time.monotonic() - began, 1)
                    save_report(report, out)
                listener(number, event)
    except KeyboardInterrupt:
        with refuse_interrupts():
            pool.stop()
            report["interrupted"] = True
            save_report(report, out)
    finally:
        # A worker killed while it wrote leaves its temporary file behind (see base.whole_file).
        for job in todo:
            for path in out.glob(f".{job.out.stem[:60]}.*.tmp*"):
                path.unlink(missing_ok=True)
