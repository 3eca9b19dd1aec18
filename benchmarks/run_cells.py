# SPDX-License-Identifier: MIT
"""Run the code cells of notebooks in plain Python, on a machine without Jupyter (a GPU machine, for example).

    PYTHONPATH=. python -m benchmarks.run_cells notebooks/40_profiling.ipynb ...
    PYTHONPATH=. python -m benchmarks.run_cells notebooks/02_lora_fine_tuning.ipynb MODEL=random:llama-3-8b RANK=64

Words with an equals sign set parameters, in the notebooks that have them.
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


def run(path: Path, given: list[tuple[str, str]]) -> bool:
    import matplotlib

    from course.parameters import parameters_of, parse_value

    matplotlib.use("Agg")
    # A module of its own, so that classes defined in cells can be found by name.
    module = types.ModuleType("cells")
    sys.modules["cells"] = module
    begin = time.perf_counter()
    nb = json.loads(path.read_text())
    known = parameters_of(nb)
    values = {name: parse_value(name, text, known[name].default) for name, text in given if name in known}
    for number, cell in enumerate(nb["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        source = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
        print(f"--- {path.stem}, cell {number}, after {time.perf_counter() - begin:.1f} s", flush=True)
        try:
            exec(compile(ast.parse(source), f"{path.stem}:{number}", "exec"), module.__dict__)  # noqa: S102
        except Exception:  # noqa: BLE001 - whatever a cell raises is the result
            traceback.print_exc()
            print(f"FAILED {path.stem}, cell {number}", flush=True)
            return False
        if "parameters" in cell.get("metadata", {}).get("tags", []):
            module.__dict__.update(values)
    print(f"OK {path.stem}: {time.perf_counter() - begin:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    options = [tuple(word.split("=", 1)) for word in sys.argv[1:] if "=" in word]
    results = [run(Path(word), options) for word in sys.argv[1:] if "=" not in word]  # type: ignore[arg-type]
    sys.exit(0 if all(results) else 1)
