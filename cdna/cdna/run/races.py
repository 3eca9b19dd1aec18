# SPDX-License-Identifier: MIT
"""Races in global memory: what one workgroup wrote and another reads or overwrites, with nothing that orders the two.

Workgroups run in any order and on different dies, so only atomics and flags order them. As the compiler emits it for
gfx942, a release writes the L2 cache back (``buffer_wbl2 sc1``) before an atomic or a store with ``sc1``; an acquire
is an atomic that returns, or a load with ``sc1``, followed by ``buffer_inv sc1``. One without the other orders nothing,
because the L2 caches of two dies do not see each other's lines. For each workgroup it is kept up to which time it
knows what the others have done (vector clocks); an access to what it does not know of is a race, in whatever order
the workgroups happen to run here. Writing the value that is already there is none.
Source: "User Guide for AMDGPU Backend", "Memory Model GFX942", LLVM, https://llvm.org/docs/AMDGPUUsage.html;
C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory import Allocation, gather

__all__ = []

_PATIENCE = 4096  # reads of an allocation that nobody has written yet are only listed, up to so many
_Accesses = dict[int, tuple[int, int]]
_Clock = dict[int, int]  # workgroup -> the time up to which its accesses are known


def _joined(a: _Clock | None, b: _Clock | None) -> _Clock:
    """Return what follows both; the arguments are not changed."""
    if not a or not b:
        return a or b or {}
    out = dict(a)
    for group, time in b.items():
        if time > out.get(group, 0):
            out[group] = time
    return out


class _Marks:
    """Writers and readers of each granule of an allocation, as numbers of entries of ``Races.events``."""

    def __init__(self, size: int, granule: int) -> None:
        self.count = -(-size // granule) + 16
        self.read: Any = None
        self.listed: list[tuple[Any, int, tuple[int, int, int]]] = []
        self.touched = False

    @cached_property
    def written(self) -> Any:
        """Return the writers' marks: no memory is asked for while reads are only listed."""
        return np.zeros(self.count, np.int32)


class Races:
    """The order between the workgroups of one launch.

    ``granule`` is the number of bytes that one mark stands for: those of the narrowest access of the program.
    """

    def __init__(self, grid: tuple[int, int, int], granule: int) -> None:
        self.grid, self.granule = grid, granule
        # Who accessed a granule: workgroup -> time, line; and whether with atomics or sc1. Number 0 is nobody.
        self.events: list[tuple[_Accesses, bool]] = [({}, True)]
        self._number: dict[Any, int] = {}
        self._marks: dict[int, _Marks] = {}
        self._now: dict[int, int] = {}
        self._knows: dict[int, _Clock] = {}
        self._acquired: dict[int, _Clock] = {}
        self._released: dict[int, _Clock] = {}
        self._places: dict[int, _Clock] = {}

    # ---- accesses

    def read(self, me: int, a: Allocation, at: Any, size: int, line: int, shared: bool) -> None:
        """Check a read of ``size`` bytes by a workgroup at each offset; ``shared`` is an access with sc1, which may be
        an acquire.

        Raises:
            RunError: another workgroup wrote there, and nothing orders the two.
        """
        if not a.writable:
            return
        marks = self._marks.get(a.base) or self._new(a)
        event = (me, self._now.get(me, 1), line)
        if not marks.touched and not shared:
            marks.listed.append((at, size, event))
            if len(marks.listed) > _PATIENCE:
                self._take_down(marks)
            return
        g = self._granules(at, size)
        old = marks.written[g]
        if old.any():
            self._check(me, a, g, old, shared, "reads", "wrote")
        if shared:
            self._acquire(me, a, g)
        else:
            self._note_read(marks, g, event)

    def write(self, me: int, a: Allocation, at: Any, size: int, line: int, shared: bool, values: Any = None) -> None:
        """Check a write by a workgroup; without ``values`` it is an atomic. Call it before the bytes change.

        Raises:
            RunError: another workgroup wrote or read there, and nothing orders the two.
        """
        marks = self._marks.get(a.base) or self._new(a)
        self._take_down(marks)
        marks.touched = True
        g = self._granules(at, size)
        try:
            old = marks.written[g]
            if old.any():
                self._check(me, a, g, old, shared, "writes", "wrote")
            if marks.read is not None and (readers := marks.read[g]).any():
                self._check(me, a, g, readers, False, "writes", "read")
        except RunError:
            if values is None or not self._same(a, at, size, values):
                raise
        time = self._now.get(me, 1)
        if shared and (mine := self._released.get(me)) is not None:
            self._release(mine, a, g)
            time = mine[me]  # who acquires from this access comes after it, too
        self._note(marks.written, g, (me, time, line), shared, not shared)
        if marks.read is not None:
            marks.read[g] = 0

    def atomic(self, me: int, a: Allocation, at: Any, size: int, line: int, returns: bool) -> None:
        """Check an atomic: a release if the caches were written back before it, an acquire if it returns what was
        there.
        """
        self.write(me, a, at, size, line, True)
        if returns:
            self._acquire(me, a, self._granules(at, size))

    def write_back(self, me: int) -> None:
        """Note ``buffer_wbl2 sc1``: what the workgroup has done so far goes with its next release."""
        now = self._now.get(me, 1)
        self._released[me] = {**self._knows.get(me, {}), me: now}
        self._now[me] = now + 1

    def invalidate(self, me: int) -> None:
        """Note ``buffer_inv sc1``: the workgroup sees what those had done that it has acquired from."""
        if (found := self._acquired.pop(me, None)) is not None:
            self._knows[me] = _joined(self._knows.get(me), found)

    # ---- how it is kept

    def _new(self, a: Allocation) -> _Marks:
        made = self._marks[a.base] = _Marks(a.size, self.granule)
        return made

    def _granules(self, at: Any, size: int) -> Any:
        if self.granule > 1 and (at & (self.granule - 1)).any():
            self._refine()
        each = max(1, size // self.granule)
        if each == 1:
            return at // self.granule
        return ((at // self.granule)[:, None] + np.arange(each)).ravel()

    def _refine(self) -> None:
        """Let one mark stand for one byte from here on: an access lies across granules."""
        for marks in self._marks.values():
            marks.written = np.repeat(marks.written, self.granule)
            if marks.read is not None:
                marks.read = np.repeat(marks.read, self.granule)
        self._places = {k * self.granule + i: v for k, v in self._places.items() for i in range(self.granule)}
        self.granule = 1

    def _take_down(self, marks: _Marks) -> None:
        """Turn listed reads into marks."""
        listed, marks.listed = marks.listed, []
        for at, size, event in listed:
            self._note_read(marks, self._granules(at, size), event)
        marks.touched = marks.touched or bool(listed)

    def _note_read(self, marks: _Marks, g: Any, event: tuple[int, int, int]) -> None:
        if marks.read is None:
            marks.read = np.zeros_like(marks.written)
        self._note(marks.read, g, event, False, False)

    def _note(self, where: Any, g: Any, event: tuple[int, int, int], shared: bool, alone: bool) -> None:
        """Mark granules; ``alone`` replaces what is there, otherwise the workgroup joins accesses of the same kind."""
        old = where[g]
        if alone or (old == old[0]).all():
            where[g] = self._with(0 if alone else int(old[0]), event, shared)
            return
        for number in np.unique(old).tolist():
            where[g[old == number]] = self._with(number, event, shared)

    def _with(self, number: int, event: tuple[int, int, int], shared: bool) -> int:
        group, time, line = event
        before, same = self.events[number]
        if same != shared:
            number, before = 0, {}
        if group in before and before[group][0] == time:
            return number
        key = (number, event, shared)
        found = self._number.get(key)
        if found is None:
            found = self._number[key] = len(self.events)
            self.events.append(({**before, group: (time, line)}, shared))
        return found

    def _unknown(self, me: int, other: int, time: int) -> bool:
        return other != me and time > self._knows.get(me, {}).get(other, 0)

    def _check(self, me: int, a: Allocation, g: Any, old: Any, shared: bool, verb: str, did: str) -> None:
        for number in set(old.tolist()):
            accesses, there = self.events[number]
            if shared and there:
                continue
            for other, (time, line) in accesses.items():
                if self._unknown(me, other, time):
                    raise self._race(a, g[old == number], verb, other, did, line)

    def _race(self, a: Allocation, g: Any, verb: str, other: int, did: str, line: int) -> RunError:
        x, y, _ = self.grid
        who = (other % x, other // x % y, other // (x * y))
        return RunError(
            f"race: {verb} byte {int(g[0]) * self.granule} of {a.name}, which workgroup {who} {did} in line {line}, "
            "and no atomic or flag (release, then acquire) orders the two workgroups",
            rule="race",
        )

    @staticmethod
    def _same(a: Allocation, at: Any, size: int, values: Any) -> bool:
        new = values & np.uint32((1 << 8 * size) - 1) if size < 4 else values
        return bool(np.array_equal(gather(a, at, size), new))

    # ---- releases and acquires at the place of a flag

    def _keys(self, a: Allocation, g: Any) -> list[int]:
        first = a.base // self.granule
        return [first + k for k in np.unique(g).tolist()]

    def _release(self, mine: _Clock, a: Allocation, g: Any) -> None:
        made: dict[int, _Clock] = {}  # lanes meet the same few clocks
        for key in self._keys(a, g):
            before = self._places.get(key)
            if id(before) not in made:
                made[id(before)] = _joined(before, mine)
            self._places[key] = made[id(before)]

    def _acquire(self, me: int, a: Allocation, g: Any) -> None:
        if not self._places:
            return
        found = {id(c): c for c in (self._places.get(k) for k in self._keys(a, g)) if c is not None}
        for clock in found.values():
            self._acquired[me] = _joined(self._acquired.get(me), clock)
