# SPDX-License-Identifier: MIT
"""One instruction at a time: what must hold before it, what it does, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable

from cdna.run.decode import Operation, Stop
from cdna.run.errors import RunError
from cdna.run.memory.in_flight import drain, register_name
from cdna.run.memory.lds import Group
from cdna.run.operands import parse_operand
from cdna.run.wave import ALL_LANES, Flight, Wave

__all__ = ["Executor", "Observer"]

# Called before each instruction: the wave and what it is about to execute.
Observer = Callable[[Wave, Operation], None]


class Executor:
    """The part of a machine that executes instructions; see :class:`cdna.run.machine.Machine`."""

    code: list[Operation]
    counts: list[int]
    groups: list[Group]
    observer: Observer | None
    executed: int
    limit: int

    def step(self, w: Wave) -> Operation:
        """Execute the wave's next instruction and return it.

        Raises:
            RunError: whatever the hardware would do wrong without a word; the message names line and instruction.
        """
        if w.status != "ready":
            if w.status == "ending":
                self._drain(w)
                return self.code[min(w.pc, len(self.code)) - 1]
            raise RunError(f"wave {w.index} of {w.group!r} cannot step: it is at {w.status}")
        at = w.pc
        self._burst(w, 1)
        return self.code[at]

    def _advance(self, group: Group, ready: list[Wave], turn: int) -> int:
        """Move the waves that stand at one place on to the next stretch or stop; returns how many instructions."""
        for w in ready:
            if w.status == "ending":
                self._drain(w)
                return 1
        # Those furthest behind go first, so that waves meet again; now and then others, for whom these may be waiting.
        at = ready[turn // 8 % len(ready)].pc if turn % 8 == 7 else min([w.pc for w in ready])
        waves, done = [w for w in ready if w.pc == at], 0
        stretch = self.code[at].stretch if at < len(self.code) else None
        if stretch is not None:
            fit = [w for w in waves if stretch.fits(w)]
            if fit:
                try:
                    stretch.execute(fit, group.together(fit), self.counts)
                except RunError as e:
                    raise self._where(next((w for w in fit if w.pc != stretch.end), fit[0]), e) from None
                done = len(stretch.operations) * len(fit)
                self.executed += done
                for w in fit:
                    self._check_limit(w)
        for w in waves:
            if w.status == "ready":
                done += self._burst(w, 1000, int(w.pc == at))
        return done

    def _burst(self, w: Wave, budget: int, free: int = 1 << 62) -> int:
        """Execute up to ``budget`` instructions of a ready wave; returns how many.

        After the first ``free`` ones it also stops where a stretch begins.
        """
        code, s, valid, flight, observer = self.code, w.s, w.valid, w.flight, self.observer
        counts = self.counts
        done = 0
        try:
            while done < budget:
                o = code[w.pc]
                if o.stretch is not None and done >= free:
                    break
                if observer is not None:
                    observer(w, o)
                lanes = ALL_LANES if o.all_lanes else w.exec
                for r in o.sreads:
                    if s[r].__class__ is not int:
                        self._scalar_missing(w, o, r)
                        self._copy_nothing(w, o, lanes)
                        done += 1
                        break
                else:
                    for r in o.reads:
                        if lanes & ~valid[r]:
                            self._missing(w, o, r, lanes)
                    weak = ALL_LANES
                    if o.weak:
                        for r in o.weak:
                            weak &= valid[r]
                    if flight:
                        for r in o.touches:
                            if r in flight:
                                self._touched(w, o, r, lanes)
                    for r in o.swrites:
                        if s[r].__class__ is Flight:
                            self._scalar_written(w, r)
                    w.pc += 1
                    done += 1
                    counts[o.index] += 1
                    o.run(w)
                    if o.copies:
                        self._copied(w, o, lanes)
                    else:
                        for r in o.writes:
                            valid[r] |= lanes
                        if lanes & ~weak:
                            valid[r] &= ~lanes | weak
        except Stop:
            if w.status == "barrier":
                self._meet(w.group)
        except RunError as e:
            raise self._where(w, e) from None
        except IndexError:
            if w.pc < len(code):
                raise
            last = code[-1]
            raise RunError(
                f"line {last.line}: {last.op} is the last instruction and execution runs past it", last.line
            ) from None
        w.executed += done
        self.executed += done
        self._check_limit(w)
        return done

    def _check_limit(self, w: Wave) -> None:
        if w.executed > self.limit:
            o = self.code[min(w.pc, len(self.code) - 1)]
            raise RunError(
                f"line {o.line}: wave {w.index} of {w.group!r} has executed {w.executed} instructions, more "
                f"than the limit of {self.limit}: an endless loop?",
                o.line,
                "limit",
            )

    def _where(self, w: Wave, e: RunError) -> RunError:
        o = self.code[min(max(w.pc - 1, 0), len(self.code) - 1)]
        text = str(e)
        if text.startswith("line "):
            return e
        return RunError(f"line {o.line}: {o.text} ({w.group!r}, wave {w.index}): {text}", o.line, e.rule)

    def _scalar_missing(self, w: Wave, o: Operation, r: int) -> None:
        if o.copies and w.s[r] is None:
            return
        w.pc += 1
        name = {106: "vcc_lo", 107: "vcc_hi", 124: "m0"}.get(r, f"s{r}")
        f = w.s[r]
        if isinstance(f, Flight):
            raise self._where(
                w,
                RunError(
                    f"reads {name}, which {f.op} of line {f.line} is still loading; s_waitcnt lgkmcnt(0) is missing",
                    rule="wait",
                ),
            )
        raise self._where(w, RunError(f"reads {name}, which was never written", rule="undefined"))

    def _copy_nothing(self, w: Wave, o: Operation, lanes: int) -> None:
        """A move of an undefined scalar leaves its target undefined."""
        w.pc += 1
        self.counts[o.index] += 1
        if o.kind == "salu":
            n = len(o.swrites)
            if o.op.startswith("s_cselect"):
                wide = len(o.args.split(",")) == 3 and o.op.endswith("b64")
                chosen = o.args.split(",")[1 if w.scc else 2].strip()
                first = parse_operand(chosen)
                if first.kind != "s":
                    o.run(w)
                    return
                values = [w.s[first.index + j] for j in range(2 if wide else 1)]
            else:
                values = [w.s[r] for r in o.sreads] if len(o.sreads) == n else [None] * n
            for r, value in zip(o.swrites, values, strict=False):
                w.s[r] = value
        for r in o.writes:
            w.valid[r] &= ~lanes

    def _missing(self, w: Wave, o: Operation, r: int, lanes: int) -> None:
        bad = lanes & ~w.valid[r]
        f = w.flight.get(r)
        if o.copies and not (f is not None and f.lanes & bad):
            return
        w.pc += 1
        lane = (bad & -bad).bit_length() - 1
        if f is not None and f.lanes & bad:
            raise self._where(
                w,
                RunError(
                    f"reads {register_name(r)}, which {f.op} of line {f.line} is still loading; s_waitcnt is missing "
                    "or too weak",
                    rule="wait",
                ),
            )
        raise self._where(
            w, RunError(f"reads {register_name(r)}, which was never written in lane {lane}", rule="undefined")
        )

    def _touched(self, w: Wave, o: Operation, r: int, lanes: int) -> None:
        """Refuse a register that a load under way would overwrite."""
        f = w.flight[r]
        if f.lanes & lanes:
            w.pc += 1
            verb = "writes" if r in o.writes else "reads"
            raise self._where(
                w,
                RunError(
                    f"{verb} {register_name(r)}, which {f.op} of line {f.line} is still "
                    "loading; s_waitcnt is missing or too weak",
                    rule="wait",
                ),
            )

    def _scalar_written(self, w: Wave, r: int) -> None:
        w.pc += 1
        raise self._where(
            w, RunError(f"writes s{r}, which {w.s[r].op} of line {w.s[r].line} is still loading", rule="wait")
        )

    def _copied(self, w: Wave, o: Operation, lanes: int) -> None:
        """A move carries over which lanes are defined."""
        n = len(o.writes)
        for j, r in enumerate(o.writes):
            source = w.valid[o.reads[j]] if len(o.reads) == n else ALL_LANES
            if o.sreads and not o.reads and w.s[o.sreads[j % len(o.sreads)]] is None:
                source = 0
            w.valid[r] = w.valid[r] & ~lanes | source & lanes

    def _meet(self, group: Group) -> None:
        """Release the barrier when every wave that has not ended is at it."""
        if all(w.status in ("barrier", "ended", "ending") for w in group.waves):
            group.lds.barrier(group.waves)
            for w in group.waves:
                if w.status == "barrier":
                    w.status = "ready"

    def _drain(self, w: Wave) -> None:
        """One store of a wave that has ended reaches memory, the newest first; without one it has really ended."""
        if not drain(w):
            w.status = "ended"
            self._meet(w.group)
            if all(x.status == "ended" for x in w.group.waves):
                self.groups.remove(w.group)
