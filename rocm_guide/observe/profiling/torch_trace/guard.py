# SPDX-License-Identifier: MIT
"""A second torch.profiler in one process ends in a segmentation fault (torch 2.13): refuse it where it is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from rocm_guide.common.base import GuideError

__all__ = ["NestedProfilerError", "only_profiler"]


class NestedProfilerError(GuideError):
    """The profiled program starts a profiler of its own."""


@contextmanager
def only_profiler(what: str) -> Iterator[None]:
    """Refuse another torch profiler in this process during a recording: an error and no crash.

    Args:
        what: how to call the program in the error.

    Raises:
        NestedProfilerError: at the place in the program that starts the second one.

    >>> import torch
    >>> with only_profiler("train.py"), torch.profiler.profile():
    ...     pass
    Traceback (most recent call last):
        ...
    rocm_guide.observe.profiling.torch_trace.guard.NestedProfilerError: train.py starts a torch profiler itself, and a \
process can have \
only one: run it without rocm-guide trace record, then rocm-guide trace summary on the file that it writes
    """
    from torch.autograd import profiler

    def refuse(*_: Any, **__: Any) -> None:
        raise NestedProfilerError(
            f"{what} starts a torch profiler itself, and a process can have only one: run it without rocm-guide "
            "trace record, then rocm-guide trace summary on the file that it writes"
        )

    with ExitStack() as stack:
        # All of torch's profilers, also those that only mark ranges, begin with one of these two.
        for name in ("_prepare_profiler", "_enable_profiler"):
            stack.enter_context(mock.patch.object(profiler, name, refuse))
        yield
