# SPDX-License-Identifier: MIT
"""Notebooks on a pretended MI300X, cell by cell: ``python -m tests.pretended.notebook 02 03`` where the project is.

Every notebook runs in a process of its own, a fork of one that has imported what most of them import. A cell that fails
does not end its notebook: what follows from it is told too.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.forks import start_fork
from tests.notebooks.cells import code_cells, new_room, run_cell
from tests.pretended.left_out import LEFT_OUT, SHRUNK, SMALL, UNPROVEN, LeftOut

ROOT = Path(__file__).parent.parent.parent
#: Seconds of processor time that one cell may take.
LONGEST = float(os.environ.get("PRETENDED_SECONDS", "300"))
_NAME = "tests.pretended.notebook"
_IMPORTED = ("tests.pretended.begun", "trl.trainer.sft_trainer", "peft", "matplotlib.pyplot", _NAME)


class TooLong(BaseException):
    """A cell has used its time; no cell catches this by accident."""


def _too_long(*_: Any) -> None:
    raise TooLong(f"not done after {LONGEST:g} s of processor time")


def notebook(number: str) -> Path:
    """The file of a notebook of the course, by its number."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    return path


def cells_of(path: Path) -> list[tuple[int, str]]:
    """The code cells of a notebook with its smallest parameters: index among all cells, and source."""
    return list(code_cells(json.loads(path.read_text(encoding="utf-8")), SMALL.get(path.name[:2], {})))


def stale_rows() -> list[tuple[str, str]]:
    """Rows of the tables (notebook, text) whose text is not in exactly one cell."""
    rows = [(row.notebook, row.phrase) for row in (*LEFT_OUT, *UNPROVEN)] + [
        (row.notebook, row.large) for row in SHRUNK
    ]
    return [
        (number, text) for number, text in rows if sum(text in source for _, source in cells_of(notebook(number))) != 1
    ]


def _listed(table: Sequence[LeftOut], number: str, source: str) -> LeftOut | None:
    return next((row for row in table if row.notebook == number and row.phrase in source), None)


def bound(source: str) -> set[str]:
    """The names that a cell binds at its top level or below.

    >>> sorted(bound("import a.b, c as d\\nx, (y, z) = f()\\ndef g(): pass"))
    ['a', 'd', 'g', 'x', 'y', 'z']
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.split(".")[0])
    return found


def _run(path: Path) -> Iterator[dict[str, Any]]:
    """Run the cells of a notebook in this process, and tell of each what came of it."""
    number, room = path.name[:2], new_room()
    missing: set[str] = set()  # names of cells that did not run to their end
    signal.signal(signal.SIGPROF, _too_long)
    for index, source in cells_of(path):
        told: dict[str, Any] = {"notebook": number, "cell": index, "status": "ok"}
        if row := _listed(LEFT_OUT, number, source):
            missing |= bound(source)
            yield told | {"status": "left out", "why": row.why}
            continue
        for row in SHRUNK:
            source = source.replace(row.large, row.small) if row.notebook == number else source
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            run_cell(room, index, source)
        except (Exception, SystemExit, TooLong) as e:  # noqa: BLE001 - whatever a cell raises is the outcome
            row = _listed(UNPROVEN, number, source)
            told["status"] = (
                "follows"
                if isinstance(e, NameError) and e.name in missing
                else "unproven"
                if row and isinstance(e, AssertionError)
                else "failed"
            )
            told |= {"why": row.why} if row else {}
            told |= {"error": type(e).__name__, "message": str(e).strip()[:2000], "traceback": traceback.format_exc()}
            missing |= bound(source)
        else:
            missing -= bound(source)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        yield told | {"seconds": round(time.process_time() - began, 2)}


def main() -> int:
    """In the fork: run the notebook ``sys.argv[1]``, and tell in the folder ``sys.argv[2]`` what came of each cell."""
    path, folder, runs = map(Path, sys.argv[1:])
    os.environ.update(TMPDIR=str(folder / "tmp"), ROCM_GUIDE_RUNS=str(runs))
    tempfile.tempdir = None  # the folder that the environment names now
    os.chdir(path.parent)
    with open(folder / "cells", "w", buffering=1) as out:
        for told in _run(path):
            out.write(json.dumps(told) + "\n")
    return 0


def run_pretended(path: Path, folder: Path, runs: Path | None = None) -> list[dict[str, Any]]:
    """Run a notebook on a pretended MI300X; its files go below ``folder``, which is empty.

    Args:
        path: the notebook.
        runs: where the model lies that travels from notebook to notebook; below ``folder`` when None, so that each
            makes its own.

    Returns:
        For each code cell its index (``cell``), ``status``, ``seconds`` of processor time, and what it raised. The
        status is "ok", "failed", "left out", "unproven" (what it asserts needs the GPU itself) or "follows" (it reads a
        name of a cell that did not run to its end).
    """
    folder = folder.resolve()
    for name in ("out", "err", "cells"):
        (folder / name).touch()
    (folder / "tmp").mkdir()
    settings = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    settings |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cdna'}", "MPLBACKEND": "Agg"}
    settings |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    streams = {"out": folder / "out", "err": folder / "err"}
    fork = start_fork(
        _IMPORTED,
        _NAME,
        [str(path.resolve()), str(folder), str(runs or folder / "runs")],
        settings=settings,
        folder=folder,
        **streams,
    )
    code = fork.wait()
    lines = (folder / "cells").read_text().splitlines()
    if code:
        said = (folder / "err").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"the process of {path.name} ended with {code} after {len(lines)} cells:\n{said}")
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pretended-") as top:
        for chosen in sys.argv[1:]:
            room = Path(top, chosen)
            room.mkdir()
            for cell in run_pretended(notebook(chosen), room, Path(top, "runs")):
                print(json.dumps(cell), flush=True)
