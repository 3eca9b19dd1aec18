# SPDX-License-Identifier: MIT
"""Checks of notebook 16 (ir_and_isa)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocm_guide.exercises.common import say

__all__ = ["check_lane_bits", "check_trips", "check_wait"]


def check_lane_bits(answers: Mapping[str, int]) -> bool:
    """Exercise 1: the widest load of one lane for each of the layouts, in bits.

    Prints [OK] or a hint, and returns whether the answer is right.

    >>> check_lane_bits({"fp16, 1x4": 64, "fp8, 1x16": 128, "fp32, 8x1, order [1, 0]": 32, "bf16, 1x16": 128})
    [OK]   contiguous elements per lane x bits per element, never more than 128
    True
    """
    right = {"fp16, 1x4": 64, "fp8, 1x16": 128, "fp32, 8x1, order [1, 0]": 32, "bf16, 1x16": 128}
    for name, bits in right.items():
        if name not in answers:
            return say(False, f"{name}: not yet. give an answer for each of {', '.join(right)}")
        if answers[name] != bits:
            hint = "multiply the elements along the fastest dimension (order's first) by the bits of the type"
            if answers[name] > 128:
                hint = "the hardware moves 128 bits per lane and instruction at most"
            elif name.startswith("fp32") and answers[name] == 128:
                hint = "order [1, 0] says that dimension 1 is contiguous in memory, and each lane has one element of it"
            return say(False, f"{name}={answers[name]}: not yet. {hint}")
    return say(True, "contiguous elements per lane x bits per element, never more than 128")


def check_wait(outstanding: int) -> bool:
    """Exercise 2: six loads are issued, then ``s_waitcnt vmcnt(4)``, two more loads, then ``s_waitcnt vmcnt(5)``.

    How many may still be under way after the last wait?

    Prints [OK] or a hint, and returns whether the answer is right.

    >>> check_wait(5)
    [OK]   6 loads, then 4 left, then 6 again, then 5: the wait let one more load arrive
    True
    """
    if outstanding == 5:
        return say(True, "6 loads, then 4 left, then 6 again, then 5: the wait let one more load arrive")
    hints = {
        0: "a wait for vmcnt(n) stops waiting as soon as n are left; only vmcnt(0) waits for all",
        1: "vmcnt(5) does not mean that five have arrived, but that five may still be missing",
        4: "after vmcnt(4) two more loads were issued",
        6: "six are under way before the last wait; it goes on when five are",
        8: "the first wait already let two arrive",
    }
    hint = hints.get(outstanding, "vmcnt(n) continues when at most n are under way; loads add to the count")
    return say(False, f"outstanding={outstanding}: not yet. {hint}")


def check_trips(counts: Mapping[str, int], *, block: int = 64, head_dim: int = 128) -> bool:
    """Exercise 3: how often the packed keys pass through LDS on their way to the matrix cores, in each kernel.

    ``counts`` maps ``reshaped``, ``gathered`` and ``planar`` to a number of trips. The kernels are compiled here, for
    ``block`` tokens per workgroup and keys of ``head_dim``, and the shortest way from the load of the keys to the first
    ``tt.dot`` is followed.

    Prints [OK] or a hint, and returns whether the answer is right.
    """
    right = {name: _trips(name, block, head_dim) for name in ("reshaped", "gathered", "planar")}
    for name, trips in right.items():
        if name not in counts:
            return say(False, f"{name}: not yet. give a count for each of {', '.join(right)}")
        if counts[name] != trips:
            hint = "follow program.path(load, dot) and count the steps whose move ends in LDS or passes through it"
            if counts[name] == trips + 1:
                hint = "the queries go through LDS too; only the keys are asked for"
            return say(False, f"{name}={counts[name]}: not yet. {hint}")
    return say(True, f"{', '.join(f'{name} {trips}' for name, trips in right.items())}")


def _trips(name: str, block: int, head_dim: int) -> int:
    import torch

    from rocm_guide.mi300x.compile import compile_kernel
    from rocm_guide.mi300x.examples.int4_scores import int4_scores_gathered, int4_scores_planar, int4_scores_reshaped
    from rocm_guide.mi300x.ir.program import parse_ir

    def meta(*shape: int, dtype: Any = torch.int32) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    kernels = {"gathered": int4_scores_gathered, "planar": int4_scores_planar, "reshaped": int4_scores_reshaped}
    kernel = kernels[name]
    arguments = [
        meta(16, head_dim, dtype=torch.float16),
        meta(4096, head_dim // 8),
        meta(4096),
        meta(16, 4096, dtype=torch.float32),
        4096,
    ]
    program = parse_ir(compile_kernel(kernel, arguments, {"M": 16, "BLOCK": block, "D": head_dim}).ttgir)[0]
    dot = next(op for op in program.operations if op.name == "tt.dot")
    # The keys are the operand whose way back leads to a load of int32 tiles.
    loads = [
        g.value for g in program.global_accesses if g.access == "load" and g.value and g.value.type.element == "i32"
    ]
    keys = max(loads, key=lambda v: v.type.bytes)
    moves = [step.move for step in program.path(keys.name, dot.results[0])]
    return sum("-> LDS" in move for move in moves)
