# SPDX-License-Identifier: MIT
"""The local data share (LDS): its bytes, whether they were written, and who touched them since the last barrier.

A wave that reads what another wave has written since the last barrier (or overwrites what another has read) races with
it, whatever order the waves happen to run in. An operation that was not waited for before the barrier counts after it
too. Writing the value that is already there is no race: replicated data is written by several waves.

Waves may also be ordered by LDS atomics instead of barriers. A wave that reads a counter comes after everything that
the waves which have counted on it had done in LDS by then: the LDS executes the operations of one wave in their order.
Each wave keeps, for every other one, up to which time it knows what that one has done (a vector clock); an access that
it does not know of is a race.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Local Data Share"; C. Flanagan, S. Freund, "FastTrack:
efficient and precise dynamic race detection", PLDI 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory import gather, scatter

__all__ = []

_WAVES = 32


class _Order:
    """Order between the waves of a workgroup; made at the first atomic operation on a workgroup's LDS.

    Attributes:
        now: grows with every atomic operation.
        seen: [wave, other]: what ``other`` did up to this time lies before what ``wave`` does next.
        writes, reads: [wave, granule]: when it last did so.
        counters: for each granule with atomics, what its readers learn.
    """

    def __init__(self, granules: int) -> None:
        self.now = 0
        self.seen = np.full((_WAVES, _WAVES), -1, np.int64)
        self.writes, self.reads = (np.zeros((_WAVES, granules), np.int64) for _ in range(2))
        self.counters: dict[int, Any] = {}

    def unknown(self, wave: int, g: Any, marks: Any, times: Any) -> Any:
        """Return, for each granule of ``g``, the waves in ``marks`` (bits) whose access this wave knows nothing of."""
        found = np.zeros(g.shape, np.uint32)
        every = int(np.bitwise_or.reduce(marks, axis=None)) & ~(1 << wave)
        while every:
            bit = every & -every
            every ^= bit
            other = bit.bit_length() - 1
            late = times[other][g] > self.seen[wave, other]
            found |= np.where(late, marks & np.uint32(bit), np.uint32(0))
        return found

    def acquire(self, wave: int, g: Any) -> None:
        """Let the wave that reads counters know what was done before they were last changed."""
        for one in np.unique(g).tolist() if self.counters else ():
            if (known := self.counters.get(one)) is not None:
                np.maximum(self.seen[wave], known, out=self.seen[wave])

    def release(self, wave: int, g: Any) -> None:
        """Let whoever reads the counters that the wave changes know what it has done so far."""
        self.acquire(wave, g)
        mine = self.seen[wave].copy()
        mine[wave] = self.now
        self.writes[wave, g] = self.now
        self.now += 1
        for one in np.unique(g).tolist():
            before = self.counters.get(one)
            self.counters[one] = mine if before is None else np.maximum(before, mine)

    def barrier(self) -> None:
        """Let everybody know everything."""
        self.seen[:] = self.now
        self.now += 1


class _Places(NamedTuple):
    """Granules that an access touches: ``[lane, n]``, each granule once, and whether ``each`` are its dwords."""

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
        known: dict[Any, _Places] | None = None,
    ) -> None:
        self.size, self.granule, self.allowed = size, granule, allowed
        self.copied: dict[int, int] = {} if copied is None else copied
        padded = -(-max(size, 16) // 16) * 16
        self.bytes = np.full(padded, 0xA5, np.uint8)
        self.halves, self.dwords = self.bytes.view(np.uint16), self.bytes.view(np.uint32)
        n = padded // granule
        self.valid = np.zeros(n, np.bool_)
        self.writers, self.readers, self.atomics = (np.zeros(n, np.uint32) for _ in range(3))
        self.loading: list[tuple[str, int, set[int]]] = []
        self._known = {} if known is None else known
        self._written = self._read = self._updated = False  # since the last barrier
        self.last: Any = None
        self.order: _Order | None = None
        self.by = 0
        self.write_lines, self.read_lines = (np.zeros(n, np.int32) for _ in range(2))

    def granules(self, at: Any, size: int, lanes: Any, write: bool) -> _Places:
        """Return what an access touches, after the check of its bounds. Loops repeat their addresses."""
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
            found = self._known[key] = _Places(g, slice(low, high) if high - low == len(once) else once, dwords)
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

    def read(self, wave: int, at: Any, size: int, lanes: Any) -> Any:
        """Read ``size`` bytes per lane, as :func:`~cdna.run.memory.gather` gives them."""
        places = self.granules(at, size, lanes, False)
        g, self.last = places.each, places.once
        if not self.valid[self.last].all():
            i, j = np.argwhere(~self.valid[g])[0]
            for op, line, granules in self.loading:
                if int(g[i, j]) in granules:
                    raise RunError(
                        f"lane {lanes[i]} reads byte {at[i]} of LDS, which {op} of line {line} is still loading",
                        rule="wait",
                    )
            raise RunError(
                f"lane {int(lanes[i])} reads byte {int(at[i])} of LDS, which nobody has written", rule="undefined"
            )
        self.note_read(places, wave, lanes)
        return self.dwords[g] if places.dwords else gather(self, at, size)

    def _marked(self, once: Any, mine: Any) -> bool:
        """Return whether waves other than ``mine`` have written granules or updated them since the barrier."""
        if self._written and (self.writers[once] & ~mine).any():
            return True
        return self._updated and bool((self.atomics[once] & ~mine).any())

    def note_read(self, places: _Places, wave: int, lanes: Any) -> None:
        """Record that a wave has read granules; a race if another wrote them since the barrier."""
        g, me = places.each, np.uint32(1 << wave)
        if self.order is not None or self._marked(places.once, me):
            writers = self.writers[g] | self.atomics[g] & ~me
            hit = (writers != 0) & (writers & me == 0)
            if self.order is not None:
                self.order.acquire(wave, g)
                hit &= self.order.unknown(wave, g, writers, self.order.writes) != 0
            if hit.any():
                raise self._race(g, hit, lanes, writers, "reads")
        self.mark(places.once, "read", wave)

    def write(self, wave: int, at: Any, values: Any, size: int, lanes: Any) -> None:
        """Store ``values`` (see :func:`~cdna.run.memory.scatter`)."""
        places = self.granules(at, size, lanes, True)
        g, once, me = places.each, places.once, np.uint32(1 << wave)
        self.last = once
        if self._marked(once, me) or (self._read and (self.readers[once] & ~me).any()):
            self._check_overwrite(wave, places, at, values, size, lanes)
        if places.dwords:
            self.dwords[g] = values
        else:
            scatter(self, at, values, size)
        self.valid[once] = True
        self.mark(once, "write", wave)

    def _check_overwrite(self, wave: int, places: _Places, at: Any, values: Any, size: int, lanes: Any) -> None:
        """Refuse a write to what other waves have touched, unless an order or the value excuses it."""
        g = places.each
        others = (self.writers[g] | self.atomics[g] | self.readers[g]) & ~np.uint32(1 << wave)
        if self.order is not None:
            unknown = self.order.unknown(wave, g, self.writers[g] | self.atomics[g], self.order.writes)
            others = unknown | self.order.unknown(wave, g, self.readers[g], self.order.reads)
        if others.any():
            hit = others.any(axis=1)  # the other lanes may well change what is there
            there = gather(self, at[hit], size)
            new = values[hit] & np.uint32((1 << 8 * size) - 1) if size < 4 else values[hit]
            if self.valid[g[hit]].all() and (np.array_equal(there, new) or self._copies(there, new, size)):
                return
            raise self._race(g, others != 0, lanes, others, "writes")

    def _copies(self, there: Any, new: Any, size: int) -> bool:
        """Return whether float32 values that overwrite others differ from them by no more than the caller allows."""
        if not self.allowed or size < 4:
            return False
        a, b = (np.ascontiguousarray(x).view(np.float32).astype(np.float64) for x in (there, new))
        if not (np.abs(a - b) <= self.allowed * np.maximum(np.abs(a), np.abs(b))).all():
            return False
        self.copied[self.by] = self.copied.get(self.by, 0) + 1
        return True

    def barrier(self, in_flight: Iterable[tuple[int, int, list[Any], str]]) -> None:
        """Forget who touched what: only what is still in flight can race with what follows.

        ``in_flight`` has of each operation the wave, the line, granules and how it touches them (see :meth:`mark`).
        """
        for marks, used in ((self.writers, self._written), (self.readers, self._read), (self.atomics, self._updated)):
            if used:
                marks[:] = 0
        self._written = self._read = self._updated = False
        if self.order is not None:
            self.order.barrier()
        for wave, self.by, touched, how in in_flight:
            for once in touched:
                self.mark(once, how, wave)

    def mark(self, g: Any, how: str, wave: int) -> None:
        """Record that a wave touches granules: ``read``, ``write`` or ``atomic``."""
        if how == "atomic" and self.order is None:
            self.order = _Order(len(self.valid))
        order, me = self.order, np.uint32(1 << wave)
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
