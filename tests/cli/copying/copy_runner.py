# SPDX-License-Identifier: MIT
"""Run by test_copy.py in a process where rocm_guide cannot be imported: executes copies and their examples.

Usage: python copy_runner.py FOLDER [LIBRARY...]; every FOLDER/*.py is the copy of the helper whose name stands after
the last "__". Of all that is installed, only the named libraries and what their distributions require can be imported,
as in an environment made for the copies. Prints one JSON object: file name -> what went wrong.
"""

import contextlib
import doctest
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path


class Blocked(importlib.abc.MetaPathFinder):
    """Nothing of rocm_guide may be imported here."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rocm_guide":
            raise ModuleNotFoundError(f"{name} is blocked: the copy must stand alone", name=name)


class Installed(importlib.abc.MetaPathFinder):
    """Finds modules as Python does, but no library outside ``needs``: neither its code nor its metadata is there."""

    def __init__(self, needs: Iterable[str]) -> None:
        owners = importlib.metadata.packages_distributions()
        kept = required(owner for need in needs for owner in owners.get(need, ()))
        self.distributions = {name(d) for d in importlib.metadata.distributions()} - kept
        self.modules = {m for m, all_ in owners.items() if {plain(o) for o in all_} <= self.distributions}

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.modules else importlib.machinery.PathFinder.find_spec(name, path)

    def find_distributions(self, context):
        found = importlib.machinery.PathFinder.find_distributions(context)
        return (d for d in found if name(d) not in self.distributions)

    @staticmethod
    def invalidate_caches():
        importlib.machinery.PathFinder.invalidate_caches()


def plain(name: str) -> str:
    """A distribution's name in the form that all spellings share."""
    return name.lower().replace("_", "-").replace(".", "-")


def name(distribution: importlib.metadata.Distribution) -> str:
    """The same, of something installed."""
    return plain(distribution.metadata["Name"])


def required(owners: Iterable[str]) -> set[str]:
    """Distributions and all that they require, optional features left out."""
    from packaging.requirements import Requirement

    seen: set[str] = set()
    waiting = [plain(o) for o in owners]

    def demands(one: str) -> Iterator[str]:
        for line in importlib.metadata.requires(one) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                yield plain(wanted.name)

    while waiting:
        one = waiting.pop()
        if one not in seen:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                waiting += demands(one)
                seen.add(one)
    return seen


def only(needs: Iterable[str]) -> None:
    """From now on this process is one in which nothing but ``needs`` was ever installed."""
    finder = Installed(needs)
    loaded = {m.split(".")[0] for m in sys.modules}
    for module in [m for m in sys.modules if m.split(".")[0] in finder.modules & loaded]:
        del sys.modules[module]
    sys.meta_path[:] = [f for f in sys.meta_path if f is not importlib.machinery.PathFinder]
    sys.meta_path.insert(0, Blocked())
    sys.meta_path.append(finder)


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
    only(sys.argv[2:])
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
