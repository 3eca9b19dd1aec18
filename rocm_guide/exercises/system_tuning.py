# SPDX-License-Identifier: MIT
"""The checks of notebook 42_system_tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocm_guide.exercises.common import no, yes
from rocm_guide.observe.system.audit import check_system

__all__ = ["check_machine", "check_partition", "check_saving"]


def check_machine(machine: Any) -> bool:
    """Check exercise 1: a machine on which no check warns."""
    rows = check_system(machine)
    bad = [r for r in rows if r.status != "OK"]
    if bad:
        return no(f"{len(bad)} line(s) left, the first: {bad[0]}")
    capped = [r for r in rows if r.name.startswith("clock") and "1900 MHz" in r.found]
    if not capped:
        return no("no warning, but the clocks are automatic: set the limit of 1900 MHz")
    return yes(f"{len(rows)} checks, no warning, clocks limited to 1900 MHz.")


def check_saving(microseconds: float, launches: int, step_ms: float, answer: float) -> bool:
    """Check exercise 2: the share of a step that faster kernel arguments save, 0 to 1."""
    right = microseconds * launches / (step_ms * 1e3)
    if abs(answer - right) < 0.005:
        return yes(f"{microseconds} us x {launches:,} launches = {microseconds * launches / 1e3:.2f} ms: {right:.0%}.")
    if abs(answer - 100 * right) < 0.5:
        return no(f"{answer}: a share between 0 and 1 is asked for, not per cent")
    return no(f"{answer}: microseconds x launches is microseconds, the step is {step_ms} milliseconds")


def check_partition(answer: Sequence[int], *, dies: int, units: int, memory_gib: int) -> bool:
    """Check exercise 3: (devices, compute units each, GiB each) of an MI300X in CPX mode with NPS4."""
    right = (dies, units // dies, memory_gib // dies)
    names = ("devices", "compute units each", "GiB each")
    if not isinstance(answer, Sequence) or len(answer) != 3:
        return no(f"answer={answer!r}: give three numbers: {', '.join(names)}")
    for given, expected, name in zip(answer, right, names, strict=True):
        if given != expected:
            return no(f"{name}: {given} is not it; CPX makes one device of each of the {dies} dies")
    return yes(f"{right[0]} devices with {right[1]} compute units and {right[2]} GiB each.")
