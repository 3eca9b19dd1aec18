# SPDX-License-Identifier: MIT
"""The cells of a notebook, one after the other in this process: what a kernel would run, without the kernel.

``main`` runs in a fork of a process that has torch, transformers and TRL imported, so a notebook costs its own work
and no imports.
"""

import json
import linecache
import os
import sys
import tempfile
import traceback
import types
from code import InteractiveInterpreter
from collections.abc import Iterator
from pathlib import Path


def main() -> int:
    """Run one notebook as the order in the file ``sys.argv[1]`` says, and write the outcome beside it."""
    file = Path(sys.argv[1])
    order = json.loads(file.read_text())
    os.environ.update(order["environment"])
    tempfile.tempdir = None  # the folder that the environment names now
    nb = json.loads(Path(order["notebook"]).read_text(encoding="utf-8"))
    outcome = run(nb, order["parameters"])
    file.with_name("outcome.json").write_text(json.dumps(outcome))
    return 0


def code_cells(nb: dict, parameters: dict) -> Iterator[tuple[int, str]]:
    """Yield the index among all cells and the source of each code cell, with ``parameters`` set in theirs."""
    for index, cell in enumerate(nb["cells"]):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", ()):
            source += "".join(f"\n{key} = {value!r}" for key, value in parameters.items())
        yield index, source


class Room(InteractiveInterpreter):
    """Where a cell runs; what it raises goes on to the caller."""

    def showtraceback(self) -> None:
        raise  # the interpreter calls this while it handles the cell's exception


def new_room() -> types.ModuleType:
    """Return the module that cells run in; dataclasses look for the module that their class names."""
    from IPython.display import display

    sys.modules["__main__"] = room = types.ModuleType("__main__")
    room.display = display  # a kernel has it under this name
    return room


def run_cell(room: types.ModuleType, index: int, source: str) -> None:
    """Execute one cell in ``room``; what it raises goes on to the caller."""
    import matplotlib.pyplot as plt

    name = f"<cell {index}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # for inspect.getsource
    print(f"--- cell {index}", flush=True)
    Room(room.__dict__).runcode(compile(source, name, "exec"))
    plt.close("all")


def run(nb: dict, parameters: dict) -> dict:
    """Return ``{"status": "ok"}``, or the index of the first cell that failed and what it said."""
    from rocm_guide.common.base import GuideError

    room = new_room()
    for index, source in code_cells(nb, parameters):
        try:
            run_cell(room, index, source)
        except Exception as e:  # noqa: BLE001 - whatever a cell raises is the outcome
            status = "refused" if isinstance(e, GuideError) else "failed"
            told = {"cell": index, "error": type(e).__name__, "message": str(e), "traceback": traceback.format_exc()}
            return {"status": status, **told}
    return {"status": "ok"}
