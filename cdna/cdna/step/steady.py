# SPDX-License-Identifier: MIT
"""Cycles of a loop in its steady state: the timeline model of two runs that differ only in their number of turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.costs import CostError, Costs
from cdna.run import prepare
from cdna.step.record import Watch
from cdna.step.state import Event, Recording, State
from cdna.step.timeline import Timeline, timeline

__all__ = ["events_of", "steady_cycles"]


def events_of(kernel: Any, grid: Any, arguments: Any, workgroup: int = 0, limit: int = 1_000_000) -> Recording:
    """Run one workgroup without recording the steps of a wave, which takes a small part of a recording's time.

    Args:
        kernel, grid, arguments: as for :func:`cdna.run.session.run`.
        workgroup: its number in the grid.
        limit: steps that its waves may take.

    Raises:
        RunError: the code does what the hardware does not allow.
        CostError: every wave waits at a barrier.
    """
    machine = prepare(kernel, grid, arguments, limit=limit).machine
    group = machine.start_group(workgroup)
    assert group is not None
    watch = Watch(machine.counters)
    events: list[list[Event]] = [[] for _ in group.waves]
    with np.errstate(all="ignore"):
        while any(w.status != "ended" for w in group.waves):
            ready = [w for w in group.waves if w.status in ("ready", "ending")]
            if not ready:
                raise CostError("every wave waits at a barrier that others never reach")
            for w in ready:
                if w.status == "ending":
                    machine.step(w)
                    continue
                o, active = machine.code[w.pc], w.exec != 0
                watch.begin()
                machine.step(w)
                events[w.index].append(watch.event(o, active))
    machine.counters.watch = None
    start = State(0, {}, {}, [], 0, 0, ())
    name, lds, counters = machine.program.name, machine.lds_bytes, machine.counters
    return Recording(name, machine.code, 0, 0, start, 0, 0, lds, events=events, counters=counters)


def steady_cycles(
    kernel: Any,
    launch: Callable[[int], tuple[Any, Any]],
    lengths: tuple[int, int],
    *,
    groups: int = 1,
    costs: Costs | None = None,
) -> tuple[float, Timeline]:
    """Model cycles for each unit of length, of a compute unit with ``groups`` workgroups; and the longer timeline.

    Start and end of the kernel cancel out, since both runs have them.

    Args:
        kernel: as for :func:`cdna.run.session.run`.
        launch: the grid and the arguments for a length, for example along K.
        lengths: a shorter and a longer one.
        groups: workgroups on the compute unit.
        costs: of the model.

    Raises:
        CostError: lengths that do not grow.
        RunError: the code does what the hardware does not allow.
    """
    short, long = lengths
    if not 0 < short < long:
        raise CostError(f"lengths={lengths!r}: a shorter and a longer one")
    found = []
    for length in lengths:
        found.append(timeline(events_of(kernel, *launch(length)), costs, groups=groups))
    return (found[1].cycles - found[0].cycles) / (long - short), found[1]
