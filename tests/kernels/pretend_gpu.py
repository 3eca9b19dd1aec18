# SPDX-License-Identifier: MIT
"""A pytest plugin: kernel tests as on a GPU that is not there (``PRETENDED_GPU``, say gfx942), up to the first launch.

``-p pretend_gpu``. PyTorch answers as on that GPU, so the tests choose types, sizes and tiles as they would there, and
the wrappers check them. A test that gets as far as launching a kernel has passed; one that is refused before has not.
"""

from __future__ import annotations

import os

import pytest
import triton

from cdna.dry_run.torch_gpu import pretend_torch_device


class Launched(BaseException):
    """A kernel was about to be launched; no test catches this by accident."""


def _launch(*args, **kwargs):
    raise Launched


_pretended = pretend_torch_device(os.environ["PRETENDED_GPU"])
_pretended.__enter__()  # before the tests' files are imported: some of them choose at import
triton.runtime.JITFunction.run = _launch


def pytest_collection_modifyitems(items):
    """Only tests of kernels on a device; the others are the same everywhere."""
    items[:] = [i for i in items if "device" in i.fixturenames]


def pytest_unconfigure():
    """Put PyTorch back."""
    _pretended.__exit__(None, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Stop a test at its first launch."""
    try:
        return (yield)
    except Launched:
        return True
