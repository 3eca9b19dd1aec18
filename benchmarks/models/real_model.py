# SPDX-License-Identifier: MIT
"""What the notebooks find with a real model, beside what they find with the course's tiny one.

    rocm-guide run 01-19 -p MODEL smollm2 --out DIR --gpu-report REPORT     # on a GPU, about 20 minutes
    python -m benchmarks.models.real_model --keep REPORT DIR                # store its figures, beside those of before
    python -m benchmarks.models.real_model                                  # the table

A figure is what a notebook asks its reader to predict. The tiny model's are those of the stored notebooks, from a CPU.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from rocm_guide.cli.lessons import catalogue, read_notebook

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "benchmarks" / "results" / "smollm2.json"
_FIGURE = re.compile(r"^(.+?): (\S.*); no guess$", re.M)


def figures(notebook: dict[str, Any]) -> dict[str, str]:
    """Return what a notebook without guesses found, by the name of each prediction."""
    outputs = (o for cell in notebook["cells"] for o in cell.get("outputs", []))
    return dict(_FIGURE.findall("".join("".join(o.get("text", "")) + "\n" for o in outputs)))


def keep(report: Path, folder: Path) -> None:
    """Store the figures of each notebook of the folder that the report calls whole."""
    found, seen = json.loads(STORED.read_text()) if STORED.exists() else {}, json.loads(report.read_text())
    files = {lesson.number: folder / lesson.path.name for lesson in catalogue()}
    for row in seen["rows"]:
        number, parameters = row["notebook"], row["parameters"]
        if row["status"] == "ok" and parameters.get("MODEL") == "smollm2" and files[number].exists():
            kept = {k: v for k, v in parameters.items() if k not in ("MODEL", "RUN")}
            machine = seen["machines"][row["hardware"]]
            found[number] = {
                "figures": figures(json.loads(files[number].read_text())),
                "parameters": kept,
                "hardware": row["hardware"],
                "day": machine["day"],
                "versions": machine["versions"],
            }
    STORED.write_text(json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def table() -> str:
    """Return both models' figures, a row each."""
    rows = ["| notebook | figure | tiny, on a CPU | SmolLM2 135M | on |", "|---|---|---|---|---|"]
    tiny = {lesson.number: figures(read_notebook(lesson.path)) for lesson in catalogue()}
    for number, entry in json.loads(STORED.read_text()).items():
        on = entry["hardware"].partition(" (")[0] + "".join(f", {k}={v}" for k, v in entry["parameters"].items())
        for name, value in entry["figures"].items():
            rows.append(f"| {number} | {name} | {tiny[number].get(name, '')} | {value} | {on} |")
    return "\n".join(rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs=2, type=Path, metavar=("REPORT", "DIR"))
    given = parser.parse_args()
    if given.keep:
        keep(*given.keep)
    print(table())


if __name__ == "__main__":
    main()
