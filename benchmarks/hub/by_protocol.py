# SPDX-License-Identifier: MIT
"""Twenty learners on one hub, by protocol: how long a server takes to start, and what each learner's processes hold.

    python -m benchmarks.hub.by_protocol [--learners 20] [--running 5] [--notebook 01] [--out FILE]

Needs what `make hub` installs. One after the other the learners log in and start a server; when all of them have one,
the memory of each is read. Then the first `--running` of them run a notebook's code cells at once, and the largest
memory of each is kept. Before every cell the machine must have 2 GiB left; if not, the rest is not run and the file
says so. Memory is the proportional set size: what processes share is divided by those who share it, so that the sum
over all learners is what the machine really gives. Writes results/hub_by_protocol.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.hub.stamp import MIB, stamp
from benchmarks.timing import RESULTS
from rocm_guide.common.base import write_text
from rocm_guide.common.host import memory_available
from tests.hub.running_hub import MISSING, ROOT, Hub, hub_is_installed

_LEFT = 2 * 2**30


def start(hub: Hub, name: str) -> dict[str, Any]:
    """Log in and wait for JupyterLab; return the seconds, and the CPU seconds of the learner's processes."""
    learner = hub.learner(name)
    learner.log_in()
    began = time.monotonic()
    learner.ask_for_server()
    learner.wait_until_ready(900)
    seconds = time.monotonic() - began
    return {"name": name, "start_s": round(seconds, 1), "start_cpu_s": round(hub.cpu(name), 1), "learner": learner}


def run_notebook(hub: Hub, row: dict[str, Any], sources: list[str], peak: dict[str, int]) -> None:
    """Run the cells of a notebook in a learner's kernel; what went wrong and how far it came go into ``row``."""
    learner = row["learner"]
    learner.new_kernel()
    before, began = hub.cpu(row["name"]), time.monotonic()
    row["cells"] = 0
    for source in sources:
        if memory_available()[0] < _LEFT:
            row["stopped"] = "less than 2 GiB of memory were left"
            break
        learner.run(source, seconds=3600)
        if learner.errors:
            row["error"] = learner.errors[0][:300]
            break
        row["cells"] += 1
    row["run_s"], row["run_cpu_s"] = round(time.monotonic() - began), round(hub.cpu(row["name"]) - before, 1)
    row["peak_mib"] = round(max(peak[row["name"]], hub.memory(row["name"])) / MIB)


def main() -> int:
    """Hold the class, print, write: 0 if every cell ran, 1 if one failed, 2 if JupyterHub is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hub.by_protocol", description=__doc__)
    parser.add_argument("--learners", type=int, default=20)
    parser.add_argument("--running", type=int, default=5)
    parser.add_argument("--notebook", default="01")
    parser.add_argument("--out", type=Path, default=RESULTS / "hub_by_protocol.json")
    given = parser.parse_args()
    if not hub_is_installed():
        print(MISSING, file=sys.stderr)
        return 2
    path = next((ROOT / "notebooks").glob(f"{given.notebook}_*.ipynb"))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    folder = Path(tempfile.mkdtemp(prefix="rocm-guide-class-"))
    about, free = stamp(), memory_available()[0]
    hub = Hub(folder, gpus=max(1, -(-given.learners // 8)), compute="CPX")
    try:
        rows = []
        for n in range(given.learners):
            rows.append(start(hub, f"learner{n:02d}"))
            if not n:
                time.sleep(5)
                rows[0]["alone_mib"] = round(hub.memory("learner00") / MIB)
            print(f"{rows[-1]['name']}: JupyterLab after {rows[-1]['start_s']} s", flush=True)
        for row in rows:
            row["idle_mib"] = round(hub.memory(row["name"]) / MIB)
        idle_taken = free - memory_available()[0]
        own = round(hub.memory() / MIB)
        busy, over = rows[: given.running], threading.Event()
        peak = {row["name"]: 0 for row in busy}

        def watch() -> None:
            while not over.wait(3):
                for name in peak:
                    peak[name] = max(peak[name], hub.memory(name))

        watching = threading.Thread(target=watch)
        watching.start()
        with ThreadPoolExecutor(max(1, len(busy))) as pool:
            for done in [pool.submit(run_notebook, hub, row, sources, peak) for row in busy]:
                done.result()
        over.set()
        watching.join()
    finally:
        hub.end()
        shutil.rmtree(folder, ignore_errors=True)
    for row in rows:
        row.pop("learner")
    idle = statistics.median(row["idle_mib"] for row in rows)
    totals = {
        "hub_mib": own,
        "idle_mib_median": idle,
        "idle_mib_all": sum(row["idle_mib"] for row in rows),
        "machine_gave_idle_mib": round(idle_taken / MIB),
        "peak_mib_running": [row["peak_mib"] for row in busy],
    }
    question = "learners on one hub: seconds until JupyterLab, memory (PSS, MiB) idle and while a notebook runs"
    data = {"question": question, **about, "notebook": path.name, "cells": len(sources), **totals, "learners": rows}
    write_text(given.out, json.dumps(data, indent=1) + "\n")
    print(json.dumps(totals))
    failed = [row for row in busy if "error" in row]
    print(*(f"{row['name']}: {row['error']}" for row in failed), f"{len(failed)} learners met an error", sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
