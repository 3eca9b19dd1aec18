# SPDX-License-Identifier: MIT
"""Shared by all tests: quiet threads, a plot backend without a window, and small notebooks made on the spot."""

import gc
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from course.cpu_time import CpuTime, busy_note, cpu_time
from course.pool import inductor_folder
from rocm_guide.finetune.all_reduce import switch_on_loopback
from tests.in_turn import deal_out

# Before any test imports torch or matplotlib: two test processes share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Inductor's helper processes each import torch, for cores that are taken already.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Torch's own folder is shared by runs for other vectors of the processor, and what it returns is then wrong.
if compiled := inductor_folder():
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled))

# Ten thousand tests and the libraries are objects that stay: to look through them all again and again is a fifth of the
# time that collecting the tests takes.
gc.set_threshold(50_000, 20, 100)

# A shell that starts the tests in the background hands down an ignored Ctrl-C, and so would every process that tests
# start: those that prove what Ctrl-C does would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What `make test` has unpacked for this run or an earlier one (IN_TURN in the Makefile); the machine's own go first.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), str(Path(__file__).parents[1] / "build/tools/bin")])

# In a network namespace of its own (`unshare -n`) a machine starts with even the loopback interface off; processes that
# train together need it. Where it cannot be switched on, each of those tests says so itself.
switch_on_loopback()


WORKERS = pytest.StashKey[list]()


def pytest_sessionfinish(session):
    """A worker of pytest-xdist tells what the processor gave it."""
    if hasattr(session.config, "workeroutput"):
        own = cpu_time()
        session.config.workeroutput["cpu"] = own.ran, own.waited


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    told = getattr(node, "workeroutput", {}).get("cpu")
    if told:
        node.config.stash.setdefault(WORKERS, []).append(CpuTime(*told))


def pytest_terminal_summary(terminalreporter, config):
    """A failure or a slow test on a machine that had no time for us is to be seen in that light."""
    if not hasattr(config, "workeroutput"):
        total = sum(config.stash.get(WORKERS, []) or [cpu_time()], CpuTime())
        terminalreporter.write_line(
            busy_note(total, "tests")
            or f"the tests got {100 * total.share:.0f} % of the processor time that they asked for"
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Deal out the slow tests over runs; each worker begins with its notebooks, the longest first, and ends with short
    tests.

    pytest-xdist gives every worker a run of equally many tests, and later those that another has not begun.
    """
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("notebooks"):
            deal_out(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    notebooks = sorted((i for i in items if i.get_closest_marker("notebooks")), key=_seconds, reverse=True)
    rest, ordered = [i for i in items if not i.get_closest_marker("notebooks")], []
    for worker in range(workers if workers > 1 else 0):
        first = notebooks[worker::workers]
        more = max(0, (len(items) - len(ordered)) // (workers - worker) - len(first))
        ordered += [*first, *rest[:more]]
        rest = rest[more:]
    if ordered and not rest:
        items[:] = ordered


def _seconds(item):
    """How long a notebook took when its outputs were stored; a minute if nobody knows."""
    lesson = item.callspec.params.get("lesson") if hasattr(item, "callspec") else None
    return getattr(lesson, "seconds", None) or 60.0


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test starts from the same seed, whatever ran before it: a failure must come back when the test is run."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


FIRST = """# {number} · {topic}

Why this is here.

**You will be able to**
- read a test

| | |
|---|---|
| Level | first steps |
| Time and memory | <!-- measured --><!-- /measured --> |
| On an MI300X | the same |
| Covers | S0 setup |
"""


def _cell(kind, source, tags=()):
    cell = {"cell_type": kind, "id": f"c{abs(hash(source)) % 10**8}", "metadata": {}, "source": source}
    if tags:
        cell["metadata"]["tags"] = list(tags)
    if kind == "code":
        cell.update(outputs=[], execution_count=None)
    return cell


@pytest.fixture
def make_notebook(tmp_path):
    """``make_notebook("07_topic", "x = 1", parameters="N = 3")`` writes a notebook and returns its path."""

    def make(stem, *code, parameters="SCALE = 'auto'", folder=None, tags=()):
        number, topic = stem.split("_", 1)
        cells = [_cell("markdown", FIRST.format(number=number, topic=topic))]
        cells.append(_cell("code", parameters, ["parameters"]))
        cells.append(_cell("markdown", "## Work"))
        cells += [_cell("code", source, tags) for source in code]
        nb = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        folder = folder or tmp_path / "notebooks"
        folder.mkdir(exist_ok=True)
        path = folder / f"{stem}.ipynb"
        path.write_text(json.dumps(nb))
        return path

    return make
