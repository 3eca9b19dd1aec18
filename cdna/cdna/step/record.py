# SPDX-License-Identifier: MIT
"""Execute one workgroup and keep what one of its waves did: each step as what it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cdna.base import InputError
from cdna.isa.sources import lines_of_code
from cdna.run import Counters, DecodedInstruction, RunError, Wave, prepare
from cdna.run.in_flight import register_name
from cdna.step.state import Loading, State, StateChange

__all__ = ["Event", "Recording", "StepError", "record"]


class StepError(InputError):
    """A recording that cannot be made as asked."""


class Event(NamedTuple):
    """One executed instruction as the timeline needs it.

    Attributes:
        index: which instruction of the program.
        lds_cycles, lds_ideal: cycles of its LDS access with and without bank conflicts.
        lines: numbers of the 128-byte lines of global memory that it touched.
        active: whether any lane was switched on.
    """

    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    lds_cycles: int = 0
    lds_ideal: int = 0
    lines: tuple[int, ...] = ()
    active: bool = True


@dataclass(repr=False)
class Recording:
    """One workgroup's run: every step of one wave, and the instructions of all.

    Attributes:
        name, code: the kernel and its instructions.
        group, wave: which workgroup (number) and which of its waves.
        steps: what the wave's instructions changed, in order.
        events: for each wave of the workgroup what it executed, for :func:`cdna.step.timeline.timeline`.
        counters: of the whole workgroup.
        vgprs, agprs, lds: registers of each kind that the code names, and bytes of LDS.
        sources: lines of the user's code by ``file:line``.
        error: the message of the error that ended the run, or an empty text.
        cut: the recording stopped at its limit.
    """

    name: str
    code: list[DecodedInstruction]
    group: int
    wave: int
    start: State
    vgprs: int
    agprs: int
    lds: int
    steps: list[StateChange] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    sources: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    cut: bool = False

    def state(self, step: int) -> State:
        """Return the wave before step number ``step``; ``len(steps)`` is the end.

        Raises:
            StepError: there is no such step.
        """
        if not 0 <= step <= len(self.steps):
            raise StepError(f"step {step}: the recording has steps 0 to {len(self.steps)}")
        now = self.start.copy()
        for s in self.steps[:step]:
            now.apply(s)
        now.pc = self.steps[step].index if step < len(self.steps) else self.start.pc if not self.steps else -1
        return now

    def find(self, line: int, after: int = -1) -> int:
        """Return the number of the first step after ``after`` whose instruction stands in line ``line`` of the text.

        Raises:
            StepError: the wave does not execute that line again.
        """
        for n in range(after + 1, len(self.steps)):
            if self.code[self.steps[n].index].line == line:
                return n
        raise StepError(f"line {line}: the wave does not execute it{' again' if after >= 0 else ''}")

    def find_op(self, op: str, after: int = -1) -> int:
        """Return the number of the first step after ``after`` whose instruction's name begins with ``op``.

        Raises:
            StepError: the wave executes no such instruction.
        """
        for n in range(after + 1, len(self.steps)):
            if self.code[self.steps[n].index].op.startswith(op):
                return n
        raise StepError(f"{op}: the wave executes no such instruction after step {after}")

    def text(self, step: int) -> str:
        """Return the instruction that step number ``step`` executes."""
        return self.code[self.steps[step].index].text

    def source(self, step: int) -> str:
        """Return the line of the user's code that the instruction came from, or its place, or nothing."""
        place = self.code[self.steps[step].index].source.rpartition(":")[0]
        return self.sources.get(place, place)

    def __repr__(self) -> str:
        return f"<{self.name}: workgroup {self.group}, wave {self.wave}, {len(self.steps):,} steps>"

    def _repr_html_(self) -> str:
        """Return the stepping page at small size, for a notebook."""
        from cdna.step.page import inline

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
) -> Recording:
    """Execute one workgroup of a launch, its waves in turn, and keep each step of one wave.

    Nothing is written into the caller's arrays. An error of the kernel (a missing wait, an address out of bounds) does
    not raise: the recording ends there and ``error`` holds the message.

    Args:
        kernel, grid, arguments, name, block, shared: as for :func:`cdna.run.session`.
        group, wave: number of the workgroup in the grid, and of the wave in it.
        limit: steps that are kept.
        folder: where the kernel's source file lies, so that its lines can be shown.

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
    out = Recording(
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
        while not out.cut and any(w.status != "ended" for w in g.waves):
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
                        out.cut = len(out.steps) >= limit and w.status != "ending"
            except RunError as e:
                out.error = str(e)
                break
    machine.counters.watch = None
    out.counters = machine.tally()
    return out
