# SPDX-License-Identifier: MIT
"""The checks of notebook 40_profiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rocm_guide.exercises.common import no, yes

__all__ = ["check_bound", "check_culprit", "check_idle_share"]


def check_culprit(name: str, summary: Any) -> bool:
    """Check exercise 1: the kernel that takes most of the attention slice."""
    inside = [k for k in summary.kernels if k.slice == "attention"]
    if not isinstance(name, str) or len(name.strip()) < 5:
        return no(f"name={name!r}: give a telling part of the kernel's name, for example 'flash'")
    matching = [k for k in inside if name.lower() in k.name.lower()]
    share = sum(k.total_us for k in matching) / summary.slices["attention"]
    if not matching:
        return no(f"{name!r} is in no kernel of the slice: filter summary.kernels by slice == 'attention'")
    if share > 0.95:
        return no(f"{name!r} is in nearly every kernel of the slice: name the operation, not what surrounds it")
    if share < 0.5:
        return no(f"{name!r} takes {share:.0%} of the slice; another kernel takes more: sort by total_us")
    return yes(f"{name} takes {share:.0%} of the slice.")


def check_idle_share(function: Callable[[Sequence[tuple[float, float]]], float]) -> bool:
    """Check exercise 2: a function of [(start, duration), …] that returns the idle share of the span."""
    cases = [
        ([(0.0, 4.0), (6.0, 4.0)], 0.2, "two kernels with a gap of 2 in a span of 10"),
        ([(0.0, 10.0), (2.0, 3.0)], 0.0, "a short kernel inside a long one, on another stream: nothing is idle"),
        ([(5.0, 5.0), (0.0, 2.5)], 0.25, "kernels that are not in order of their start"),
        ([(0.0, 4.0), (2.0, 4.0), (8.0, 2.0)], 0.2, "two kernels that overlap: their common time counts once"),
    ]
    for spans, expected, what in cases:
        found = function(list(spans))
        if not isinstance(found, (int, float)) or abs(found - expected) > 1e-9:
            return no(f"{spans}: you say {found!r}, it is {expected} ({what})")
    return yes("Four cases, overlap and disorder included.")


def check_bound(answer: dict[str, str], points: Sequence[Any]) -> bool:
    """Check exercise 3: for every kernel, "memory" or "compute", the side of the ridge on which it lies."""
    for point in points:
        key = next((k for k in answer if k.lower() in point.name.lower()), None)
        if key is None:
            return no(f"no answer for {point.name[:50]}; use a part of its name as key")
        if answer[key] != point.bound:
            ridge = f"the ridge of {point.gpu} is where peak / bandwidth is"
            return no(f"{key}: {point.intensity:.3g} FLOPs per byte; {ridge}")
    return yes(f"{len(points)} kernels on the right side of the ridge.")
