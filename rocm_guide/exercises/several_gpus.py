# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 05: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_elastic", "check_strategy", "check_traffic"]

_ROOM = 165e9
#: Parameters and processes, on both sides of each border.
_JOBS: tuple[tuple[float, int], ...] = (
    *((1e9, 8), (10.3e9, 2), (10.4e9, 8), (25e9, 8), (27e9, 8), (30e9, 8), (30e9, 64), (39e9, 64)),
    *((70e9, 8), (82e9, 8), (83e9, 8), (405e9, 8), (405e9, 40)),
)


def check_strategy(strategy: Callable[[float, int], Any]) -> bool:
    """Check exercise 1: the first of ddp, zero2 and zero3 that needs at most 165 GB in each process, or none.

    >>> check_strategy(lambda n, p: "ddp")
    [HINT] 10.4 billion parameters on 8: "ddp" needs 166.4 GB in each process, and 165 are there
    False
    """
    for n, p in _JOBS:
        needed = {"ddp": 16 * n, "zero2": 4 * n + 16 * n / p, "zero3": 16 * n / p}
        job = f"{n / 1e9:g} billion parameters on {p}"
        try:
            found = strategy(n, p)
        except FAULTS as e:
            return no(f"{job}: {first_line(e)}")
        right = next((name for name, size in needed.items() if size <= _ROOM), "none")
        if found == right:
            continue
        if found not in (*needed, "none"):
            return no(f"{job}: {found!r} is none of ddp, zero2, zero3 and none")
        if found == "none":
            return no(f'{job}: "{right}" fits, with {needed[right] / 1e9:.1f} GB in each process')
        if needed[found] > _ROOM:
            size = needed[found] / 1e9
            return no(f'{job}: "{found}" needs {size:.1f} GB in each process, and 165 are there')
        return no(f'{job}: "{found}" fits, but "{right}" fits as well and stands before it')
    return yes(f"{len(_JOBS)} jobs: copied while they fit, and cut no further than they must be")


def check_traffic(traffic: Callable[[str, float, int], Any]) -> bool:
    """Check exercise 2: the bytes that each process sends in a step over a ring, for parameters of 4 bytes.

    >>> check_traffic(lambda name, n, p: 4 * n)
    [HINT] "ddp", 1e+09 parameters, 6 processes: the bytes do not depend on the number of processes: (p - 1) / p of each
    False
    """
    times = {"ddp": 2, "zero2": 2, "zero3": 3}
    for name, factor in times.items():
        for n, p in ((1e9, 6), (8e9, 8), (1.5e9, 64)):
            job = f'"{name}", {n:g} parameters, {p} processes'
            try:
                found = float(traffic(name, n, p))
            except FAULTS as e:
                return no(f"{job}: {first_line(e)}")
            right = factor * 4 * n * (p - 1) / p
            if math.isclose(found, right, rel_tol=1e-6):
                continue
            whole = found / (4 * n)
            if math.isclose(whole, round(whole), rel_tol=1e-9):
                return no(f"{job}: the bytes do not depend on the number of processes: (p - 1) / p of each")
            if math.isclose(found * p, right):
                return no(f"{job}: that is the share of one process; every share passes through all of them")
            if math.isclose(found * 4, right):
                return no(f"{job}: those are numbers, of 4 bytes each")
            if name == "ddp" and math.isclose(2 * found, right):
                return no(f"{job}: an all-reduce is a reduce-scatter and an all-gather, two messages")
            if name == "zero3" and math.isclose(found * 1.5, right):
                return no(f"{job}: parameters are gathered for the forward and again for the backward pass")
            wanted = f"{factor} messages of (p - 1) / p of the tensor are {right:.4g}"
            return no(f"{job}: {found:.4g} bytes; {wanted}")
    return yes("2, 2 and 3 messages of (p - 1) / p of all bytes")


def check_elastic(nodes: Any, save_every: Any) -> bool:
    """Check exercise 3: 8 machines, 2 may fail; a step takes 12 s, a failure may cost 5 minutes of work at most.

    >>> check_elastic("6:8", 100)
    [HINT] 100 steps of 12 s are 20 minutes, all lost if a machine fails just before the next checkpoint
    False
    """
    if str(nodes) != "6:8":
        return no(f"nodes={nodes!r}: write the least and the most as 'least:most'; 8 may become 6")
    if not isinstance(save_every, int) or save_every < 1:
        return no(f"save_every={save_every!r}: a whole number of steps, 1 or more")
    minutes = save_every * 12 / 60
    if minutes > 5:
        lost = "all lost if a machine fails just before the next checkpoint"
        return no(f"{save_every} steps of 12 s are {minutes:g} minutes, {lost}")
    if save_every < 5:
        return no(f"a checkpoint every {save_every * 12} s: most of the time would go into writing them")
    return yes(f"6 to 8 machines, and at most {minutes:g} minutes to do again")
