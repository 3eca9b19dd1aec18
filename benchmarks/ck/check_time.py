# SPDX-License-Identifier: MIT
"""CPU time of one ``check(instance, problem)``: presets and 200 random instances, half of them impossible.

    python -m benchmarks.ck.check_time       # a second; writes results/ck_check_time.json

Each pair is checked as a caller does it, with an instance that nothing has looked at yet (what follows from the
parameters is remembered in the instance); the least of 20 runs counts, because a busy machine can only add to them.
"""

from __future__ import annotations

import itertools
import json
import platform
import statistics
import time
from pathlib import Path

from rocm_guide.common.base import write_text
from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.tune.ck.instance import GemmInstance, Problem
from rocm_guide.tune.ck.presets import PRESETS
from rocm_guide.tune.ck.rules import check
from tests.tune.ck.random_instances import random_instances

RESULT = Path(__file__).parents[1] / "results/ck_check_time.json"
RUNS = 20


def microseconds(instance: GemmInstance, problem: Problem) -> float:
    """Return the microseconds of one call, on a fresh instance each time."""
    least = float("inf")
    for _ in range(RUNS):
        fresh = instance.but()
        began = time.thread_time_ns()
        check(fresh, problem)
        least = min(least, (time.thread_time_ns() - began) / 1e3)
    return least


def main() -> None:
    problem = Problem(3840, 4096, 4096)
    presets = {name: round(microseconds(instance, problem), 1) for name, instance in PRESETS.items()}
    random = [microseconds(*pair) for pair in itertools.islice(random_instances(0), 200)]
    found = {
        "hardware": describe_cpu(),
        "host": host_facts(),
        "versions": {"python": platform.python_version()},
        "runs": RUNS,
        "microseconds": {
            "presets": presets,
            "random, median": round(statistics.median(random), 1),
            "random, largest": round(max(random), 1),
        },
    }
    print(json.dumps(found["microseconds"], indent=1))
    print(write_text(RESULT, json.dumps(found, indent=1) + "\n"))


if __name__ == "__main__":
    main()
