# SPDX-License-Identifier: MIT
"""Stretches of instructions that touch nothing but their wave's registers: checked once, executed for waves together.

Between two instructions that reach memory, branch, or change EXEC, a wave concerns nobody else. If all its lanes are
on, all that such a stretch reads is defined and nothing that it touches is under way, then no instruction in it can
meet an undefined register or a missing wait, and the checks of each can be left out. Vector instructions that treat
every lane alike are then executed for all waves of a workgroup that stand at the same place in one numpy operation. A
wave for which this does not hold executes the same instructions one by one, with every check.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cdna.run.wave import ALL_LANES, Flight, Wave, lanes_of, views

if TYPE_CHECKING:
    from cdna.run.decode import Operation

__all__ = ["SideBySide", "Stretch", "mark_stretches"]

_LEAST = 2  # instructions, from which the check pays


class SideBySide:
    """The registers of several waves as one wave of many lanes, as far as lanewise instructions look at a wave."""

    exec, full = ALL_LANES, True

    def __init__(self, waves: Sequence[Wave], block: Any) -> None:
        self.waves = list(waves)
        self.block, self.row = block, waves[0].row
        self.V, self.F, self.I, self.H = views(block, waves[0].rows[0])
        self.mask = np.ones(64 * len(waves), np.bool_)
        self.s = waves[0].s
        self.mode = waves[0].mode

    def mask_at(self, n: int) -> Any:
        """The masks of all waves one after another."""
        return np.concatenate([lanes_of(w.s[n] | w.s[n + 1] << 32) for w in self.waves])

    def put_mask(self, n: int, lanes: Any) -> None:
        """Give each wave its part of a mask."""
        words = np.packbits(lanes, bitorder="little").view(np.uint32).tolist()
        for i, w in enumerate(self.waves):
            w.s[n], w.s[n + 1] = words[2 * i], words[2 * i + 1]


class Stretch:
    """Consecutive instructions that touch only registers of their wave and leave EXEC alone.

    Attributes:
        operations: the instructions.
        end: index of the instruction that follows.
        needs, scalars: vector and scalar registers that are read before the stretch itself writes them.
        writes, scalar_writes: those that it writes.
        touches: vector registers that it reads or writes.
    """

    __slots__ = ("end", "needs", "operations", "scalar_writes", "scalars", "touches", "writes")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)
        self.end = operations[-1].index + 1
        written, scalars_written = set[int](), set[int]()
        needs, scalars = dict[int, None](), dict[int, None]()
        for o in operations:
            needs |= dict.fromkeys(r for r in (*o.reads, *o.weak, *o.lane_reads) if r not in written)
            scalars |= dict.fromkeys(r for r in o.sreads if r not in scalars_written)
            written |= {*o.writes}
            scalars_written |= {*o.swrites}
        self.needs, self.scalars = tuple(needs), tuple(scalars)
        self.writes, self.scalar_writes = tuple(written), tuple(scalars_written - {*scalars})
        self.touches = frozenset((*needs, *written))

    def fits(self, w: Wave) -> bool:
        """Whether nothing in the stretch can go wrong for this wave."""
        if w.exec != ALL_LANES or (w.flight and not self.touches.isdisjoint(w.flight)):
            return False
        valid, s = w.valid, w.s
        for r in self.needs:
            if valid[r] != ALL_LANES:
                return False
        for r in self.scalars:
            if s[r].__class__ is not int:
                return False
        return all(s[r].__class__ is not Flight for r in self.scalar_writes)

    def execute(self, waves: Sequence[Wave], together: SideBySide | None, counts: list[int]) -> None:
        """Execute it for waves that fit; ``together`` are their registers side by side, if they can be had so.

        ``counts`` are the executions so far of each instruction of the program.
        """
        n = len(waves)
        for w in waves:
            valid = w.valid
            for r in self.writes:
                valid[r] = ALL_LANES
        for o in self.operations:
            counts[o.index] += n
            if together is not None and o.lanewise and (not o.uniform or _same(o.uniform, waves)):
                o.run(together)  # type: ignore[arg-type]  # a wave, for instructions that are lanewise
            else:
                for w in waves:
                    w.pc = o.index + 1
                    o.run(w)
        for w in waves:
            w.pc = self.end
            w.executed += len(self.operations)


def _same(registers: Sequence[int], waves: Sequence[Wave]) -> bool:
    first = waves[0].s
    return all(w.s[r] == first[r] for w in waves for r in registers)


def mark_stretches(code: Sequence[Operation], targets: set[int]) -> None:
    """Give the first instruction of each stretch its ``stretch``; ``targets`` are where branches may go."""
    cuts = [i for i, o in enumerate(code) if not o.private or i in targets]
    for low, high in pairwise([-1, *cuts, len(code)]):
        first = low if low >= 0 and code[low].private else low + 1
        if high - first >= _LEAST:
            code[first].stretch = Stretch(code[first:high])
