# SPDX-License-Identifier: MIT
"""Checks of notebook 16 (torch_compile)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.tune.compilation.decoder import count_compilation
from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code

__all__ = ["check_fusion", "check_graphs", "check_no_break"]


def check_graphs(answers: Mapping[str, int]) -> bool:
    """Check exercise 1: how many graphs torch.compile makes for five lengths, for each value of ``dynamic``.

    >>> check_graphs({"dynamic=False": 5, "dynamic=True": 1, "dynamic=None": 5})
    [HINT] dynamic=None: the first length is compiled as it is; what happens when a second one arrives?
    False
    """
    for name, dynamic in (("dynamic=False", False), ("dynamic=True", True), ("dynamic=None", None)):
        if name not in answers:
            return no(f"{name} is missing: give an answer for False, True and None")
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: (x * 2).sum(), backend="eager", dynamic=dynamic)
        with count_compilation() as report:
            for length in (8, 9, 10, 11, 12):
                compiled(torch.ones(length))
        if answers[name] != report.graphs:
            hints = {
                "dynamic=False": "every length is compiled for itself",
                "dynamic=True": "the length is a symbol from the start",
                "dynamic=None": "the first length is compiled as it is; what happens when a second one arrives?",
            }
            return no(f"{name}: {hints[name]}")
    return yes("one graph per length; one for all; one for the first and one for all others")


def check_no_break(fn: Callable[[Any], Any]) -> bool:
    """Check exercise 2: a function with the values of ``relu(x) / (1 + max(x))`` (0 where no x > 0) and no graph break.

    >>> check_no_break(lambda x: torch.relu(x) / (1 + x.max()) if x.max() > 0 else torch.zeros_like(x))
    [HINT] the compiler stops at a decision about a value: choose with torch.where instead of if
    False
    """
    torch._dynamo.reset()
    # The largest is -1: without the decision, 0 is divided by 0.
    positive, negative = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, -3.0])
    try:
        compiled = torch.compile(fn, backend="eager", fullgraph=True)
        results = [compiled(x) for x in (positive, negative)]
    except torch._dynamo.exc.Unsupported:
        return no("the compiler stops at a decision about a value: choose with torch.where instead of if")
    except FAULTS as e:
        return no(f"it fails on a tensor of three numbers: {first_line(e)}")
    for x, result in zip((positive, negative), results, strict=True):
        want = torch.relu(x) / (1 + x.max()) if x.max() > 0 else torch.zeros_like(x)
        if not isinstance(result, torch.Tensor) or not torch.allclose(result, want):
            return no(f"for {x.tolist()} the answer is {want.tolist()}")
    return yes("one graph, and the same values")


def check_fusion(kernels: int) -> bool:
    """Check exercise 3: how many Triton kernels inductor writes for ``softmax(a + b) * sigmoid(c)`` on MI300X.

    >>> check_fusion(3)
    [HINT] 3: softmax reads each row once into registers, and what comes before and after needs no other row
    False
    """
    x = torch.empty(512, 1024, dtype=torch.bfloat16, device="meta")
    code = inductor_code(lambda a, b, c: torch.softmax(a + b, -1) * torch.sigmoid(c), [x, x, x])
    if kernels != len(extract_kernels(code)):
        hint = "softmax reads each row once into registers, and what comes before and after needs no other row"
        return no(f"{kernels}: {hint}")
    return yes("one kernel: three loads and one store instead of ten passes over memory")
