# SPDX-License-Identifier: MIT
"""Seconds of the kernel dojo's grader for a right solution of each puzzle, twice: the first call starts its worker.

Run ``python -m benchmarks.kernels.grader [FILE]``; FILE gets the seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rocm_guide.device import accelerator
from rocm_guide.dojo.grading import grade
from tests.dojo.solutions import SOLUTIONS
from tests.mi300x.cells import HEAD, run_cell


def main(path: str | None) -> None:
    """Grade all, print each line, and write the file after each."""
    out: dict[str, object] = {"hardware": accelerator().label(), "seconds": {}}
    for name, code in SOLUTIONS.items():
        call, seconds = run_cell(HEAD + code)[name], []
        for _ in range(2):
            began = time.perf_counter()
            result = grade(call, name)
            seconds.append(round(time.perf_counter() - began, 2))
        said = str(result).splitlines()
        print(name, seconds, said[0], said[-1], flush=True)
        out["seconds"][name] = seconds  # type: ignore[index]
        if path:
            Path(path).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
