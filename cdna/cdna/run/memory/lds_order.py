# SPDX-License-Identifier: MIT
"""Order between the waves of a workgroup that meet in LDS atomics instead of barriers.

A wave that reads a counter comes after everything that the waves which have counted on it had done in LDS by then: the
LDS executes the operations of one wave in their order. Each wave keeps, for every other one, up to which time it knows
what that one has done (a vector clock); an access that it does not know of is a race.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Local Data Share"; C. Flanagan, S. Freund, "FastTrack:
efficient and precise dynamic race detection", PLDI 2009.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Order"]

_WAVES = 32


class Order:
    """Who has seen what; made at the first atomic operation on a workgroup's LDS.

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
        """Of the waves in ``marks`` (bits, for each granule of ``g``) those whose access this wave knows nothing of."""
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
        """The wave reads granules: of counters it learns what was done before they were last changed."""
        for one in np.unique(g).tolist() if self.counters else ():
            if (known := self.counters.get(one)) is not None:
                np.maximum(self.seen[wave], known, out=self.seen[wave])

    def release(self, wave: int, g: Any) -> None:
        """The wave changes counters: whoever reads them knows what it has done so far."""
        self.acquire(wave, g)
        mine = self.seen[wave].copy()
        mine[wave] = self.now
        self.writes[wave, g] = self.now
        self.now += 1
        for one in np.unique(g).tolist():
            before = self.counters.get(one)
            self.counters[one] = mine if before is None else np.maximum(before, mine)

    def barrier(self) -> None:
        """Everybody knows everything."""
        self.seen[:] = self.now
        self.now += 1
