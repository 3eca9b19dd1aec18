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


class Room(InteractiveInterpreter):
    """Where the cells run; it keeps what one of them raised."""

    error: BaseException | None = None

    def showtraceback(self) -> None:
        self.error = sys.exc_info()[1]


def run(nb: dict, parameters: dict) -> dict:
    """Return ``{"status": "ok"}``, or the index of the first cell that failed and what it said."""
    import matplotlib.pyplot as plt

    from rocm_guide.base import GuideError

    module = types.ModuleType("__main__")  # dataclasses look for the module that their class names
    sys.modules["__main__"] = module
    room = Room(module.__dict__)
    for index, cell in enumerate(nb["cells"]):
        if cell["cell_type"] != "code":
            continue
        source, name = "".join(cell["source"]), f"<cell {index}>"
        if "parameters" in cell["metadata"].get("tags", ()):
            source += "".join(f"\n{key} = {value!r}" for key, value in parameters.items())
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # for inspect.getsource
        print(f"--- cell {index}", flush=True)
        room.runcode(compile(source, name, "exec"))
        if error := room.error:
            status = "refused" if isinstance(error, GuideError) else "failed"
            told = {"cell": index, "error": type(error).__name__, "message": str(error)}
            return {"status": status, **told, "traceback": "".join(traceback.format_exception(error))}
        plt.close("all")
    return {"status": "ok"}
