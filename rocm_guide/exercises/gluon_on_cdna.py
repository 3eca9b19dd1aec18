# SPDX-License-Identifier: MIT
"""Checks of notebook 37: three Gluon kernels of the reader, executed as gfx942 machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cdna.compile import Compiled
from cdna.run.launches import Executed
from rocm_guide.exercises.common import executed, no, yes

__all__ = ["check_product", "check_rows", "check_turned"]

_CONFLICTS = 1.5  # most cycles of LDS, as a multiple of those without a conflict


def _executed(call: Callable[..., Any], given: tuple[Any, ...], wanted: Any, allowed: Any) -> tuple[Any, str]:
    """Return the last launch of ``call``, a Gluon kernel's, and what is wrong so far (empty if nothing is)."""
    _, launches, said = executed(call, given, wanted, allowed)
    if launches and launches[-1].compiled.ttir:
        said = f"{launches[-1].kernel} is in Triton's language: decorate it with @gluon.jit and give layouts"
    return (None if said else launches[-1]), said


def _narrow(code: Compiled, access: str, bits: int = 128) -> str:
    """Say how wide most global accesses are, if that is less than ``bits`` a lane; empty otherwise."""
    widths = code.parsed.widths("global", access)
    if max(widths, default=0) >= bits and 2 * widths[max(widths)] >= sum(widths.values()):
        return ""
    said = ", ".join(f"{n} of {w} bits" for w, n in sorted(widths.items())) or "none"
    return f"global {access}s: {said}; {bits} bits a lane are possible with size_per_thread along the row"


def check_turned(call: Callable[..., Any]) -> bool:
    """Check exercise 1: ``turned(x)`` returns the transpose of a 64 x 64 tile of fp32, through LDS without conflicts.

    >>> check_turned(lambda x: x.T)
    [HINT] no kernel was launched: yours[grid](…) inside the function
    False
    """
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    last, said = _executed(call, (x,), x.double().T, 0.0)
    if said:
        return no(said)
    count, code = last.result.counters, last.compiled
    if not code.shared:
        return no("right, without LDS: then either loads or stores go down a column; store the tile in LDS")
    if narrow := _narrow(code, "load") or _narrow(code, "store"):
        return no(f"right, but {narrow}")
    if count.lds_cycles > _CONFLICTS * count.lds_ideal:
        return no(f"right, but {_banks(last)}: lanes meet in one bank; swizzle the tile")
    return yes(f"right, with wide accesses; {_banks(last)}")


def _banks(last: Executed) -> str:
    count = last.result.counters
    return f"{count.lds_cycles:,} cycles of LDS, {count.lds_ideal:,} without conflicts"


def check_product(call: Callable[..., Any]) -> bool:
    """Check exercise 2: ``product(x, w)`` returns X W^T in fp32 for bf16 tiles of 64 x K, with MFMA 32 x 32 x 8."""
    generator = torch.Generator().manual_seed(1)
    for k in (32, 96):
        x, w = (torch.randn(64, k, generator=generator).bfloat16() for _ in range(2))
        last, said = _executed(call, (x, w), x.double() @ w.double().T, 1e-4)
        if said:
            return no(f"K = {k}: {said}")
    used = {m.op for m in last.compiled.parsed.matrix_uses()}
    if not used:
        return no("right, without a matrix instruction: cdna3.mfma")
    if not all("32x32x8" in op for op in used):
        return no(f"right, with {', '.join(sorted(used))}: instr_shape is [32, 32, 8] here")
    if narrow := _narrow(last.compiled, "load", 64):
        return no(f"right, but {narrow}")
    return yes(f"right, with {', '.join(sorted(used))}")


def check_rows(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``rms(x)`` divides each row of an (n, 1024) fp16 matrix by the root of its mean square; a row
    lies in one wave, so that the sum needs neither LDS nor a barrier.
    """
    for n in (8, 5):
        # So large that a sum in fp16 overflows; the result is rounded to fp16 once, by 2^-11 of itself.
        x = (60 * torch.randn(n, 1024, generator=torch.Generator().manual_seed(n))).half()
        wanted = x.double() / x.double().square().mean(1, keepdim=True).sqrt()
        last, said = _executed(call, (x,), wanted, 6e-4 * wanted.abs() + 1e-6)
        if said:
            return no(f"{n} rows: {said}")
    code = last.compiled
    if code.shared or code.parsed.barriers:
        many = f"{code.shared:,} bytes of LDS, {code.parsed.barriers} barriers"
        return no(f"right, but {many}: let the lanes of one wave hold a whole row")
    if narrow := _narrow(code, "load") or _narrow(code, "store"):
        return no(f"right, but {narrow}")
    return yes("right, with wide accesses, no LDS and no barrier")
