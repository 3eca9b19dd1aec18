# SPDX-License-Identifier: MIT
"""One model of true size through the course: fine-tuned (02), merged (03), quantised (06) and served (12), in one run.

    python -m benchmarks.models.whole_chain --model random:tinyllama-1.1b --out DIR   # on a GPU
    python -m benchmarks.models.whole_chain --model tiny --out DIR                    # on a CPU: does all of it run?
    python -m benchmarks.models.whole_chain --out DIR --notebooks 18                  # goes on with the run in DIR
    python -m benchmarks.models.whole_chain --out DIR --serve gptq-4bit --beside      # 12 beside the end of 06

The code cells of the notebooks run in plain Python, one process each (benchmarks/run_cells.py); a notebook that fails
is named, and those after it run all the same. What comes back is the run's passport with the seconds of each notebook,
written anew after each, as benchmarks/results/whole_chain.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.models.list_questions import rows
from rocm_guide.common.base import write_text

ROOT = Path(__file__).parents[2]
#: By notebook, the parameters of a true-size model on one GPU.
PARAMETERS = {
    "02": ["RANK=64", "LENGTH=1024", "BATCH=8", "EPOCHS=1"],
    "03": ["PROMPTS=4", "NEW_TOKENS=32"],
    "10": ["SAMPLES=32", "LENGTH=1024"],
    "18": ["USERS=[1, 8]", "SCALE=tiny"],  # 16 requests at each level of load, not 64
}


def run_notebook(number: str, given: list[str], log: Path) -> dict[str, Any]:
    """Run one notebook in a process of its own; seconds, exit code, and the last line where it failed."""
    (notebook,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    command = [sys.executable, "-m", "benchmarks.run_cells", str(notebook), *given]
    began = time.perf_counter()
    with log.open("w") as out:
        code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    done: dict[str, Any] = {"notebook": notebook.stem, "seconds": round(time.perf_counter() - began, 1), "code": code}
    if code:
        done["last_line"] = (log.read_text().strip().splitlines() or ["nothing was printed"])[-1][:300]
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="random:tinyllama-1.1b")
    parser.add_argument("--out", type=Path, required=True, help="folder for the run, its logs and passport.json")
    parser.add_argument("--notebooks", nargs="+", choices=list(PARAMETERS), default=list(PARAMETERS))
    parser.add_argument("--serve", default="merged", help="what 12 serves: merged, gptq-4bit")
    parser.add_argument("--beside", action="store_true", help="12 begins when 06 has kept what it serves")
    parser.add_argument("--rows", type=int, default=2250, help="rows of the data set that is made here")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    common = [f"MODEL={options.model}", f"RUN={out / 'run'}"]
    if options.model != "tiny":
        write_text(out / "rows.jsonl", "\n".join(json.dumps(row) for row in rows(options.rows)) + "\n")
        common.append(f"DATASET={out / 'rows.jsonl'}")
    kept = out / "passport.json"
    before = json.loads(kept.read_text())["notebooks"] if kept.exists() else []
    notebooks = [done for done in before if done["notebook"][:2] not in options.notebooks]

    def in_turn(number: str, last: Future[dict[str, Any]] | None) -> dict[str, Any]:
        given = common + ([] if options.model == "tiny" else PARAMETERS[number])
        given += [f"SERVE={options.serve}"] * (number == "18")
        if options.beside and number == "18" and last:
            # A stage of a run is kept whole or not at all: 06 measures the checkpoint while 12 already serves it.
            while not (last.done() or (out / "run" / options.serve).exists()):
                time.sleep(0.5)
        elif last:
            last.result()
        beside = {"beside": options.notebooks[-2]} if last and not last.done() else {}
        return run_notebook(number, given, out / f"{number}.txt") | beside

    with ThreadPoolExecutor(len(options.notebooks)) as pool:
        jobs: list[Future[dict[str, Any]]] = []
        for number in options.notebooks:
            jobs.append(pool.submit(in_turn, number, jobs[-1] if jobs else None))
        for job in jobs:
            notebooks.append(job.result())
            print(json.dumps(notebooks[-1]), flush=True)
            passport = json.loads((out / "run" / "passport.json").read_text())
            write_text(kept, json.dumps(passport | {"notebooks": notebooks}, indent=1) + "\n")
    sys.exit(any(done["code"] for done in notebooks))


if __name__ == "__main__":
    main()
