# SPDX-License-Identifier: MIT
"""A recorded run of a workgroup: the state of one wave, and what each step changes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cdna.base import InputError
from cdna.run import Counters, DecodedInstruction

__all__ = ["Event", "Loading", "Recording", "State", "StateChange", "StepError"]


class Loading(NamedTuple):
    """A memory operation under way: who started it, what counts it, where it goes, how many lanes take part."""

    line: int
    op: str
    counter: str
    registers: tuple[str, ...]
    lanes: int


class StateChange(NamedTuple):
    """Changes by one instruction; None or empty where nothing did.

    Attributes:
        index: the instruction, as a place in the program.
        vectors: for each changed vector register its 64 values (uint32) and the mask of defined lanes.
        scalars: for each changed scalar register its value, None if undefined, ``loading`` while a load is under way.
        exec, scc: the new execution mask and condition code.
        loading: everything that is under way after the instruction.
        lds: its LDS accesses: byte addresses, bytes for each, whether they write.
    """

    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    vectors: dict[int, tuple[Any, int]]
    scalars: dict[int, Any]
    exec: int | None
    scc: int | None
    loading: tuple[Loading, ...] | None
    lds: tuple[tuple[Any, int, bool], ...]


@dataclass
class State:
    """One wave between two instructions; fields as in :class:`StateChange`, ``pc`` is the next instruction."""

    pc: int
    vectors: dict[int, Any]
    valid: dict[int, int]
    scalars: list[Any]
    exec: int
    scc: int
    loading: tuple[Loading, ...]

    def copy(self) -> State:
        """Return a state that can be changed without this one."""
        return State(
            self.pc, dict(self.vectors), dict(self.valid), list(self.scalars), self.exec, self.scc, self.loading
        )

    def apply(self, step: StateChange) -> None:
        """Go one step forward."""
        for r, (values, valid) in step.vectors.items():
            self.vectors[r], self.valid[r] = values, valid
        for n, value in step.scalars.items():
            self.scalars[n] = value
        self.exec = self.exec if step.exec is None else step.exec
        self.scc = self.scc if step.scc is None else step.scc
        self.loading = self.loading if step.loading is None else step.loading

    def vector(self, name: str, kind: str = "u32") -> Any:
        """Return one vector register (``v7``, ``a0``) as 64 values; ``kind`` is u32, i32 or f32.

        Raises:
            InputError: the kernel names no such register.
        """
        number = int(name[1:]) if name[:1] in "va" and name[1:].isdigit() else -1
        row = self.vectors.get(number + (256 if name[:1] == "a" else 0)) if number >= 0 else None
        if row is None:
            raise InputError(f"{name!r}: the kernel names no such vector register")
        return row.view({"u32": np.uint32, "i32": np.int32, "f32": np.float32}[kind])

    @property
    def vcc(self) -> int | None:
        """The mask that comparisons write, or None while it is undefined."""
        low, high = self.scalars[106], self.scalars[107]
        return low | high << 32 if isinstance(low, int) and isinstance(high, int) else None


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
        cut: why the recording stopped before the wave's end, or an empty text.
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
    cut: str = ""

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
