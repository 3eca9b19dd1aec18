# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 22: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from cdna.examples.tuning import gemm_report
from cdna.limits import ENOUGH_WORKGROUPS
from rocm_guide.exercises.common import FAULTS, no, yes

__all__ = ["CANDIDATES", "DECODE", "TILES", "check_filter", "check_refused", "check_split_k"]

#: The GEMM of exercise 1: 16 rows of activations, as in decoding, and the tile (BM, BN, BK) that is given.
DECODE: dict[str, tuple[int, int, int]] = {"shape": (16, 4096, 4096), "tile": (16, 64, 128)}

#: The configurations of exercise 2: (tile, num_warps, num_stages).
CANDIDATES: dict[str, tuple[tuple[int, int, int], int, int]] = {
    "A": ((128, 128, 64), 8, 2),
    "B": ((256, 128, 64), 8, 3),
    "C": ((64, 64, 32), 16, 2),
    "D": ((128, 128, 64), 32, 2),
    "E": ((256, 256, 32), 8, 2),
    "F": ((128, 128, 128), 8, 3),
}

#: The configurations of exercise 3: (tile, options). Each condition drops one that all others would keep.
TILES: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((256, 128, 64), {"num_warps": 8}),
    ((128, 128, 64), {"num_warps": 8}),
    ((256, 128, 64), {"num_warps": 4}),
    ((256, 256, 32), {"num_warps": 8}),
    ((256, 256, 32), {"num_warps": 8, "waves_per_eu": 4}),
    ((256, 256, 64), {"num_warps": 8, "num_stages": 3}),
]


def check_split_k(split: Any) -> bool:
    """Check exercise 1: the smallest ``SPLIT_K`` with enough workgroups for :data:`DECODE` and an evenly divided loop.

    >>> check_split_k(1)
    [HINT] 64 workgroups; an MI300X has 304 CUs and wants 1,024 workgroups or more
    False
    """
    (m, n, k), (bm, bn, bk) = DECODE["shape"], DECODE["tile"]
    if isinstance(split, bool) or not isinstance(split, int) or split < 1:
        return no(f"split={split!r}: SPLIT_K is a whole number, 1 or more")
    groups, steps = math.ceil(m / bm) * math.ceil(n / bn) * split, k // bk
    if groups < ENOUGH_WORKGROUPS:
        return no(f"{groups} workgroups; an MI300X has 304 CUs and wants {ENOUGH_WORKGROUPS:,} workgroups or more")
    if steps % split:
        return no(f"the loop over K has {steps} steps, which {split} programs cannot share evenly")
    if groups // 2 >= ENOUGH_WORKGROUPS:
        return no(f"{groups:,} workgroups are more than enough: every further split adds atomic additions")
    return yes(f"{groups:,} workgroups, {steps // split} steps of the K loop each")


def check_refused(answer: Iterable[str]) -> bool:
    """Check exercise 2: the names in :data:`CANDIDATES` that Triton compiles and the hardware would not launch.

    Every candidate is compiled, so the check knows what Triton really makes of it.

    >>> check_refused(["Z"])
    [HINT] 'Z' is no candidate; they are A, B, C, D, E, F
    False
    """
    given = set(answer)
    if unknown := sorted(given - set(CANDIDATES)):
        return no(f"{unknown[0]!r} is no candidate; they are {', '.join(CANDIDATES)}")
    for name, (tile, warps, stages) in CANDIDATES.items():
        r = gemm_report(tile=tile, num_warps=warps, num_stages=stages)
        if r.launches == (name in given):
            why = f"{r.threads:,} threads and {r.lds:,} B of LDS per workgroup"
            return no(f"{name}: {why}: is that within the limits of a workgroup?")
    return yes(f"{', '.join(sorted(given))}: compiled without a word, and refused at launch")


def check_filter(keep: Callable[..., Any]) -> bool:
    """Check exercise 3: a function that keeps the configurations of ``matmul`` that are worth a measurement.

    ``keep(report, tile)`` gets the report of a compiled configuration and its tile (BM, BN, BK). It says True where one
    step does at least 85 FLOPs for each byte that it loads, nothing spills, and 2 waves or more share a SIMD (a
    configuration that cannot be launched has none). It is called with every one of :data:`TILES`, compiled here.

    >>> check_filter(lambda report, tile: False)
    [HINT] (256, 128, 64), num_warps=8 is dropped: 85 FLOPs per byte, nothing spilled, 2 waves per SIMD
    False
    """
    if not callable(keep):
        return no(f"{keep!r:.40}: give the function, without calling it")
    kept = []
    for tile, options in TILES:
        name = f"{tile}, " + ", ".join(f"{k}={v}" for k, v in options.items())
        r = gemm_report((8192, 8192, 8192), tile, **options)
        intensity, spills = tile[0] * tile[1] / (tile[0] + tile[1]), r.resources.vgpr_spills or 0
        waves = r.occupancy.waves_per_simd
        good = intensity >= 85 and not spills and waves >= 2
        try:
            said = keep(r, tile)
        except FAULTS as e:
            return no(f"keep fails for {name}: {type(e).__name__}: {e}")
        if not isinstance(said, bool):
            return no(f"keep returns {said!r:.40} for {name}: True or False is wanted")
        if said != good:
            facts = f"{intensity:.0f} FLOPs per byte, {spills or 'nothing'} spilled, "
            facts += f"{waves:g} wave{'s' * (waves != 1)} per SIMD"
            facts += "" if r.launches else f"; it cannot be launched: {r.findings[0].evidence}"
            return no(f"{name} is {'kept' if said else 'dropped'}: {facts}")
        kept += [name] if good else []
    return yes(f"{len(kept)} of {len(TILES)} are worth a measurement: {'; '.join(kept)}")
