# SPDX-License-Identifier: MIT
"""Check what a Triton kernel computes on a machine without a GPU: Triton's interpreter, in a process of its own.

A kernel can be compiled or interpreted, and which is decided when it is decorated. So that one Python process can
compile it, another one interprets it. Kernels of notebook cells and scripts are sent there as source.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdna.base import InputError
from cdna.children import ChildError
from cdna.compile_errors import find_gluon, name_line
from cdna.guard import watch_memory
from cdna.interpreter.patches import quick_interpreter
from cdna.interpreter.warm import run_warm
from cdna.kernel_source import SourceError, pack_objects, unpack_objects

__all__ = [
    "InterpretError",
    "explain_error",
    "interpret",
    "launch_anywhere",
    "on_timer",
    "run_interpreted",
    "time_limit",
]

_OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
_SECONDS = 1800
# Frames of these packages are not the reader's, whatever ran in between.
_NOT_THE_READERS = ("torch", "triton", "numpy")


class InterpretError(InputError):
    """The kernel failed in the interpreter, or reads something that cannot be sent to it."""


class TooLongError(InputError):
    """A kernel that ran out of its processor time."""


@contextlib.contextmanager
def on_timer(timer: int, number: int, seconds: float, stop: Callable[..., None]) -> Iterator[None]:
    """Call ``stop`` after ``seconds`` of a timer of this process, inside the ``with`` block.

    Args:
        timer, number: of :mod:`signal`, as ITIMER_PROF and the SIGPROF that it sends.
        seconds: on that timer.
        stop: a handler of signals; what it raises comes up at the line that is running.
    """
    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TooLongError` at the line that runs after ``seconds`` of this process's processor time."""

    def stop(number: int, frame: Any) -> None:
        raise TooLongError(f"still running after {seconds:g} s of processor time: does this loop end?")

    with on_timer(signal.ITIMER_PROF, signal.SIGPROF, seconds, stop):
        yield


def explain_error(error: BaseException, files: Sequence[str] = ()) -> str:
    """Explain an error in one line: the innermost cause, after the reader's own line, if it is in one of ``files``.

    >>> explain_error(ValueError("7 is odd"))
    'ValueError: 7 is odd'
    """
    chain: list[BaseException] = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    last = chain[-1]
    said = (str(last).strip() or type(last).__name__).splitlines()
    text = said[-1].strip() if type(last).__name__ == "CompilationError" else said[0].strip()
    if not isinstance(last, InputError) and said != [type(last).__name__]:
        text = f"{type(last).__name__}: {text}"
    for one in reversed(chain):
        frames = [f for f in traceback.extract_tb(one.__traceback__) if f.filename in files]
        if frames:
            return f"{name_line(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name)}: {text}"
    return text


def run_entries(source: str, target: str) -> None:
    """Do, in the interpreter's process, what :func:`run_interpreted` has written to ``source``."""
    import torch

    torch.set_num_threads(1)
    entries = torch.load(source, weights_only=False)
    files: list[str] = []
    answers = []
    try:
        for packed, grid, arguments, options, seconds in entries:
            files = list(packed["lines"])
            function, more = unpack_objects(packed)
            options |= more
            inner = getattr(function, "fn", function)
            code = getattr(getattr(inner, "fn", inner), "__code__", None)
            files += [code.co_filename] if code is not None else []
            with time_limit(seconds), quick_interpreter(), watch_memory():
                answer = function(*arguments, **options) if grid is None else function[grid](*arguments, **options)
            answers.append(answer if grid is None else [a for a in arguments if isinstance(a, torch.Tensor)])
    except Exception as e:
        raise SystemExit(explain_error(e, files)) from e
    torch.save(answers, target)


def run_interpreted(
    entries: Sequence[tuple[Any, tuple[int, ...] | None, Sequence[Any], Mapping[str, Any]]], seconds: float = _SECONDS
) -> list[Any]:
    """Call functions and launch kernels in one process of their own with TRITON_INTERPRET=1.

    Args:
        entries: (function or kernel, grid or None, arguments, options); with a grid it is a launch, and its answer is
            the list of its tensor arguments afterwards.
        seconds: of processor time that each may take.

    Raises:
        SourceError: a function reads what cannot be sent.
        ChildError: the process failed; the message is one line with the reader's own.
    """
    import torch

    packed = []
    for function, grid, arguments, options in entries:
        if name := find_gluon(function):
            raise SourceError(
                f"{name} is a Gluon kernel, and Triton's interpreter knows no layouts: launch it inside "
                "`with cdna.run.executed_on_gfx942():`, which executes its machine code"
            )
        functions = {k: v for k, v in options.items() if callable(v) and not isinstance(v, type)}
        plain = {k: v for k, v in options.items() if k not in functions}
        packed.append((pack_objects([function, functions]), grid, list(arguments), plain, seconds))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "calls.pt", Path(folder) / "answers.pt"
        torch.save(packed, source)
        run_warm(run_entries.__module__, run_entries.__name__, str(source), str(target), seconds=_SECONDS)
        return list(torch.load(target, weights_only=False))


def interpret(
    calls: Sequence[tuple[Any, Sequence[int], Sequence[Any], Mapping[str, Any]]], seconds: float = _SECONDS
) -> None:
    """Run kernels in Triton's interpreter, in one process of their own; tensors are changed in place, as by a launch.

    Args:
        calls: (kernel, grid, arguments, meta) of each. A kernel of an importable module goes by its name, one of a
            notebook cell or script with its source and what it reads. Tensors are on the CPU; compile options in
            ``meta`` are dropped, because there is nothing to compile.
        seconds: of processor time that each kernel may take.

    The interpreter is exact for fp32 and fp16, but ``tl.dot`` on bf16 and conversions to fp8 and bf16 are wrong in it.

    Raises:
        InterpretError: the kernel failed, reached outside its tensors, or took too long; with the line at which.
    """
    import torch

    entries: list[tuple[Any, tuple[int, ...] | None, Sequence[Any], Mapping[str, Any]]] = []
    for kernel, grid, arguments, meta in calls:
        plain = {k: v for k, v in meta.items() if k not in _OPTIONS}
        entries.append((kernel, tuple(grid), arguments, plain))
    first = getattr(calls[0][0], "fn", calls[0][0]) if calls else None
    name = getattr(first, "__name__", "the kernel")
    try:
        answers = run_interpreted(entries, seconds)
    except SourceError as e:
        raise InterpretError(str(e)) from e
    except ChildError as e:
        hint = "; use smaller tensors" if "ran longer" in str(e) or "still running" in str(e) else ""
        raise InterpretError(f"{name} failed in the interpreter: {e}{hint}") from e
    for (_, _, arguments, _), results in zip(calls, answers, strict=True):
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(result)


def launch_anywhere(kernel: Any, grid: Sequence[int], *arguments: Any, **meta: Any) -> None:
    """Run a kernel where its tensors are: on their GPU, or in the interpreter when they are on the CPU.

    Raises:
        InterpretError: see :func:`interpret`.

    >>> import torch
    >>> from cdna.examples.int4_scores import stream_copy
    >>> x, y = torch.arange(5.0), torch.zeros(5)
    >>> launch_anywhere(stream_copy, (2,), x, y, 5, BLOCK=4)
    >>> y.tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if any(getattr(a, "is_cuda", False) for a in arguments):
        kernel[tuple(grid)](*arguments, **meta)
    else:
        interpret([(kernel, grid, arguments, meta)])
