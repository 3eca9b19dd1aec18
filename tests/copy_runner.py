# SPDX-License-Identifier: MIT
"""Run by test_copy.py in a process where rocm_guide cannot be imported: executes copies and their examples.

Usage: python copy_runner.py FOLDER; every FOLDER/*.py is the copy of the helper whose name stands after the last "__".
Prints one JSON object: file name -> what went wrong.
"""

import contextlib
import doctest
import importlib
import importlib.abc
import io
import json
import os
import sys
import traceback
from pathlib import Path


class Blocked(importlib.abc.MetaPathFinder):
    """Nothing of rocm_guide may be imported here."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rocm_guide":
            raise ModuleNotFoundError(f"{name} is blocked: the copy must stand alone", name=name)


def problems(path: Path) -> str:
    """What is wrong with one copy; empty if it stands alone."""
    name = path.stem.rsplit("__", 1)[-1]
    try:
        module = importlib.import_module(path.stem)
    except BaseException:  # noqa: BLE001  (whatever it is, it is the finding)
        return traceback.format_exc(limit=-2)
    if not hasattr(module, name):
        return f"the copy does not define {name}"
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    said = io.StringIO()
    helper = getattr(module, name)
    found = finder.find(helper, name, module=module, globs=vars(module)) if callable(helper) else []
    for test in found:
        test.globs = dict(vars(module))
        # Printing goes to the examples; the report of a failure to us.
        runner.run(test, out=said.write, clear_globs=True)
    return said.getvalue()


def main() -> None:
    """Check every file of the folder."""
    sys.meta_path.insert(0, Blocked())
    folder = Path(sys.argv[1])
    result = {}
    os.chdir(folder)
    sys.path.insert(
        0, str(folder)
    )  # as in the project that a helper is copied into; processes it starts look there too
    for path in sorted(folder.glob("*.py")):
        with contextlib.redirect_stderr(io.StringIO()):
            wrong = problems(path)
        if wrong:
            result[path.name] = wrong
    print(json.dumps(result))


if __name__ == "__main__":
    main()
