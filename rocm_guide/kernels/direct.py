# SPDX-License-Identifier: MIT
"""A compiled kernel's own launcher, called without what Triton does around it in Python.

``compiled[grid](…)`` asks for the device and the stream, collects what a profiler might want to know, and lets the
launcher look for memory that most kernels do not need. Where none of it applies, the function in C can be called at
once. Read in Triton 3.6 and 3.9: ``CompiledKernel.__getitem__``, ``CudaLauncher`` and ``HIPLauncher``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from triton import knobs

__all__: list[str] = []


def call_of(compiled: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """What launches ``compiled`` on (stream, arguments): no hooks, no questions; addresses may stand for tensors."""
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    room = [getattr(run, f"{which}_scratch_size", 0) for which in ("global", "profile")]
    if hasattr(run, "launch") and not any(room) and not getattr(run, "gsan_enabled", False):
        # The launcher then hands on what it was given to a function in C, with more that is the same in every call, in
        # an order that depends on vendor and release: a copy of it shows which.
        seen: list[tuple[Any, ...]] = []
        show = copy.copy(run)
        show.launch = lambda *given: seen.append(given)
        stream_here, arguments_here = object(), object()
        show(*grid, stream_here, function, packed, None, None, None, arguments_here)
        given = seen[0]
        at, last, launch = given.index(stream_here), given[-1], run.launch
        before, after = given[:at], given[at + 1 : -1]
        if last is arguments_here:
            return lambda stream, *arguments: launch(*before, stream, *after, *arguments)
        if last == (arguments_here,):
            return lambda stream, *arguments: launch(*before, stream, *after, arguments)

    def call(stream: int, *arguments: Any) -> None:
        run(*grid, stream, function, packed, None, None, None, *arguments)

    return call


def hooked() -> bool:
    """Whether somebody, a profiler say, wants to hear of launches."""
    runtime = knobs.runtime
    try:
        return bool(runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a hook that somebody has put there himself
        return True
