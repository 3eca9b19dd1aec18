# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 14: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.exercises.common import say
from rocm_guide.mi300x.limits import ENOUGH_WORKGROUPS

__all__ = ["CANDIDATES", "DECODE", "check_large_tile", "check_refused", "check_split_k"]

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


def check_split_k(split: Any) -> bool:
    """Exercise 1: the smallest ``SPLIT_K`` that gives :data:`DECODE` enough workgroups and divides its loop evenly.

    >>> check_split_k(1)
    [HINT] 64 workgroups; an MI300X has 304 CUs and wants 1,024 workgroups or more
    False
    """
    (m, n, k), (bm, bn, bk) = DECODE["shape"], DECODE["tile"]
    if isinstance(split, bool) or not isinstance(split, int) or split < 1:
        return say(False, f"split={split!r}: SPLIT_K is a whole number, 1 or more")
    groups, steps = math.ceil(m / bm) * math.ceil(n / bn) * split, k // bk
    if groups < ENOUGH_WORKGROUPS:
        return say(
            False, f"{groups} workgroups; an MI300X has 304 CUs and wants {ENOUGH_WORKGROUPS:,} workgroups or more"
        )
    if steps % split:
        return say(False, f"the loop over K has {steps} steps, which {split} programs cannot share evenly")
    if groups // 2 >= ENOUGH_WORKGROUPS:
        return say(False, f"{groups:,} workgroups are more than enough: every further split adds atomic additions")
    return say(True, f"{groups:,} workgroups, {steps // split} steps of the K loop each")


def check_refused(answer: Iterable[str], arch: str = "gfx942") -> bool:
    """Exercise 2: the names in :data:`CANDIDATES` that Triton compiles and the hardware would not launch.

    Every candidate is compiled, so the check knows what Triton really makes of it.

    >>> check_refused(["Z"])
    [HINT] 'Z' is no candidate; they are A, B, C, D, E, F
    False
    """
    from rocm_guide.mi300x.examples.tuning import gemm_report

    given = set(answer)
    if unknown := sorted(given - set(CANDIDATES)):
        return say(False, f"{unknown[0]!r} is no candidate; they are {', '.join(CANDIDATES)}")
    for name, (tile, warps, stages) in CANDIDATES.items():
        r = gemm_report(tile=tile, num_warps=warps, num_stages=stages, arch=arch)
        if r.launches == (name in given):
            why = f"{r.threads:,} threads and {r.lds:,} B of LDS per workgroup"
            return say(False, f"{name}: {why}: is that within the limits of a workgroup?")
    return say(True, f"{', '.join(sorted(given))}: compiled without a word, and refused at launch")


def check_large_tile(config: Mapping[str, Any], arch: str = "gfx942") -> bool:
    """Exercise 3: a configuration of ``matmul`` with at least 85 FLOPs per loaded byte that still runs well.

    ``config`` has ``tile`` (BM, BN, BK) and any option of the compiler. Wanted: it can be launched, nothing spills,
    and at least 2 waves per SIMD are resident.

    >>> check_large_tile({"tile": (128, 128, 64), "num_warps": 8})
    [HINT] a tile of 128 x 128 does 64 FLOPs for each byte it loads; 85 are wanted
    False
    """
    from rocm_guide.mi300x.examples.tuning import gemm_report

    options = dict(config)
    bm, bn, bk = options.pop("tile", (0, 0, 0))
    if min(bm, bn, bk) < 16:
        return say(False, f"tile={config.get('tile')!r}: give (BM, BN, BK), each 16 or more")
    if (intensity := bm * bn / (bm + bn)) < 85:
        return say(False, f"a tile of {bm} x {bn} does {intensity:.0f} FLOPs for each byte it loads; 85 are wanted")
    try:
        r = gemm_report((8192, 8192, 8192), (bm, bn, bk), arch=arch, **options)
    except GuideError as e:
        return say(False, str(e))
    if not r.launches:
        return say(False, f"{r.findings[0].evidence}. Try: {r.findings[0].fix}")
    if r.resources.vgpr_spills:
        return say(False, f"{r.resources.vgpr_spills} registers spill: share the tile among more warps")
    if r.occupancy.waves_per_simd < 2:
        return say(
            False, f"{r.occupancy.waves_per_simd:g} wave per SIMD leaves nobody to hide its latency; 2 are wanted"
        )
    return say(
        True, f"{intensity:.0f} FLOPs per byte at {r.occupancy.waves_per_simd:g} waves per SIMD, nothing spilled"
    )
