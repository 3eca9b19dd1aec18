# SPDX-License-Identifier: MIT
"""A compute unit's timeline by a stated cost model: which wave issues when, and what it waits for.

This is a *model*: it shows why a wave waits, not how long an MI300X takes. Modelled: four SIMDs, waves dealt to them
in turn, one instruction of a wave every 4 cycles, the vector ALU and matrix core of each SIMD, the LDS and the vector
memory unit that all four share, results that are not ready yet, s_waitcnt, barriers. Not modelled: instruction
fetch, the caches beyond "touched before or not", other compute units, clocks that change.
The numbers and their sources: :mod:`cdna.costs`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from cdna.arch import find_arch
from cdna.costs import CostError, Costs, mfma_cycles, valu_cycles
from cdna.isa.mnemonics import wait_counts
from cdna.run import DecodedInstruction
from cdna.step.state import Event, Recording

__all__ = ["Span", "Timeline", "timeline"]


class Span(NamedTuple):
    """One instruction of one wave: ``[asked, start)`` it waits because of ``why``, ``[start, end)`` it keeps its unit.

    ``why`` is ``vmcnt``, ``lgkmcnt``, ``barrier``, ``result`` (of an earlier instruction), ``unit`` (busy), or empty.
    """

    wave: int
    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    kind: str
    asked: int
    start: int
    end: int
    why: str


@dataclass
class Timeline:
    """Times of the model; all times are model cycles.

    Attributes:
        spans: every instruction, in order of issue.
        cycles: until the last result has arrived.
        waits: for each wave the cycles it waited, by reason.
        exposed: cycles in which no wave of the compute unit issued anything or kept a unit busy.
        conflicts: cycles of the LDS that bank conflicts cost.
        mfma_busy: for each SIMD the share of all cycles in which its matrix core worked.
        overlap: cycles in which a matrix core worked while another wave of the same SIMD used the vector ALU or memory
            (ping-pong).
    """

    costs: Costs
    waves: int
    spans: list[Span] = field(default_factory=list)
    cycles: int = 0
    waits: list[Counter[str]] = field(default_factory=list)
    exposed: int = 0
    conflicts: int = 0
    mfma_busy: tuple[float, ...] = ()
    overlap: int = 0

    def __str__(self) -> str:
        lines = [
            f"model: {self.cycles:,} cycles, {self.exposed:,} of them without any work in the compute unit, "
            f"{self.conflicts:,} cycles of LDS bank conflicts"
        ]
        for n, waited in enumerate(self.waits):
            text = ", ".join(f"{why} {cycles:,}" for why, cycles in waited.most_common()) or "nothing"
            lines.append(f"  wave {n} (SIMD {n % len(self.mfma_busy)}) waits, in model cycles, for: {text}")
        return "\n".join(lines)


class _Wave:
    """One wave on its way through the model."""

    def __init__(self, number: int, simd: int, events: list[Event]) -> None:
        self.number, self.simd, self.events = number, simd, events
        self.at = self.free = 0
        self.ready: dict[tuple[str, int], int] = {}
        self.vm: list[int] = []
        self.lg: list[int] = []
        self.arrived: int | None = None


class _Model:
    """The units of one compute unit and when each is free."""

    def __init__(self, code: list[DecodedInstruction], costs: Costs, simds: int) -> None:
        self.code, self.costs = code, costs
        self.busy: dict[tuple[str, int], int] = {}
        self.seen: set[tuple[int, int]] = set()
        self.counts = {o.index: wait_counts(o.args) for o in code if o.kind == "waitcnt"}
        self.simds = simds
        self.named = [self._registers(o) for o in code]

    @staticmethod
    def _registers(o: DecodedInstruction) -> list[tuple[str, int]]:
        """Return all registers that an instruction reads or writes."""
        vectors = [("v", r) for r in (*o.reads, *o.lane_reads, *o.weak, *o.writes)]
        return vectors + [("s", r) for r in (*o.sreads, *o.swrites)]

    def unit(self, w: _Wave, o: DecodedInstruction) -> tuple[str, int]:
        """Return the unit that executes it; -1 for one that all SIMDs share."""
        if o.kind in ("lds", "permute"):
            return "lds", -1
        if o.kind in ("global", "scratch"):
            return "vmem", -1
        return (o.kind if o.kind in ("valu", "mfma") else "scalar"), w.simd

    def earliest(self, w: _Wave) -> tuple[int, str]:
        """Return when the wave's next instruction can issue, and what held it back last."""
        o = self.code[w.events[w.at].index]
        when = [(w.free, "")]
        if o.kind == "waitcnt":
            for name, left in self.counts[o.index].items():
                queue = w.vm if name == "vmcnt" else w.lg if name == "lgkmcnt" else []
                when += [(t, name) for t in queue[: max(0, len(queue) - left)]]
        else:
            ready = [w.ready[r] for r in self.named[o.index] if r in w.ready]
            when += [(max(ready), "result")] if ready else []
            when.append((self.busy.get(self.unit(w, o), 0), "unit"))
        best = max(t for t, _ in when)
        return best, next(why for t, why in when if t == best)

    def issue(self, w: _Wave, start: int, group: int) -> int:
        """Execute the wave's next instruction at ``start``; returns when its unit is free again."""
        e, c = w.events[w.at], self.costs
        o = self.code[e.index]
        end = start + c.issue
        done = end
        if o.kind == "valu":
            done = end = start + valu_cycles(o.op)
        elif o.kind == "mfma":
            done = end = start + mfma_cycles(o.op)
        elif o.kind in ("lds", "permute"):
            end = start + max(1, e.lds_cycles or (2 if o.kind == "permute" else 0))
            w.lg.append(end + c.lds_latency if e.active else end)
        elif o.kind in ("global", "scratch"):
            end = start + max(1, c.line_cycles * len(e.lines))
            lines = {(group, line) for line in e.lines}  # each workgroup has data of its own
            cold = not lines <= self.seen
            self.seen |= lines
            arrives = end + (c.memory_latency if cold else c.l1_latency) if e.active else end
            # vmcnt counts in order: a result cannot be counted before an older one.
            w.vm.append(max(arrives, *w.vm[-1:]) if w.vm else arrives)
            if o.op.startswith("flat_"):
                w.lg.append(w.vm[-1])
        elif o.kind == "smem":
            w.lg.append(start + c.scalar_latency)
        if o.kind == "waitcnt":
            for name, left in self.counts[o.index].items():
                queue = w.vm if name == "vmcnt" else w.lg if name == "lgkmcnt" else []
                del queue[: max(0, len(queue) - left)]
        elif o.kind in ("valu", "mfma", "salu"):
            for r in o.writes:
                w.ready["v", r] = done
            for r in o.swrites:
                w.ready["s", r] = done
        self.busy[self.unit(w, o)] = end
        w.free = start + c.issue
        return end


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return the cycles inside at least one of the spans."""
    total, last = 0, 0
    for a, b in sorted(spans):
        total += max(0, b - max(a, last))
        last = max(last, b)
    return total


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    return _covered(one) + _covered(other) - _covered(one + other)


def _release(waiting: list[_Wave], model: _Model, out: Timeline) -> list[_Wave]:
    """Let all waves of a workgroup go on from the barrier together. Return those that have more to do."""
    go = max(w.arrived or 0 for w in waiting) + model.costs.barrier
    for w in waiting:
        assert w.arrived is not None
        out.spans.append(Span(w.number, w.events[w.at].index, "barrier", w.arrived, go, go, "barrier"))
        w.free, w.arrived = go, None
        w.at += 1
    return [w for w in waiting if w.at < len(w.events)]


def timeline(recording: Recording, costs: Costs | None = None, *, groups: int = 1) -> Timeline:
    """Lay a recorded workgroup out on one compute unit of gfx942.

    Args:
        recording: from :func:`cdna.step.record.record`.
        costs: cycles to charge; the stated ones by default.
        groups: how many workgroups with the same instructions share the compute unit.

    Raises:
        CostError: ``groups``, or more waves than a compute unit holds.
    """
    costs = costs or Costs()
    arch = find_arch("gfx942")
    each = len(recording.events)
    if not isinstance(groups, int) or groups < 1 or groups * each > arch.max_waves_per_cu:
        raise CostError(f"groups={groups!r}: 1 to {arch.max_waves_per_cu // each} workgroups of {each} waves fit")
    simds = arch.simds_per_cu
    model = _Model(recording.code, costs, simds)
    waves = [_Wave(n, n % simds, recording.events[n % each]) for n in range(groups * each)]
    out = Timeline(costs, len(waves), waits=[Counter() for _ in waves])
    # Units only get busier, so a time computed earlier is a lower bound: look again when it comes to the top.
    heap = [(0, w.number) for w in waves if w.events]
    while heap:
        asked, n = heapq.heappop(heap)
        w = waves[n]
        start, why = model.earliest(w)
        if start > asked:
            heapq.heappush(heap, (start, n))
            continue
        e = w.events[w.at]
        kind = recording.code[e.index].kind
        if kind == "barrier":
            w.arrived = start
        else:
            end = model.issue(w, start, n // each)
            out.spans.append(Span(n, e.index, kind, start, start, end, why))
            out.conflicts += e.lds_cycles - e.lds_ideal
            w.at += 1
            if w.at < len(w.events):
                heapq.heappush(heap, (w.free, n))
        if kind != "barrier" and w.at < len(w.events):
            continue  # only a wave that arrives or ends can release the others
        mates = [x for x in waves if x.number // each == n // each and x.at < len(x.events)]
        if mates and all(x.arrived is not None for x in mates):
            for x in _release(mates, model, out):
                heapq.heappush(heap, (x.free, x.number))
    _finish(out, waves, simds)
    return out


def _finish(out: Timeline, waves: list[_Wave], simds: int) -> None:
    free = dict.fromkeys(range(len(waves)), 0)
    spans = []
    for s in out.spans:
        s = s._replace(asked=min(free[s.wave], s.start))
        if s.start == s.asked:
            s = s._replace(why="")
        else:
            out.waits[s.wave][s.why] += s.start - s.asked
        free[s.wave] = s.start + out.costs.issue if s.kind != "barrier" else s.end
        spans.append(s)
    out.spans = spans
    ends = [s.end for s in spans] + [t for w in waves for t in (*w.vm, *w.lg)]
    out.cycles = max(ends, default=0)
    work = [(s.start, max(s.end, s.start + 1)) for s in spans if s.kind not in ("waitcnt", "barrier", "other")]
    out.exposed = out.cycles - _covered(work)
    mfma = [[(s.start, s.end) for s in spans if s.kind == "mfma" and s.wave % simds == n] for n in range(simds)]
    out.mfma_busy = tuple(_covered(m) / out.cycles if out.cycles else 0.0 for m in mfma)
    for n in range(simds):
        for a in {s.wave for s in spans if s.kind == "mfma" and s.wave % simds == n}:
            mine = [(s.start, s.end) for s in spans if s.kind == "mfma" and s.wave == a]
            kinds = ("valu", "global", "lds", "permute")
            others = [(s.start, s.end) for s in spans if s.wave != a and s.wave % simds == n and s.kind in kinds]
            out.overlap += _common(mine, others)
