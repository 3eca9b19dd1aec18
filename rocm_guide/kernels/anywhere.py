# SPDX-License-Identifier: MIT
"""Call a kernel's wrapper on any machine: on the GPU if its tensors are there, else in Triton's interpreter.

Triton decides whether to compile or to interpret when a kernel is decorated, so one process cannot do both. A process
that compiles for gfx942 (every notebook does) has its calls on CPU tensors interpreted by a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdna.children import ChildError
from cdna.interpret import run_interpreted
from cdna.kernel_source import SourceError
from rocm_guide.common.base import GuideError

__all__ = ["call", "call_all"]

Call = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]


def call_all(calls: Sequence[Call]) -> list[Any]:
    """Call ``(function, arguments, options)`` one after the other; return a list of what they return.

    Args:
        calls: functions (``softmax_forward``, or one of a notebook cell, which is sent as source), their arguments
            and keyword arguments. If any argument is a tensor on a GPU, all are called right here. Otherwise they
            run in one process with TRITON_INTERPRET=1, to which arguments and results are copied: a tensor that a
            function changes in place stays as it was here.

    The interpreter works element by element: a few thousand elements take a fraction of a second. It is wrong about
    ``tl.dot`` on bf16, conversions to fp8 and the rounding to bf16.

    Raises:
        GuideError: a function failed, or reads what cannot be sent; one line, with the reader's own.
    """
    import torch

    def on_gpu(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(map(on_gpu, value))
        return isinstance(value, torch.Tensor) and value.is_cuda

    if any(on_gpu([*arguments, *options.values()]) for _, arguments, options in calls):
        try:
            return [function(*arguments, **options) for function, arguments, options in calls]
        except ValueError as e:  # a wrapper's refusal: the same kind of error as from the interpreter's process
            raise GuideError(str(e)) from e
    names = ", ".join(dict.fromkeys(f.__qualname__ for f, _, _ in calls))
    try:
        return run_interpreted([(f, None, a, o) for f, a, o in calls])
    except SourceError as e:
        raise GuideError(str(e)) from e
    except ChildError as e:
        hint = ": use smaller tensors" if "ran longer" in str(e) or "still running" in str(e) else ""
        raise GuideError(f"{names} in the interpreter: {e}{hint}") from e


def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return ``function(*arguments, **options)``, on the GPU or in the interpreter; see :func:`call_all`.

    Raises:
        GuideError: see :func:`call_all`.

    >>> import torch
    >>> from rocm_guide.kernels.softmax import softmax_forward
    >>> call(softmax_forward, torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    return call_all([(function, arguments, options)])[0]
