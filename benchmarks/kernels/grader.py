# SPDX-License-Identifier: MIT
"""How long does the kernel dojo take to grade a right solution of each puzzle, and to compile and report a kernel?

    python -m benchmarks.kernels.grader [--out FILE] [NAME ...]

Each puzzle is graded in a fresh process with empty caches: the first grade starts the grader's worker and compiles,
the second finds both. Seconds by the clock, the better of two processes, and for the first grade CPU seconds too (user
and system, the worker and its forks included) from the call to the end of the process. Then all solutions'
kernels are compiled for gfx942 with an empty cache, one after the other in one process, after one that is not counted:
CPU seconds of each compile with its report. On a machine with a GPU the grades include their times
there. Prints a table, and writes results/grader_cpu.json (on a GPU, give --out) with the versions and the hardware;
with names, only those puzzles are graded and nothing is compiled by itself.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cdna.testing import HEAD, run_cell
from rocm_guide.common.base import write_text
from rocm_guide.common.device import accelerator
from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.dojo import LISTINGS, PATH, grade
from tests.dojo.solutions import SOLUTIONS
from tests.dojo.test_listings import RIGHT

ROOT = Path(__file__).resolve().parents[2]
GRADE_AIM, LATER_AIM, COMPILE_AIM = 6.0, 3.0, 1.5  # seconds
_STEP = "import sys; from benchmarks.kernels.grader import {0}; {0}(*sys.argv[1:])"


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def solution(name: str) -> Any:
    """Return a right solution: a function as from a cell, or the text of a listing."""
    return RIGHT[name][0] if name in LISTINGS else run_cell(HEAD + SOLUTIONS[name])[name]


def grade_once_or_twice(name: str, times: str) -> None:
    """In a process of its own: grade; print the CPU seconds before, and the seconds of each grade, as JSON."""
    call, seconds = solution(name), []
    before = _cpu(resource.RUSAGE_SELF) + _cpu(resource.RUSAGE_CHILDREN)
    for _ in range(int(times)):
        began = time.perf_counter()
        result = grade(call, name)
        seconds.append(time.perf_counter() - began)
        assert result.passed, str(result)
    print(json.dumps({"before": before, "seconds": seconds}))


def compile_all() -> None:
    """In a process of its own: CPU seconds of each kernel's compile and report, as JSON."""
    import torch

    from cdna.dry_run import dry_run
    from rocm_guide.dojo import PUZZLES

    calls = {name: (solution(name), PUZZLES[name].shape) for name in PUZZLES}
    found = {}
    with dry_run("gfx942", device="meta"):
        solution("copy")(torch.empty(64, dtype=torch.float16, device="cuda"))  # the compiler itself is loaded
    for name, (call, shape) in calls.items():
        with dry_run("gfx942", device="meta") as run:
            arguments = shape("cuda")
            began = _cpu(resource.RUSAGE_SELF) + _cpu(resource.RUSAGE_CHILDREN)
            call(*arguments)
            took = _cpu(resource.RUSAGE_SELF) + _cpu(resource.RUSAGE_CHILDREN) - began
        found[name] = {"kernels": run.kernels, "cpu_s_each": round(took / max(1, len(run.reports)), 3)}
    print(json.dumps(found))


def _fresh(step: str, *words: str) -> tuple[Any, float]:
    """Return what a step printed, and CPU seconds of its process and all that it waited for; every cache is empty."""
    before = _cpu(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TRITON_CACHE_DIR": f"{folder}/triton", "ROCM_GUIDE_CACHE": f"{folder}/guide"}
        command = [sys.executable, "-c", _STEP.format(step), *words]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{step} {' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), _cpu(resource.RUSAGE_CHILDREN) - before


def measure(name: str) -> dict[str, float]:
    """First and second grade of a puzzle by the clock, and the first in CPU seconds."""
    (one, cpu), (two, _) = _fresh("grade_once_or_twice", name, "1"), _fresh("grade_once_or_twice", name, "2")
    return {
        "first_s": round(min(one["seconds"][0], two["seconds"][0]), 2),
        "first_cpu_s": round(cpu - one["before"], 2),
        "second_s": round(two["seconds"][1], 2),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="puzzles; all if none")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/grader_cpu.json")
    given = parser.parse_args()
    everything = [step.puzzle for step in PATH]
    if unknown := set(given.names) - set(everything):
        parser.error(f"no such puzzle: {', '.join(sorted(unknown))}")
    old = json.loads(given.out.read_text()) if given.names and given.out.exists() else {}
    grades = old.get("grades", {})
    asked = f"aim: first <= {GRADE_AIM:g} s, second <= {LATER_AIM:g}"
    print(f"{'puzzle':<20}{'first, s':>10}{'CPU s':>8}{'second, s':>11}   {asked}")
    for name in given.names or everything:
        grades[name] = found = measure(name)
        late = "" if found["first_s"] <= GRADE_AIM and found["second_s"] <= LATER_AIM else "   too long"
        print(f"{name:<20}" + "".join(f"{found[k]:>{w}.2f}" for k, w in zip(found, (10, 8, 11), strict=True)) + late)
    compiled = old.get("compiles", {}) if given.names else _fresh("compile_all")[0]
    for name, one in sorted(compiled.items(), key=lambda item: -item[1]["cpu_s_each"])[:8]:
        late = "" if one["cpu_s_each"] <= COMPILE_AIM else "   too long"
        print(f"compile and report, CPU s: {one['cpu_s_each']:.2f}  {name} ({', '.join(one['kernels'])}){late}")
    versions = {n: importlib.metadata.version(n) for n in ("numpy", "torch", "triton")}
    gpu = accelerator().label() if accelerator().is_gpu else ""
    what = (
        "grades of right solutions in fresh processes with empty caches, by the clock and in CPU seconds (worker "
        "included); compile and report of each kernel for gfx942 in CPU seconds, empty cache"
    )
    stamp = {"hardware": gpu or describe_cpu(), "host": host_facts(), "versions": versions}
    aims = {"grade_s": GRADE_AIM, "later_grade_s": LATER_AIM, "compile_and_report_cpu_s": COMPILE_AIM}
    text = json.dumps({"question": what, **stamp, "aims": aims, "grades": grades, "compiles": compiled}, indent=1)
    write_text(given.out, text + "\n")


if __name__ == "__main__":
    main()
