# SPDX-License-Identifier: MIT
"""Checks of notebook 31: three products of the reader, two of them puzzles of the dojo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import executed, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_epilogue", "check_matmul", "check_naive"]


def check_epilogue(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``gated(a, b, bias)`` is SiLU(a @ b + bias) of fp16 matrices in fp16; one launch, rounded once.

    >>> check_epilogue(lambda a, b, bias: torch.nn.functional.silu(a @ b + bias).half())
    [HINT] 70 x 90 x 80: no kernel was launched: yours[grid](…) inside the function
    False
    """
    for m, n, k in ((70, 90, 80), (33, 64, 32)):
        generator = torch.Generator().manual_seed(m)
        a, b = (torch.randn(s, generator=generator).half() for s in ((m, k), (k, n)))
        bias = 4 * torch.randn(n, generator=generator)
        wanted = torch.nn.functional.silu(a.double() @ b.double() + bias.double())
        # One rounding to fp16 is 2^-11 of a number at most; the sums and the sigmoid are of fp32.
        allowed = 5.2e-4 * wanted.abs() + 2e-5
        _, launches, said = executed(call, (a, b, bias), wanted, allowed)
        if said:
            return no(f"{m} x {n} x {k}: {said}")
        if len(launches) > 1:
            return no(f"right, in {len(launches)} launches: the sums are still in registers after the loop")
    used = {use.op for use in launches[-1].compiled.parsed.matrix_uses()}
    if not used:
        return no("right, without a matrix instruction: tl.dot")
    return yes(f"right, in one launch, with {', '.join(sorted(used))}")


check_naive = judge_of("naive_matmul")
check_matmul = judge_of("matmul")
