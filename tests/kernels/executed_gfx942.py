# SPDX-License-Identifier: MIT
"""A pytest plugin: the kernel tests as on an MI300X, every launch executed as gfx942 machine code on this CPU.

``pytest -p executed_gfx942 tests/kernels/rows`` (with tests/kernels on PYTHONPATH) runs the tests that take ``device``
in full, with their own shapes, references and tolerances. That takes from minutes to hours, so CI runs the smaller
shapes of test_on_gfx942.py. EXECUTED_SECONDS limits one test; what takes longer is reported as skipped.
"""

from __future__ import annotations

import os
import signal

import pytest

from cdna.dry_run.torch_gpu import pretend_torch_device
from cdna.run.launches import executed_on_gfx942

SECONDS = int(os.environ.get("EXECUTED_SECONDS", "0"))
_pretended = pretend_torch_device("gfx942")
_pretended.__enter__()  # before the tests' files are imported: some of them choose at import


def _too_long(number, frame):
    pytest.skip(f"longer than {SECONDS} s in the interpreter of machine code")


def pytest_collection_modifyitems(items):
    """Only tests of kernels on a device; the others are the same everywhere."""
    items[:] = [i for i in items if "device" in i.fixturenames]


def pytest_unconfigure():
    """Put PyTorch back."""
    _pretended.__exit__(None, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Execute what a test launches."""
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with executed_on_gfx942(units=4, count=False):
            return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
