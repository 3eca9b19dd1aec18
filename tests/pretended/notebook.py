# SPDX-License-Identifier: MIT
"""Notebooks on a pretended MI300X, cell by cell: ``python -m tests.pretended.notebook 02 03`` from the project's folder.

Every notebook runs in a process of its own, a copy of one that has imported what most of them import. A line of JSON
tells of each cell that did not run to its end, and of each notebook; a cell that fails does not end its notebook.
"""

from __future__ import annotations

import contextlib
import io
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

from tests.pretended.left_out import CLOCK, LEFT_OUT, SHRUNK, SMALL, SMALL_SHAPE, LeftOut

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
#: Seconds of processor time that one cell may take.
LONGEST = float(os.environ.get("PRETENDED_SECONDS", "60"))


def _listed(table: Sequence[LeftOut], number: str, source: str) -> LeftOut | None:
    return next((row for row in table if row.notebook == number and row.phrase in source), None)


def _shrunk(number: str, source: str) -> str:
    for row in SHRUNK:
        if row.notebook == number:
            source = source.replace(row.large, row.small)
    return source


def stale_rows() -> list[tuple[str, str]]:
    """Rows of the tables (notebook, phrase) whose phrase is not in exactly one cell."""
    rows = [(row.notebook, row.phrase) for row in (*LEFT_OUT, *CLOCK)] + [(row.notebook, row.large) for row in SHRUNK]
    return [(number, phrase) for number, phrase in rows if sum(phrase in s for _, s, _ in code_cells(number)) != 1]


def code_cells(number: str) -> list[tuple[int, str, bool]]:
    """The code cells of a notebook: place among all cells, source, and whether it is the one of parameters."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (i, "".join(c["source"]), "parameters" in c["metadata"].get("tags", []))
        for i, c in enumerate(cells)
        if c["cell_type"] == "code"
    ]


class TooLong(BaseException):
    """A cell has used its time."""


def _too_long(*_: Any) -> None:
    raise TooLong(f"not done after {LONGEST:g} s of processor time")


def _where(error: BaseException) -> list[str]:
    """The last places in the traceback, as file:line."""
    return [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-5:]


def run_notebook(number: str) -> Iterator[dict[str, Any]]:
    """Run the cells of a notebook in this process, and tell of each what came of it."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.showtraceback = lambda *args, **kwargs: None  # type: ignore[method-assign]
    signal.signal(signal.SIGPROF, _too_long)
    for index, source, parameters in code_cells(number):
        told: dict[str, Any] = {"notebook": number, "cell": index}
        if row := _listed(LEFT_OUT, number, source):
            yield {**told, "status": "left out", "why": row.why}
            continue
        began, text = time.process_time(), io.StringIO()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        error: BaseException | None = None
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                done = shell.run_cell(_shrunk(number, source), store_history=False)
                error = done.error_before_exec or done.error_in_exec
                if parameters:
                    shell.user_ns.update(SMALL.get(number, {}))
        except TooLong as e:
            error = e
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        told["seconds"] = round(time.process_time() - began, 2)
        row = _listed(CLOCK, number, source)
        if error is None:
            yield {**told, "status": "ok"}
        elif row and isinstance(error, AssertionError):
            yield {**told, "status": "forgiven", "why": row.why}
        else:
            name, said = type(error).__name__, str(error).strip()
            yield {**told, "status": "failed", "error": name, "message": said[:2000], "where": _where(error)}


def _child(number: str, scratch: Path) -> None:
    """In a process of its own: run one notebook and write what came of it to standard output."""
    from rocm_guide.course.pool import child_environment

    os.environ.update(child_environment(scratch, "pretended", one_thread=True, models=scratch))
    tempfile.tempdir = None
    os.chdir(FOLDER)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    if "--show" not in sys.argv:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    began = time.process_time()
    for told in run_notebook(number):
        out.write(json.dumps(told) + "\n")
    out.write(json.dumps({"notebook": number, "seconds": round(time.process_time() - began, 1)}) + "\n")


def main(numbers: Sequence[str]) -> int:
    """Run notebooks one after the other; the exit code is 0 where every process came to its end."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from tests.pretended.gpu import pretended_gpu

    wrong = 0
    with pretended_gpu():
        import matplotlib.pyplot  # noqa: F401
        import peft  # noqa: F401
        import transformers.models.llama.modeling_llama  # noqa: F401
        import trl  # noqa: F401

        from rocm_guide.zoo.shapes import SHAPES

        SHAPES["small"] = SHAPES["llama-2-7b"] | SMALL_SHAPE
        for number in numbers:
            with tempfile.TemporaryDirectory(prefix="pretended-") as scratch:
                sys.stdout.flush()
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        _child(number, Path(scratch))
                        code = 0
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(code)
                _, status = os.waitpid(child, 0)
                if status:
                    print(json.dumps({"notebook": number, "status": "died", "code": os.waitstatus_to_exitcode(status)}))
                    wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main([a for a in sys.argv[1:] if not a.startswith("-")]))
