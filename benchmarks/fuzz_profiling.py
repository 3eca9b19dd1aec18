# SPDX-License-Identifier: MIT
"""The long fuzz campaign of tests/test_profiling_fuzz.py on all cores, also where there is no pytest.

PYTHONPATH=. python3 benchmarks/fuzz_profiling.py 100000
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import types
from pathlib import Path


def load(count: str):
    """The test module, with a stand-in for pytest if that is missing."""
    os.environ["ROCM_GUIDE_FUZZ"] = count
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    try:
        import pytest  # noqa: F401
    except ImportError:
        stub = types.ModuleType("pytest")
        stub.mark = types.SimpleNamespace(parametrize=lambda *_, **__: lambda function: function)
        sys.modules["pytest"] = stub
    import test_profiling_fuzz

    return test_profiling_fuzz


def one(arguments: tuple[str, str]) -> tuple[str, str, float]:
    name, count = arguments
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            load(count).test_damaged_input_gives_a_result_or_a_named_error(name, Path(folder))
            result = "ok"
        except BaseException as e:  # noqa: BLE001 - the finding
            result = repr(e)[:500]
    return name, result, time.perf_counter() - begin


def main() -> int:
    count = sys.argv[1] if len(sys.argv) > 1 else "1000"
    names = list(load(count).READERS)
    failed = 0
    with multiprocessing.get_context("fork").Pool() as pool:
        for name, result, seconds in pool.imap_unordered(one, [(n, count) for n in names]):
            failed += result != "ok"
            print(f"{name}: {int(count):,} mutated inputs, {seconds:.0f} s: {result}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
