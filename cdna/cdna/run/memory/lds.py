# SPDX-License-Identifier: MIT
"""The local data share: its bytes, whether they were written, and who touched them since the last barrier.

A wave that reads what another wave has written since the last barrier (or overwrites what another has read) races with
it, whatever order the waves happen to run in. An operation that was not waited for before the barrier counts after it
too. Writing the value that is already there is no race: replicated data is written by several waves. Waves may also
meet in atomics: see :mod:`cdna.run.memory.lds_order`.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Local Data Share".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.allocations import gather, scatter
from cdna.run.memory.lds_order import Order
from cdna.run.stretches import SideBySide

if TYPE_CHECKING:
    from cdna.run.counters import Counters
    from cdna.run.memory.allocations import Memory
    from cdna.run.memory.races import Races
    from cdna.run.wave import Flight, Wave

__all__ = ["Group", "Lds"]


class Places(NamedTuple):
    """What one access touches: granules ``[lane, n]``, each granule once, and whether ``each`` are its dwords."""

    each: Any
    once: Any
    dwords: bool


class Lds:
    """The LDS of one workgroup.

    Attributes:
        size: bytes.
        bytes, halves, dwords: the content, as three views of the same memory.
        valid: for each granule, whether it was written.
        writers, readers, atomics: for each granule, the waves (as bits) that have done so since the last barrier.
        last: granules that the last access touched, each once.
        by: line of the instruction that accesses the LDS now.
        write_lines, read_lines: for each granule, the line that did so last.
        allowed: part by which float32 values may differ that several waves write to one place before a barrier.
        copied: how often that happened, by the line of the write.
        known: what accesses of earlier workgroups and launches touch, by their addresses.
        granule: bytes that one entry of these stands for: 4, or less if the kernel has narrower accesses.
    """

    name = "LDS"

    def __init__(
        self,
        size: int,
        granule: int,
        allowed: float = 0.0,
        copied: dict[int, int] | None = None,
        known: dict[Any, Places] | None = None,
    ) -> None:
        self.size, self.granule, self.allowed = size, granule, allowed
        self.copied: dict[int, int] = {} if copied is None else copied
        padded = -(-max(size, 16) // 16) * 16
        self.bytes = np.full(padded, 0xA5, np.uint8)
        self.halves, self.dwords = self.bytes.view(np.uint16), self.bytes.view(np.uint32)
        n = padded // granule
        self.valid = np.zeros(n, np.bool_)
        self.writers, self.readers, self.atomics = (np.zeros(n, np.uint32) for _ in range(3))
        self.loading: list[tuple[Flight, Any]] = []
        self._known = {} if known is None else known
        self._written = self._read = self._updated = False  # since the last barrier
        self.last: Any = None
        self.order: Order | None = None
        self.by = 0
        self.write_lines, self.read_lines = (np.zeros(n, np.int32) for _ in range(2))

    def granules(self, at: Any, size: int, lanes: Any, write: bool) -> Places:
        """What an access touches, after the check of its bounds. Loops repeat their addresses."""
        key = (size, self.size, self.granule, at.tobytes())
        found = self._known.get(key)
        if found is None:
            self.check(at, size, lanes, write)
            if self.granule > 1 and size >= self.granule and (at & (self.granule - 1)).any():
                spread = np.arange(size // self.granule + 1)
            else:
                spread = np.arange(max(1, size // self.granule))
            if len(self._known) > 4096:
                self._known.clear()
            g = (at // self.granule)[:, None] + spread
            once = np.unique(g)
            low, high = int(once[0]), int(once[-1]) + 1
            dwords = self.granule == 4 and size >= 4 and len(spread) == size // 4
            found = self._known[key] = Places(g, slice(low, high) if high - low == len(once) else once, dwords)
        return found

    def check(self, at: Any, size: int, lanes: Any, write: bool) -> None:
        """Refuse what lies outside."""
        if int(at.max()) + size > self.size or int(at.min()) < 0:
            bad = int(np.argmax((at + size > self.size) | (at < 0)))
            raise RunError(
                f"lane {int(lanes[bad])} {'writes' if write else 'reads'} {size} bytes at byte "
                f"{int(at[bad])} of LDS, which has {self.size}",
                rule="bounds",
            )

    def _race(self, g: Any, hit: Any, lanes: Any, other: Any, what: str) -> RunError:
        i = int(np.argmax(hit.any(axis=1)))
        j = int(np.argmax(hit[i]))
        waves = int(other[i, j])
        who = (waves & -waves).bit_length() - 1
        wrote = waves & int(self.writers[g[i, j]] | self.atomics[g[i, j]])
        how = "writes" if wrote else "reads"
        line = int((self.write_lines if wrote else self.read_lines)[g[i, j]])
        return RunError(
            f"race: lane {lanes[i]} {what} byte {int(g[i, j]) * self.granule} of LDS, which wave {who} "
            f"{how} in line {line}, with no barrier (or no wait before it) between",
            rule="race",
        )

    def read(self, w: Wave, at: Any, size: int, lanes: Any) -> Any:
        """``size`` bytes per lane, as :func:`~cdna.run.memory.allocations.gather` gives them."""
        places = self.granules(at, size, lanes, False)
        g, self.last = places.each, places.once
        if not self.valid[self.last].all():
            i, j = np.argwhere(~self.valid[g])[0]
            for f, granules in self.loading:
                if int(g[i, j]) in granules:
                    raise RunError(
                        f"lane {lanes[i]} reads byte {at[i]} of LDS, which {f.op} of line {f.line} is still loading",
                        rule="wait",
                    )
            raise RunError(
                f"lane {int(lanes[i])} reads byte {int(at[i])} of LDS, which nobody has written", rule="undefined"
            )
        me = np.uint32(1 << w.index)
        self.note_read(places, me, lanes)
        return self.dwords[g] if places.dwords else gather(self, at, size)

    def _marked(self, once: Any, mine: Any) -> bool:
        """Whether waves other than ``mine`` have written granules or updated them since the barrier."""
        if self._written and (self.writers[once] & ~mine).any():
            return True
        return self._updated and bool((self.atomics[once] & ~mine).any())

    def note_read(self, places: Places, me: Any, lanes: Any) -> None:
        """Record that a wave has read granules; a race if another wrote them since the barrier."""
        g = places.each
        if self.order is not None or self._marked(places.once, me):
            writers = self.writers[g] | self.atomics[g] & ~me
            hit = (writers != 0) & (writers & me == 0)
            if self.order is not None:
                wave = int(me).bit_length() - 1
                self.order.acquire(wave, g)
                hit &= self.order.unknown(wave, g, writers, self.order.writes) != 0
            if hit.any():
                raise self._race(g, hit, lanes, writers, "reads")
        self.mark(places.once, "read", me)

    def write(self, w: Wave, at: Any, values: Any, size: int, lanes: Any) -> None:
        """Store ``values`` (see :func:`~cdna.run.memory.allocations.scatter`)."""
        places = self.granules(at, size, lanes, True)
        g, once, me = places.each, places.once, np.uint32(1 << w.index)
        self.last = once
        if self._marked(once, me) or (self._read and (self.readers[once] & ~me).any()):
            self._meets_others(w, places, at, values, size, lanes)
        if places.dwords:
            self.dwords[g] = values
        else:
            scatter(self, at, values, size)
        self.valid[once] = True
        self.mark(once, "write", me)

    def _meets_others(self, w: Wave, places: Places, at: Any, values: Any, size: int, lanes: Any) -> None:
        """A write to what other waves have touched: a race, unless an order or the value excuses it."""
        g = places.each
        others = (self.writers[g] | self.atomics[g] | self.readers[g]) & ~np.uint32(1 << w.index)
        if self.order is not None:
            unknown = self.order.unknown(w.index, g, self.writers[g] | self.atomics[g], self.order.writes)
            others = unknown | self.order.unknown(w.index, g, self.readers[g], self.order.reads)
        if others.any():
            hit = others.any(axis=1)  # the other lanes may well change what is there
            there = gather(self, at[hit], size)
            new = self._cut(values[hit], size)
            if self.valid[g[hit]].all() and (np.array_equal(there, new) or self._copies(there, new, size)):
                return
            raise self._race(g, others != 0, lanes, others, "writes")

    def _copies(self, there: Any, new: Any, size: int) -> bool:
        """Whether float32 values that overwrite others differ from them by no more than the caller allows."""
        if not self.allowed or size < 4:
            return False
        a, b = (np.ascontiguousarray(x).view(np.float32).astype(np.float64) for x in (there, new))
        if not (np.abs(a - b) <= self.allowed * np.maximum(np.abs(a), np.abs(b))).all():
            return False
        self.copied[self.by] = self.copied.get(self.by, 0) + 1
        return True

    @staticmethod
    def _cut(values: Any, size: int) -> Any:
        return values & np.uint32((1 << 8 * size) - 1) if size < 4 else values

    def barrier(self, waves: list[Wave]) -> None:
        """All waves have met: only what is still under way can race with what follows."""
        for marks, used in ((self.writers, self._written), (self.readers, self._read), (self.atomics, self._updated)):
            if used:
                marks[:] = 0
        self._written = self._read = self._updated = False
        if self.order is not None:
            self.order.barrier()
        for w in waves:
            for f in w.lg:
                if f.touched is not None:
                    self.by = f.line
                    for once in f.touched[0]:
                        self.mark(once, f.touched[1], np.uint32(1 << w.index))

    def mark(self, g: Any, how: str, me: Any) -> None:
        """Record that a wave touches granules: ``read``, ``write`` or ``atomic``."""
        if how == "atomic" and self.order is None:
            self.order = Order(len(self.valid))
        order, wave = self.order, int(me).bit_length() - 1
        if how == "read":
            self.readers[g] |= me
            self.read_lines[g] = self.by
            self._read = True
            if order is not None:
                order.reads[wave, g] = order.now
        elif how == "write":
            self.writers[g] |= me
            self.write_lines[g] = self.by
            self._written = True
            if order is not None:
                order.writes[wave, g] = order.now
        else:
            self.atomics[g] |= me
            self.write_lines[g] = self.by
            self._updated = True
            order.release(wave, np.r_[g])  # type: ignore[union-attr]


class Group:
    """One workgroup: its waves, its LDS, where it is in the grid, and what it shares with the others of a launch.

    ``races`` is None where it is the only one.
    """

    __slots__ = ("block", "count", "ids", "lds", "memory", "number", "races", "side_by_side", "waves")

    def __init__(
        self,
        number: int,
        ids: tuple[int, int, int],
        lds: Lds,
        block: Any,
        memory: Memory,
        count: Counters,
        races: Races | None,
    ) -> None:
        self.number, self.ids, self.lds, self.block = number, ids, lds, block
        self.memory, self.count, self.races = memory, count, races
        self.waves: list[Wave] = []
        self.side_by_side: dict[tuple[int, ...], SideBySide] = {}

    def together(self, waves: list[Wave]) -> SideBySide | None:
        """The registers of neighbouring waves side by side; None where there is one wave, or a gap between them."""
        first, last = waves[0].index, waves[-1].index
        if last == first or last - first >= len(waves) or any(w.mode != waves[0].mode for w in waves):
            return None
        found = self.side_by_side.get((first, last))
        if found is None:
            found = SideBySide(waves, self.block[:, 64 * first : 64 * last + 64])
            self.side_by_side[first, last] = found
        found.mode = waves[0].mode
        return found

    def __repr__(self) -> str:
        return f"workgroup {self.ids}"
