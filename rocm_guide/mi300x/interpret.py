# SPDX-License-Identifier: MIT
"""Check what a Triton kernel computes on a machine without a GPU: Triton's interpreter, in a process of its own.

A kernel can be compiled or interpreted, and which is decided when it is decorated. So that one Python process can
compile it, another one interprets it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.children import ChildError, run_child

__all__ = ["InterpretError", "interpret", "launch_anywhere"]

_CHILD = """
import importlib, sys, torch
calls = torch.load(sys.argv[1])
for module, name, grid, arguments, meta in calls:
    getattr(importlib.import_module(module), name)[tuple(grid)](*arguments, **meta)
torch.save([[a for a in call[3] if isinstance(a, torch.Tensor)] for call in calls], sys.argv[2])
"""
_OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
_SECONDS = 1800


class InterpretError(GuideError):
    """The kernel failed in the interpreter, or cannot be found by its module and name."""


def interpret(calls: Sequence[tuple[Any, Sequence[int], Sequence[Any], Mapping[str, Any]]]) -> None:
    """Run kernels in Triton's interpreter, all in one fresh process; tensors are changed in place, as by a launch.

    Args:
        calls: (kernel, grid, arguments, meta) of each. Kernels are functions of an importable module; tensors are on
            the CPU; compile options in ``meta`` are dropped, because there is nothing to compile.

    The interpreter is exact for fp32 and fp16, but ``tl.dot`` on bf16 and conversions to fp8 and bf16 are wrong in it.

    Raises:
        InterpretError: the process failed; the last line of its error is in the message.
    """
    import torch

    packed = []
    for kernel, grid, arguments, meta in calls:
        fn = getattr(kernel, "fn", kernel)
        plain = {k: v for k, v in meta.items() if k not in _OPTIONS}
        packed.append((fn.__module__, fn.__name__, list(grid), list(arguments), plain))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "calls.pt", Path(folder) / "tensors.pt"
        torch.save(packed, source)
        try:
            run_child(_CHILD, str(source), str(target), environment={"TRITON_INTERPRET": "1"}, seconds=_SECONDS)
        except ChildError as e:
            hint = "; use smaller tensors" if "ran longer" in str(e) else ""
            raise InterpretError(f"{packed[0][1]} failed in the interpreter: {e}{hint}") from e
        for (_, _, arguments, _), results in zip(calls, torch.load(target), strict=True):
            tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
            for tensor, result in zip(tensors, results, strict=True):
                tensor.copy_(result)


def launch_anywhere(kernel: Any, grid: Sequence[int], *arguments: Any, **meta: Any) -> None:
    """Run a kernel where its tensors are: on their GPU, or in the interpreter when they are on the CPU.

    Raises:
        InterpretError: see :func:`interpret`.

    >>> import torch
    >>> from rocm_guide.mi300x.examples.int4_scores import stream_copy
    >>> x, y = torch.arange(5.0), torch.zeros(5)
    >>> launch_anywhere(stream_copy, (2,), x, y, 5, BLOCK=4)
    >>> y.tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if any(getattr(a, "is_cuda", False) for a in arguments):
        kernel[tuple(grid)](*arguments, **meta)
    else:
        interpret([(kernel, grid, arguments, meta)])
