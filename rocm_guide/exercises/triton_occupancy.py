# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 23: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cdna.occupancy import occupancy
from rocm_guide.common.base import GuideError
from rocm_guide.exercises.common import say

__all__ = ["KERNEL", "check_formula", "check_registers_to_save", "check_rescue"]

#: The kernel of exercise 2, as its descriptor and its launch state it.
KERNEL: dict[str, Any] = {"vgprs": 139, "lds": 12_288, "waves_per_workgroup": 8}


def check_formula(formula: Callable[[int, int, int], float]) -> bool:
    """Check exercise 1: ``formula(vgprs, lds, waves_per_workgroup)`` gives waves per SIMD on gfx942.

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
            return say(False, f"{shown}: division by zero; a kernel without LDS is not limited by it")
        if not isinstance(given, int | float) or abs(given - right) > 1e-9:
            return say(False, f"{shown}: you say {given}, the hardware {right:g}. {hint}")
    return say(True, f"{len(cases)} kernels, each with another limit, all right")


def check_registers_to_save(saved: Any) -> bool:
    """Check exercise 2: how many VGPRs :data:`KERNEL` must save, at least, to gain a workgroup.

    >>> check_registers_to_save(3)
    [HINT] 139 - 3 = 136 VGPRs: 3 waves fit on a SIMD, still 1 workgroup of 8 waves per CU
    False
    """
    if isinstance(saved, bool) or not isinstance(saved, int) or not 0 < saved < KERNEL["vgprs"]:
        return say(False, f"saved={saved!r}: a whole number from 1 to {KERNEL['vgprs'] - 1}")
    now, before = occupancy(**{**KERNEL, "vgprs": KERNEL["vgprs"] - saved}), occupancy(**KERNEL)
    text = f"{KERNEL['vgprs']} - {saved} = {KERNEL['vgprs'] - saved} VGPRs"
    if now.workgroups_per_cu == before.workgroups_per_cu:
        waves = 512 // now.vgprs
        return say(
            False, f"{text}: {waves} waves fit on a SIMD, still {now.workgroups_per_cu} workgroup of 8 waves per CU"
        )
    less = occupancy(**{**KERNEL, "vgprs": KERNEL["vgprs"] - saved + 1})
    if less.workgroups_per_cu > before.workgroups_per_cu:
        return say(False, f"{text} gains a workgroup, and so does saving one register fewer")
    return say(True, f"{text}: {now.workgroups_per_cu} workgroups, {now.waves_per_simd:g} waves per SIMD instead of 2")


def check_rescue(config: Mapping[str, Any], arch: str = "gfx942") -> bool:
    """Check exercise 3: bring the GEMM with 128 x 128 tiles and 4 warps from 2 to at least 3 waves per SIMD,
    nothing spilled.

    ``config`` holds ``tile`` (BM, BN, BK) and options of the compiler; BM, BN and ``num_warps`` have to stay.

    >>> check_rescue({"tile": (64, 64, 64)})
    [HINT] BM and BN stay 128: a smaller tile would cost reuse
    False
    """
    from cdna.examples.tuning import gemm_report

    options = {"num_warps": 4, **config}
    tile = options.pop("tile", (128, 128, 64))
    if tuple(tile[:2]) != (128, 128):
        return say(False, "BM and BN stay 128: a smaller tile would cost reuse")
    if options["num_warps"] != 4:
        return say(False, "num_warps stays 4 in this exercise")
    try:
        r = gemm_report(tile=tuple(tile), arch=arch, **options)
    except GuideError as e:
        return say(False, str(e))
    if r.resources.vgpr_spills:
        return say(False, f"{r.resources.vgpr_spills} registers spill to memory: the hint asked for too much")
    if not r.launches or r.occupancy.waves_per_simd < 3:
        limits = " and ".join(r.occupancy.limited_by)
        return say(False, f"{r.occupancy.waves_per_simd:g} waves per SIMD, limited by {limits}: that is what to save")
    return say(True, f"{r.occupancy.waves_per_simd:g} waves per SIMD: {r.occupancy.vgprs} VGPRs, {r.lds:,} B of LDS")
