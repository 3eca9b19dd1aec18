# SPDX-License-Identifier: MIT
"""Run the code cells of notebooks in plain Python, on a machine without Jupyter (a GPU machine, for example).

    PYTHONPATH=. python -m benchmarks.run_cells notebooks/23_profiling.ipynb ...

Plots are drawn and thrown away. Exit code 1 when a cell of any notebook raised; its number and traceback are printed.
"""

from __future__ import annotations

import ast
import json
import sys
import time
import traceback
import types
from pathlib import Path


def run(path: Path) -> bool:
    import matplotlib

    matplotlib.use("Agg")
    # A module of its own, so that classes defined in cells can be found by name.
    module = types.ModuleType("cells")
    sys.modules["cells"] = module
    begin = time.perf_counter()
    for number, cell in enumerate(json.loads(path.read_text())["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        source = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
        print(f"--- {path.stem}, cell {number}", flush=True)
        try:
            exec(compile(ast.parse(source), f"{path.stem}:{number}", "exec"), module.__dict__)  # noqa: S102
        except Exception:  # noqa: BLE001 - whatever a cell raises is the result
            traceback.print_exc()
            print(f"FAILED {path.stem}, cell {number}", flush=True)
            return False
    print(f"OK {path.stem}: {time.perf_counter() - begin:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    results = [run(Path(p)) for p in sys.argv[1:]]
    sys.exit(0 if all(results) else 1)
