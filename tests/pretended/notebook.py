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

from tests.pretended.left_out import CLOCK, LEFT_OUT, SMALL, LeftOut

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
#: Seconds that one cell may take.
LONGEST = int(os.environ.get("PRETENDED_SECONDS", "240"))


def _listed(table: Sequence[LeftOut], number: str, source: str) -> LeftOut | None:
    return next((row for row in table if row.notebook == number and row.phrase in source), None)


def stale_rows(number: str, sources: Sequence[str]) -> list[LeftOut]:
    """Rows of the tables of cells whose phrase is not in exactly one cell of this notebook."""
    rows = [row for row in (*LEFT_OUT, *CLOCK) if row.notebook == number]
    return [row for row in rows if sum(row.phrase in source for source in sources) != 1]


class TooLong(BaseException):
    """A cell has used its time."""


def _too_long(*_: Any) -> None:
    raise TooLong(f"not done after {LONGEST} s")


def _where(error: BaseException) -> list[str]:
    """The last places in the traceback, as file:line."""
    return [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-5:]


def run_notebook(path: Path, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the cells of a notebook in this process, and tell of each what came of it."""
    from IPython.core.interactiveshell import InteractiveShell

    number = path.name[:2]
    shell = InteractiveShell.instance()
    shell.showtraceback = lambda *args, **kwargs: None  # type: ignore[method-assign]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    signal.signal(signal.SIGALRM, _too_long)
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        told: dict[str, Any] = {"notebook": number, "cell": index}
        if row := _listed(LEFT_OUT, number, source):
            yield {**told, "status": "left out", "why": row.why}
            continue
        began, text = time.monotonic(), io.StringIO()
        signal.alarm(LONGEST)
        error: BaseException | None = None
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                done = shell.run_cell(source, store_history=False)
                error = done.error_before_exec or done.error_in_exec
                if "parameters" in cell["metadata"].get("tags", []):
                    shell.user_ns.update(parameters)
        except TooLong as e:
            error = e
        finally:
            signal.alarm(0)
        told["seconds"] = round(time.monotonic() - began, 2)
        row = _listed(CLOCK, number, source)
        if error is None:
            yield {**told, "status": "ok"}
        elif row and isinstance(error, AssertionError):
            yield {**told, "status": "forgiven", "why": row.why}
        else:
            name, said = type(error).__name__, str(error).strip()
            yield {**told, "status": "failed", "error": name, "message": said[:2000], "where": _where(error)}


def _child(path: Path, scratch: Path) -> None:
    """In a process of its own: run one notebook and write what came of it to standard output."""
    from rocm_guide.course.pool import child_environment

    os.environ.update(child_environment(scratch, "pretended", one_thread=True, models=scratch))
    tempfile.tempdir = None
    os.chdir(FOLDER)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    if "--show" not in sys.argv:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    began = time.monotonic()
    for told in run_notebook(path, SMALL.get(path.name[:2], {})):
        out.write(json.dumps(told) + "\n")
    out.write(json.dumps({"notebook": path.name[:2], "seconds": round(time.monotonic() - began, 1)}) + "\n")


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

        for number in numbers:
            (path,) = FOLDER.glob(f"{number}_*.ipynb")
            with tempfile.TemporaryDirectory(prefix="pretended-") as scratch:
                sys.stdout.flush()
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        _child(path, Path(scratch))
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
