# SPDX-License-Identifier: MIT
"""Record a trace of any step, with the place of every module written into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.autograd import profiler
from torch.profiler import profile, schedule

from rocm_guide.common.base import GuideError, whole_file
from rocm_guide.observe.profiling.torch_trace.attribution import MARK
from rocm_guide.observe.profiling.torch_trace.slices import module_slices

__all__ = ["NestedProfilerError", "mark_modules", "only_profiler", "record", "record_block"]


class NestedProfilerError(GuideError):
    """The profiled program starts a profiler of its own."""


@contextmanager
def only_profiler(what: str) -> Iterator[None]:
    """Refuse another torch profiler in this process during a recording: an error and no crash.

    Args:
        what: how to call the program in the error.

    Raises:
        NestedProfilerError: at the place in the program that starts the second one.
    """

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


@contextmanager
def mark_modules(model: Any) -> Iterator[None]:
    """Write the place of every module into the trace while the block runs.

    Each forward call of a module runs inside a ``record_function`` range named ``slice::PLACE::PATH``; the hooks are
    removed at the end, also after an error. It costs a few microseconds per module, so record for slices with it and
    time without it.
    """
    places = module_slices(model)
    open_ranges: list[Any] = []
    hooks: list[Any] = []

    def enter(label: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            scope = torch.profiler.record_function(label)
            scope.__enter__()
            open_ranges.append(scope)

        return hook

    def leave(*_: Any) -> None:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)

    try:
        for path, module in model.named_modules():
            if path:
                hooks.append(module.register_forward_pre_hook(enter(f"{MARK}::{places[path]}::{path}")))
                hooks.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        while open_ranges:
            open_ranges.pop().__exit__(None, None, None)


def record(
    step: Callable[[], Any],
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    steps: int = 3,
    warmup: int = 2,
) -> Path:
    """Profile a step and write a trace that https://ui.perfetto.dev opens.

    Args:
        step: called without arguments; one training step, one forward pass, one generated token.
        path: where to write; a name ending in ``.gz`` is compressed.
        model: when given, its modules are marked, so that
            :func:`~rocm_guide.observe.profiling.torch_trace.summary.summarize` knows every slice, backward included.
        steps: recorded steps. Three are enough for the slices; a trace grows by megabytes with each.
        warmup: steps before recording, at least one: the first pays for compilation, caches and autotuning.

    Raises:
        GuideError: ``steps`` or ``warmup`` is less than 1.

    Source: PyTorch documentation, torch.profiler (https://docs.pytorch.org/docs/stable/profiler.html).

    >>> import tempfile, torch
    >>> from rocm_guide.observe.profiling.torch_trace.summary import summarize
    >>> model = torch.nn.ModuleDict({"mlp": torch.nn.Linear(8, 8)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trace = record(lambda: model["mlp"](torch.ones(2, 8)), Path(folder) / "t.json", model=model, steps=2)
    ...     s = summarize(trace)
    >>> s.steps, max(s.slices, key=s.slices.get)
    (2, 'MLP GEMMs')
    """
    if steps < 1 or warmup < 1:
        raise GuideError(f"steps={steps}, warmup={warmup}: both are at least 1, for example steps=3, warmup=2")
    # The profiler's own start-up falls into its warm-up step, which is not recorded.
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with mark_modules(model) if model is not None else nullcontext(), _quiet(), whole_file(path) as part:
        for _ in range(warmup):
            step()
        with profile(
            schedule=plan,
            acc_events=True,  # there is one cycle; without it torch warns that events of earlier cycles are lost
            on_trace_ready=lambda found: found.export_chrome_trace(str(part)),
        ) as recorded:
            for i in range(steps + 1):
                step()
                # Only at the two ends: waiting after every step would add gaps that the program itself does not have.
                if i in (0, steps) and torch.cuda.is_available():
                    torch.cuda.synchronize()
                recorded.step()
    return Path(path)


@contextmanager
def record_block(path: str | os.PathLike[str]) -> Iterator[None]:
    """Profile everything in a ``with`` block and write the trace, also when the block ends in an error.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with record_block(Path(folder) / "t.json"):
    ...         _ = torch.ones(4) + 1
    ...     (Path(folder) / "t.json").stat().st_size > 0
    True
    """
    failure = None
    # Opened first: a folder that cannot be written is said before the block runs, not after.
    with _quiet(), whole_file(path) as part:
        found = profile(acc_events=True)  # one cycle; torch 2.11 warns without
        try:
            with found:
                yield
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
        except BaseException as e:  # noqa: BLE001 - the trace up to there is written, then it goes on its way
            failure = e
        found.export_chrome_trace(str(part))
    if failure is not None:
        raise failure


def _quiet() -> Any:
    """Return a context that keeps Kineto's own start and stop messages (torch 2.13) out of the reader's output."""
    return mock.patch.dict(os.environ, {"KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "6")})
