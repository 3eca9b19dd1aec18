# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 30: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.exercises.common import say

__all__ = ["check_floor", "check_merge", "check_tile"]


def check_floor(floor: Callable[[int, int, int], float]) -> bool:
    """Check exercise 1: ``floor(rows, columns, item_bytes)``,
    the least time in seconds of RMSNorm's backward on an MI300X.

    It reads x and dy and writes dx; the weight and one number per row are too small to count. 5.3 TB/s.

    >>> check_floor(lambda rows, columns, item_bytes: rows * columns * item_bytes / 5.3e12)
    [HINT] 2048 x 16384 in 2 bytes: you say 12.7 us. Three tensors of this size cross the memory bus, not 1
    False
    """
    for rows, columns, item in ((2048, 16384, 2), (1, 16384, 2), (512, 4096, 4)):
        right = 3 * rows * columns * item / 5.3e12
        try:
            given = floor(rows, columns, item)
        except TypeError as e:
            return say(False, f"floor(rows, columns, item_bytes) takes three numbers: {e}")
        shown = f"{rows} x {columns} in {item} bytes"
        if not isinstance(given, int | float) or not math.isfinite(given):
            return say(False, f"{shown}: you say {given!r}; a number of seconds is wanted")
        times = given / right * 3
        if abs(times - 3) > 0.15:
            text = f"{shown}: you say {given * 1e6:.3g} us. "
            if any(abs(times - n) < 0.05 for n in (1, 2, 4, 5, 6)):
                return say(False, text + f"Three tensors of this size cross the memory bus, not {times:.0f}")
            if abs(given / right - 1e6) < 1e5:
                return say(False, f"{shown}: that is microseconds; seconds are wanted")
            return say(False, text + "Bytes divided by 5.3e12 bytes per second")
    return say(True, f"{3 * 2048 * 16384 * 2 / 5.3e12 * 1e6:.0f} us for 2,048 rows of 16,384 in bf16, at the very best")


def check_merge(merge: Callable[[float, float, float, float], tuple[float, float]]) -> bool:
    """Check exercise 2: ``merge(max_a, sum_a, max_b, sum_b)`` of two parts of a row gives (max, sum) of both together.

    ``sum`` is the sum of exp(x - max) over a part.

    >>> check_merge(lambda max_a, sum_a, max_b, sum_b: (max(max_a, max_b), sum_a + sum_b))
    [HINT] max 1, sum 2 and max 3, sum 1: the sum is not 3. Each sum counts in units of exp(its own max)
    False
    """
    inf = math.inf
    cases = [
        (1.0, 2.0, 3.0, 1.0, "Each sum counts in units of exp(its own max)"),
        (3.0, 1.0, 1.0, 2.0, "It must not matter which part is larger"),
        (-5.0, 1.5, -5.0, 2.5, "Equal maxima: nothing is rescaled"),
        (1000.0, 1.0, 0.0, 4.0, "exp(1000) overflows: only ever exponentiate a difference that is not positive"),
        (0.0, 4.0, -1000.0, 3.0, "exp(1000) overflows: only ever exponentiate a difference that is not positive"),
        (-inf, 0.0, 2.0, 1.0, "An empty part has max -inf and sum 0, and changes nothing"),
        (-inf, 0.0, -inf, 0.0, "Two empty parts: -inf - -inf is NaN, which must not get out"),
    ]
    for max_a, sum_a, max_b, sum_b, hint in cases:
        top = max(max_a, max_b)
        total = sum(s * math.exp(m - top) for m, s in ((max_a, sum_a), (max_b, sum_b)) if m > -inf)
        shown = f"max {max_a:g}, sum {sum_a:g} and max {max_b:g}, sum {sum_b:g}"
        try:
            got = tuple(float(v) for v in merge(max_a, sum_a, max_b, sum_b))
        except OverflowError:
            return say(False, f"{shown}: overflow. {hint}")
        except TypeError:
            return say(False, f"{shown}: return two numbers, (max, sum)")
        if len(got) != 2:
            return say(False, f"{shown}: return two numbers, (max, sum)")
        if got[0] != top:
            return say(False, f"{shown}: the maximum of both is {top:g}, not {got[0]:g}")
        if not abs(got[1] - total) <= 1e-12 * max(total, 1.0):
            return say(False, f"{shown}: the sum is not {got[1]:g}. {hint}")
    return say(True, f"{len(cases)} pairs of parts, empty ones and huge ones too")


def check_tile(tile: Any, arch: str = "gfx942") -> bool:
    """Check exercise 3: a launch configuration for softmax over 65,536 short rows, 256 columns of bf16 each.

    ``tile`` is a :class:`rocm_guide.kernels.softmax.Tile` or a mapping of ``rows`` and ``warps``. Wanted: 128-bit
    loads and stores only, 8 waves per SIMD, nothing spilled.

    >>> check_tile({"rows": 1, "warps": 4})
    [HINT] 256 elements for 256 lanes: a lane with 1 element of 2 bytes loads 16 bits, not 128
    False
    """
    import torch

    from cdna.dry_run.driver import dry_run
    from rocm_guide.kernels.softmax import Tile, softmax_forward

    if isinstance(tile, Mapping):
        try:
            tile = Tile(256, **{"rows": 1, "warps": 4, **tile})
        except TypeError as e:
            return say(False, f"{e}: give rows and warps")
    numbers = (getattr(tile, "rows", 0), getattr(tile, "warps", 0))
    if not isinstance(tile, Tile) or any(type(n) is not int or n < 1 or n & (n - 1) for n in numbers):
        return say(False, f"{tile!r}: rows and warps are powers of two, 1 or more")
    if tile.rows * 256 > 512 * 64 * tile.warps:  # the compiler would take minutes to say so
        return say(False, f"{tile.rows * 4 // tile.warps} elements for each lane, which has 512 registers")
    try:
        with dry_run(arch, device="meta") as run:
            softmax_forward(torch.empty(65536, 256, dtype=torch.bfloat16, device="cuda"), tile=tile)
    except GuideError as e:
        return say(False, str(e))
    r = run.reports[0]
    for finding in r.findings:
        if finding.level == "error" or finding.rule == "spills":
            return say(False, finding.evidence)
    elements, bits = tile.rows * 256, sorted({*r.isa.global_loads, *r.isa.global_stores})
    if bits != [128]:
        text = f"{elements} elements for {r.threads} lanes: "
        if elements // r.threads >= 8:
            return say(False, text + f"accesses of {bits} bits")
        each = max(elements // r.threads, 1)
        return say(
            False, text + f"a lane with {each} element{'s' * (each > 1)} of 2 bytes loads {bits[0]} bits, not 128"
        )
    if r.occupancy.waves_per_simd < 8:
        why = f"{r.occupancy.vgprs} VGPRs for {elements // r.threads} elements per lane"
        return say(False, f"{r.occupancy.waves_per_simd:g} waves per SIMD: {why}; 64 is the most for 8 waves")
    return say(True, f"{elements} elements for {r.threads} lanes, 128-bit accesses, 8 waves, {r.occupancy.vgprs} VGPRs")
