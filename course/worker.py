# SPDX-License-Identifier: MIT
"""One notebook in one process of its own: `python -m course.worker`, started by `course_run`.

It reads a job (one line of JSON) from standard input and writes events (lines of JSON) to standard output:
``plan`` (number of cells), ``cell`` (the next one, with the heading above it), and at last ``done``. When its standard
input closes, the run is over: it kills its kernel and leaves.
"""

from __future__ import annotations

import ast
import errno
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course.html import to_html
from course.memory_meter import MemoryMeter
from rocm_guide.cli.lessons import cell_source
from rocm_guide.common.base import GuideError, package_folder, write_text

__all__ = []

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PATIENCE = 900  # seconds for a kernel to start, and for the last output of a cell that has ended to arrive
Emit = Callable[[dict[str, Any]], None]


def strip_ansi(text: str) -> str:
    r"""Return the text without terminal colours.

    >>> strip_ansi("\x1b[31mred\x1b[0m")
    'red'
    """
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def headings(nb: dict[str, Any]) -> list[str]:
    """Return for each cell the nearest markdown heading at or above it.

    >>> headings({"cells": [{"cell_type": "markdown", "source": "## One"}, {"cell_type": "code", "source": "1"}]})
    ['One', 'One']
    """
    result, current = [], ""
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":
            found = re.findall(r"^#{1,4}\s+(.+)$", cell_source(cell), re.M)
            current = re.sub(r"[*`]", "", found[0]) if found else current
        result.append(current)
    return result


def guide_error_names(folder: Path | None = None) -> set[str]:
    """Return the names of GuideError and of every class derived from it, in both packages, without importing any.

    A kernel tells us only the name of the exception that stopped a cell. These are the ones that mean "bad input or
    environment, and here is the fix" rather than "this notebook is broken".

    >>> {"GuideError", "InputError", "PreflightError", "SourceError"} <= guide_error_names()
    True
    """
    toolkit = importlib.util.find_spec("cdna")
    places = [folder] if folder else [package_folder(), *(toolkit.submodule_search_locations or () if toolkit else ())]
    bases: dict[str, set[str]] = {}
    for path in (p for place in places for p in Path(place).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Error" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {b.id for b in node.bases if isinstance(b, ast.Name)}
    names = {"GuideError", GuideError.__name__}
    while more := {n for n, b in bases.items() if b & names} - names:
        names |= more
    return names


def failure_of(nb: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first cell that failed: its number (from 1), heading, source, and the exception with its traceback.

    The number is that of the notebook as its author wrote it: the cell that papermill puts in for parameters has none.
    So are those in the traceback, where IPython counts the cells that it has executed.
    """
    own = [c for c in nb["cells"] if "injected-parameters" not in c.get("metadata", {}).get("tags", [])]
    above = headings({"cells": own})
    number = {c.get("execution_count"): index + 1 for index, c in enumerate(own)}

    def place(match: re.Match[str]) -> str:
        at = number.get(int(match[1]))
        return f"cell {at}," if at else "the cell of the given parameters,"

    for index, cell in enumerate(own):
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error":
                return {
                    "cell": index + 1,
                    "heading": above[index],
                    "source": cell_source(cell),
                    "error": output.get("ename", ""),
                    "message": strip_ansi(output.get("evalue", "")),
                    "traceback": re.sub(
                        r"\bCell In\[(\d+)\],", place, strip_ansi("\n".join(output.get("traceback", [])))
                    ),
                }
    return None


def execute(
    notebook: Path, parameters: dict[str, Any], cwd: Path, emit: Emit, after_cell: Callable[[], None] = lambda: None
) -> Any:
    """Run a notebook from top to bottom with papermill and return it with its outputs, failed cell included.

    Args:
        notebook: the file.
        parameters: put into a cell after the one tagged ``parameters``.
        cwd: the folder it runs in.
        emit: told about the plan and each cell.
        after_cell: called after each cell, while the kernel still lives.
    """
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook
    from traitlets.config import Config

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
            above, begin, complete = headings(nb_man.nb), nb_man.cell_start, nb_man.cell_complete
            emit({"event": "plan", "total": len(above)})

            def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                emit({"event": "cell", "index": cell_index, "heading": above[cell_index or 0]})
                begin(cell, cell_index, **more)

            def cell_complete(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                after_cell()
                complete(cell, cell_index, **more)

            nb_man.cell_start, nb_man.cell_complete = cell_start, cell_complete
            return super().execute_managed_notebook(nb_man, kernel_name, **kwargs)

    papermill_engines.register("rocm_guide", Engine)
    nb = load_notebook_node(str(notebook))
    if parameters:
        nb = parameterize_notebook(nb, parameters, kernel_name="python3", language="python", engine_name="rocm_guide")
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    os.chdir(cwd)
    return papermill_engines.execute_notebook_with_engine(
        "rocm_guide",
        nb,
        kernel_name="python3",
        input_path=None,
        output_path=None,
        progress_bar=False,
        # Both have limits of seconds otherwise, which a starved machine exceeds without anything being wrong.
        start_timeout=_PATIENCE,
        iopub_timeout=_PATIENCE,
        config=Config({"KernelManager": _connection()}),
    )


def _connection() -> dict[str, str]:
    """Return how to talk to the kernel: by files where that is possible, since they work without any network,
    loopback too.

    The address of a Unix socket has room for 107 characters.
    """
    socket_name = Path(os.environ.get("JUPYTER_RUNTIME_DIR", "")).resolve() / "ipc"
    fits = hasattr(socket, "AF_UNIX") and len(os.fsencode(socket_name)) <= 100
    return {"transport": "ipc", "ip": str(socket_name)} if fits else {"transport": "tcp"}


def _run(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
    import nbformat
    from nbclient.exceptions import DeadKernelError

    began = time.monotonic()
    failure = None
    with MemoryMeter() as memory:

        def look() -> None:
            memory.look()
            memory.look_at_gpus()

        try:
            nb = execute(Path(job["notebook"]), job["parameters"], Path(job["cwd"]), emit, look)
            failure = failure_of(nb)
        except DeadKernelError as e:
            nb, failure = None, {"error": "DeadKernelError", "message": str(e), "traceback": ""}
            failure["message"] = "the kernel died; if the machine ran out of memory, use --jobs 1"
    done = {"event": "done", "seconds": round(time.monotonic() - began, 1), "peak_mib": round(memory.peak / 2**20)}
    done |= {"cpu_seconds": round(memory.cpu.ran, 1), "waited_seconds": round(memory.cpu.waited, 1)}
    done["gpu_peak_mib"] = None if memory.gpu_peak is None else round(memory.gpu_peak / 2**20)
    status = "ok" if failure is None else "refused" if _is_refusal(failure) else "failed"
    if nb is not None:
        if job["html"]:
            write_text(job["html"], to_html(nb, Path(job["notebook"]).stem))
        write_text(job["out"], nbformat.writes(nb) + "\n")
    return {**done, "status": status, "failure": failure, "written": nb is not None}


def _is_refusal(failure: dict[str, Any]) -> bool:
    """Return whether bad input or a full disk stopped the notebook, rather than a defect of its own."""
    # Python's own message, or that of a library written in Rust (safetensors, tokenizers).
    full = re.search(r"^\[Errno (\d+)\]|\(os error (\d+)\)", failure["message"])
    if full and int(full[1] or full[2]) in _DISK_FULL:
        failure["message"] += "; free some space, or set TMPDIR and ROCM_GUIDE_CACHE to another disk"
        return True
    return failure["error"] in guide_error_names()


def _kill_below(pid: int) -> None:
    import psutil

    for process in psutil.Process(pid).children(recursive=True):
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue  # gone already


def main() -> None:
    """Read the job, run it, report."""
    # The kernel inherits descriptors 0 to 2: it must not write into our events, nor read our standard input.
    events, lifeline = os.fdopen(os.dup(1), "w", buffering=1), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def emit(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    job = json.loads(lifeline.readline())
    # JupyterLab brings a checker of web addresses, whose import takes three seconds. jsonschema, which checks
    # notebooks, does without where it is not there; and papermill without pyarrow, which reads notebooks from Hadoop.
    for name in ("rfc3987_syntax", "pyarrow"):
        sys.modules[name] = None  # type: ignore[assignment]

    def watch() -> None:
        lifeline.read()  # returns when the parent closes it, or dies
        _kill_below(os.getpid())
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        emit(_run(job, emit))
    except GuideError as e:
        failure = {"error": type(e).__name__, "message": str(e), "traceback": ""}
        emit({"event": "done", "status": "refused", "seconds": 0, "peak_mib": 0, "failure": failure})
    except OSError as e:
        if e.errno not in _DISK_FULL:
            raise
        failure = {"error": "OSError", "message": str(e), "traceback": ""}
        _is_refusal(failure)
        emit({"event": "done", "status": "refused", "seconds": 0, "peak_mib": 0, "failure": failure})
    events.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing left to do: do not wait for the thread that watches the lifeline


if __name__ == "__main__":
    main()
