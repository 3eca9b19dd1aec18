# SPDX-License-Identifier: MIT
"""Counts of a run: instructions by class, bytes and lines of global memory, bank conflicts of the LDS, MFMA work.

The bank model: 32 banks of 4 bytes, one access of 128 bytes a cycle. A wide access is split into groups of lanes that
go together (32 lanes of 4 bytes, 16 of 8, 8 of 16); a group takes as many cycles as its busiest bank has different
words. For ds_read_b128 the groups are lanes 0-3 with 20-23, 4-7 with 16-19, and so on.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Local Data Share"; the groups: "Avoiding LDS Bank
Conflicts on AMD GPUs Using CK-Tile Framework", ROCm blogs, 2025.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cdna.run.errors import RunError

__all__ = ["LINE", "Counters", "bank_cycles", "lanes_together"]

LINE = 128  # bytes that the memory system moves together

_B128_READ = np.r_[0:4, 20:24, 4:8, 16:20, 8:12, 28:32, 12:16, 24:28]
_B128_READ = np.concatenate([_B128_READ, _B128_READ + 32])


def lanes_together(size: int, write: bool) -> Any:
    """Return the lanes of an LDS access in the groups that go together: ``[cycle without conflicts, lane]``.

    >>> lanes_together(16, True)[1].tolist()
    [8, 9, 10, 11, 12, 13, 14, 15]
    """
    order = _B128_READ if size == 16 and not write else np.arange(64)
    return order.reshape(-1, {16: 8, 12: 8, 8: 16}.get(size, 32))


def bank_cycles(at: Any, size: int, lanes: Any, write: bool) -> tuple[int, int]:
    """Return the cycles that one LDS access takes, and the cycles without any conflict.

    >>> lanes = np.arange(64)
    >>> bank_cycles(lanes * 4, 4, lanes, False), bank_cycles(lanes * 128, 4, lanes, False)
    ((2, 2), (64, 2))
    """
    place = np.full(64, -1, np.int64)
    place[lanes] = at
    groups = place[lanes_together(size, write)]
    used = (groups >= 0).any(axis=1)
    words = groups[used] >> 2
    if not len(words):
        return 0, 0
    each = max(1, size // 4)
    wide = (words[:, :, None] + np.arange(each)).reshape(len(words), -1)
    group = np.arange(len(words))[:, None] << 40
    different = np.unique((wide + group)[np.repeat(groups[used] >= 0, each, axis=1)])
    busy = np.bincount((different >> 40) * 32 + (different & 31), minlength=32 * len(words))
    return int(busy.reshape(-1, 32).max(axis=1).sum()), len(words)


@dataclass
class Counters:
    """Sums over all waves of a run.

    Attributes:
        instructions: executed wave instructions by kind (see :data:`cdna.isa.mnemonics.KINDS`).
        lanes: lane-instructions of the vector ALU, memory and MFMA (64 for each, less those switched off, is not
            subtracted).
        loaded, stored: bytes of global memory by active lanes.
        lines: 128-byte lines touched, each access by itself; ``lines_stored`` are those of stores and atomics.
        accesses: global memory instructions with at least one active lane.
        lds_bytes, lds_accesses, lds_cycles, lds_ideal: LDS traffic, and its cycles with and without bank conflicts.
        mfma_flops: operations of the matrix instructions.
        watch: called with each access when set: ``global`` or ``lds``, addresses, bytes for each, whether it writes.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    lanes: int = 0
    loaded: int = 0
    stored: int = 0
    lines: int = 0
    lines_stored: int = 0
    accesses: int = 0
    lds_bytes: int = 0
    lds_accesses: int = 0
    lds_cycles: int = 0
    lds_ideal: int = 0
    mfma_flops: int = 0
    enabled: bool = True
    watch: Callable[[str, Any, int, bool], None] | None = field(default=None, repr=False, compare=False)
    patterns: dict[Any, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    seen: set[int] = field(default_factory=set, repr=False, compare=False)

    @property
    def distinct_lines(self) -> int:
        """128-byte lines of global memory that were touched at all; each must come from memory once, or go there."""
        return len(self.seen)

    def summary(self) -> dict[str, int]:
        """Return all counts by name, the instructions as ``valu_instructions``, ``lds_instructions``, ….

        >>> Counters(instructions={"valu": 3}, loaded=256, lines=4).summary()["lines_floor"]
        2
        """
        return {
            "loaded": self.loaded,
            "stored": self.stored,
            "lines": self.lines,
            "lines_floor": -(-self.loaded // LINE) + -(-self.stored // LINE),
            "distinct_lines": self.distinct_lines,
            "lds_bytes": self.lds_bytes,
            "lds_conflicts": self.lds_conflicts,
            "mfma_flops": self.mfma_flops,
            **{f"{kind}_instructions": n for kind, n in sorted(self.instructions.items())},
        }

    def traffic(self, least: int) -> float:
        """Return the bytes loaded and stored, as a multiple of the ``least`` that the task allows: 1 is perfect.

        >>> Counters(loaded=3000, stored=1000).traffic(2000)
        2.0

        Raises:
            RunError: ``least`` is not a positive number of bytes, or nothing was counted.
        """
        if not isinstance(least, int) or isinstance(least, bool) or least < 1:
            raise RunError(f"least={least!r}: the bytes that the task must move, at least 1", rule="arguments")
        if not self.enabled:
            raise RunError("the launch was executed with count=False, so its bytes are not known", rule="arguments")
        return (self.loaded + self.stored) / least

    @property
    def lds_conflicts(self) -> int:
        """Extra cycles that bank conflicts cost, by the model above."""
        return self.lds_cycles - self.lds_ideal

    def memory(self, addresses: Any, size: int, write: bool) -> None:
        """Count one global access: the active lanes' addresses, bytes for each."""
        if not self.enabled:
            return
        if self.watch is not None:
            self.watch("global", addresses, size, write)
        n = len(addresses) * size
        if write:
            self.stored += n
        else:
            self.loaded += n
        self.accesses += 1
        lines = set((addresses >> 7).tolist())
        if size > 4:
            lines.update((addresses + (size - 1) >> 7).tolist())
        self.lines += len(lines)
        self.lines_stored += len(lines) * write
        self.seen |= lines

    def lds(self, at: Any, size: int, lanes: Any, write: bool) -> None:
        """Count one LDS access."""
        if not self.enabled:
            return
        if self.watch is not None:
            self.watch("lds", at, size, write)
        self.lds_bytes += len(at) * size
        self.lds_accesses += 1
        # Only the place within the 128-byte row of banks matters, and loops repeat the same pattern.
        start = int(at[0]) & ~127
        key = (size, write, (at - start).tobytes(), len(lanes) if len(lanes) == 64 else lanes.tobytes())
        found = self.patterns.get(key)
        if found is None:
            if len(self.patterns) > 4096:
                self.patterns.clear()
            found = self.patterns[key] = bank_cycles(at, size, lanes, write)
        cycles, ideal = found
        self.lds_cycles += cycles
        self.lds_ideal += ideal
