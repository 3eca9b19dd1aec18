# SPDX-License-Identifier: MIT
"""Checks of notebook 23: two kernels of the reader as puzzles of the dojo, and the six steps as a function."""

from __future__ import annotations

from collections.abc import Callable

from cdna.occupancy import occupancy
from rocm_guide.exercises.common import no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_formula", "check_lean_matmul", "check_softmax_waves"]


def check_formula(formula: Callable[[int, int, int], float]) -> bool:
    """Check exercise 3: ``formula(vgprs, lds, waves_per_workgroup)`` gives waves per SIMD on gfx942.

    The cases cover each rule once: the granule of 8, workgroups that start whole, LDS in steps of 512, no LDS at all.

    >>> check_formula(lambda vgprs, lds, waves: 512 // vgprs)
    [HINT] vgprs=32, lds=0, 4 waves per workgroup: you say 16, the hardware 8. no SIMD holds more than 8 waves
    False
    """
    cases = [
        (64, 0, 4, "registers alone: 512 // 64, and no SIMD holds more than 8 waves"),
        (32, 0, 4, "no SIMD holds more than 8 waves"),
        (170, 0, 4, "registers are handed out in eights: 170 becomes 176, and only two of those fit into 512"),
        (164, 0, 4, "the granule is 8, not 16: 164 becomes 168, and three of those fit into 512"),
        (72, 0, 8, "a workgroup of 8 waves brings 2 to every SIMD, and starts only as a whole"),
        (172, 20_480, 4, "two waves by registers: two workgroups of four waves on four SIMDs"),
        (64, 30_000, 4, "LDS: 65,536 B per CU, shared by whole workgroups"),
        (24, 9_300, 4, "LDS is handed out in steps of 512 B: 9,300 becomes 9,728"),
        (64, 70_000, 4, "more LDS than a CU has: nothing starts"),
        (24, 1_024, 1, "workgroups of a single wave: up to 32 on a CU"),
    ]
    for vgprs, lds, waves, hint in cases:
        right = occupancy(vgprs, lds, waves_per_workgroup=waves).waves_per_simd
        shown = f"vgprs={vgprs}, lds={lds:,}, {waves} waves per workgroup"
        try:
            given = formula(vgprs, lds, waves)
        except ZeroDivisionError:
            return no(f"{shown}: division by zero; a kernel without LDS is not limited by it")
        if not isinstance(given, int | float) or abs(given - right) > 1e-9:
            return no(f"{shown}: you say {given}, the hardware {right:g}. {hint}")
    return yes(f"{len(cases)} kernels, each with another limit, all right")


check_softmax_waves = judge_of("softmax")
check_lean_matmul = judge_of("lean_matmul")
