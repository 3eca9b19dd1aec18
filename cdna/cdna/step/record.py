# SPDX-License-Identifier: MIT
"""Execute one workgroup and keep what one of its waves did: each step as what it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdna.isa.text import lines_of_code
from cdna.run import Counters, DecodedInstruction, RunError, Wave, prepare
from cdna.run.in_flight import register_name
from cdna.step.page import inline
from cdna.step.state import Event, Loading, Recording, State, StateChange, StepError

__all__ = ["record"]


class _Displayed(Recording):
    def _repr_html_(self) -> str:  # the stepping page at small size, for a notebook
        return inline(self)


class Watch:
    """Collects what one instruction does to memory."""

    def __init__(self, counters: Counters) -> None:
        self.counters, self.lines, self.lds = counters, set(), []  # type: ignore[var-annotated]
        self.cycles = self.ideal = 0
        counters.watch = self

    def __call__(self, where: str, addresses: Any, size: int, write: bool) -> None:
        if where == "lds":
            self.lds.append((np.asarray(addresses), size, write))
        else:
            self.lines.update((np.concatenate([addresses, addresses + size - 1]) >> 7).tolist())

    def begin(self) -> None:
        self.lines.clear()
        self.lds = []
        self.cycles, self.ideal = self.counters.lds_cycles, self.counters.lds_ideal

    def event(self, o: DecodedInstruction, active: bool) -> Event:
        c = self.counters
        return Event(o.index, c.lds_cycles - self.cycles, c.lds_ideal - self.ideal, tuple(sorted(self.lines)), active)


def _scalar(value: Any) -> int | str | None:
    return value if value is None or isinstance(value, int) else "loading"


def _loading(w: Wave) -> tuple[Loading, ...]:
    named = []
    for f in w.in_flight:
        kind = "s{}".format if f.scalar else register_name
        names = tuple(kind(r) for r in f.registers)
        counter = "vmcnt and lgkmcnt" if f.counter == "flat" else f.counter
        named.append(Loading(f.line, f.op, counter, names, int(f.lanes).bit_count()))
    return tuple(named)


def _snapshot(w: Wave) -> State:
    rows = [*range(w.rows[0]), *range(256, 256 + w.rows[1])]
    return State(
        w.pc,
        {r: w.V[r].copy() for r in rows},
        {r: w.valid[r] for r in rows},
        [_scalar(x) for x in w.s],
        w.exec,
        w.scc,
        _loading(w),
    )


def _difference(before: State, w: Wave, o: DecodedInstruction, lds: list[Any]) -> StateChange:
    """Return what the instruction changed; ``before`` becomes the state after it."""
    vectors = {}
    for r, old in before.vectors.items():
        row, valid = w.V[r], w.valid[r]
        if valid != before.valid[r] or not np.array_equal(old, row):
            vectors[r] = (row.copy(), valid)
    scalars = {n: _scalar(x) for n, x in enumerate(w.s) if _scalar(x) != before.scalars[n]}
    loading = _loading(w)
    step = StateChange(
        o.index,
        vectors,
        scalars,
        w.exec if w.exec != before.exec else None,
        w.scc if w.scc != before.scc else None,
        loading if loading != before.loading else None,
        tuple(lds),
    )
    before.apply(step)
    return step


def record(
    kernel: Any,
    grid: int | Sequence[int],
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    group: int = 0,
    wave: int = 0,
    limit: int = 20_000,
    name: str | None = None,
    block: int | Sequence[int] | None = None,
    shared: int | None = None,
    folder: Path | None = None,
    until: Callable[[int], str] = lambda steps: "",
) -> Recording:
    """Execute one workgroup of a launch, its waves in turn, and keep each step of one wave.

    Nothing is written into the caller's arrays. An error of the kernel (a missing wait, an address out of bounds) does
    not raise: the recording ends there and ``error`` holds the message.

    Args:
        kernel, grid, arguments, name, block, shared: as for :func:`cdna.run.session`.
        group, wave: number of the workgroup in the grid, and of the wave in it.
        limit: steps that are kept.
        folder: where the kernel's source file lies, so that its lines can be shown.
        until: called before each round of the waves with the steps kept so far; what it returns, if not an empty text,
            ends the recording and is kept as the reason.

    Raises:
        StepError: no such workgroup or wave.
        RunError: text or arguments that make no sense.
    """
    if not isinstance(limit, int) or limit < 1:
        raise StepError(f"limit={limit!r}: steps to keep, at least 1")
    machine = prepare(kernel, grid, arguments, name=name, block=block, shared=shared).machine
    if not isinstance(group, int) or not 0 <= group < machine.total:
        raise StepError(f"group={group!r}: the grid has workgroups 0 to {machine.total - 1}")
    g = machine.start_group(group)
    assert g is not None
    if not isinstance(wave, int) or not 0 <= wave < len(g.waves):
        raise StepError(f"wave={wave!r}: the workgroup has waves 0 to {len(g.waves) - 1}")
    chosen = g.waves[wave]
    start = _snapshot(chosen)
    now = start.copy()
    watch = Watch(machine.counters)
    places = {o.source.rpartition(":")[0] for o in machine.code}
    out = _Displayed(
        machine.program.name,
        machine.code,
        group,
        wave,
        start,
        *chosen.rows,
        machine.lds_bytes,
        events=[[] for _ in g.waves],
        sources=lines_of_code(places, folder),
    )
    with np.errstate(all="ignore"):
        while any(w.status != "ended" for w in g.waves):
            out.cut = out.cut or until(len(out.steps))
            if out.cut:
                break
            ready = [w for w in g.waves if w.status in ("ready", "ending")]
            if not ready:
                out.error = "every wave waits at a barrier that others never reach"
                break
            try:
                for w in ready:
                    if w.status == "ending":
                        machine.step(w)
                        continue
                    o, active = machine.code[w.pc], w.exec != 0
                    watch.begin()
                    machine.step(w)
                    out.events[w.index].append(watch.event(o, active))
                    if w is chosen:
                        out.steps.append(_difference(now, w, o, watch.lds))
                        if len(out.steps) >= limit and w.status != "ending":
                            out.cut = f"the limit of {limit:,} steps is reached"
            except RunError as e:
                out.error = str(e)
                break
    machine.counters.watch = None
    out.counters = machine.tally()
    return out
