# SPDX-License-Identifier: MIT
"""The machine: workgroups and their waves, executed one instruction at a time, in an order of the caller's choice.

:class:`Machine` can be stepped wave by wave; :meth:`Machine.run` runs everything in one of several orders.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from cdna.run.counters import Counters
from cdna.run.decode import Stop, decode_program
from cdna.run.errors import RunError
from cdna.run.in_flight import drain, register_name
from cdna.run.lds import Lds
from cdna.run.memory import Memory
from cdna.run.operands import parse_operand
from cdna.run.races import Races
from cdna.run.state import ALL_LANES, DecodedInstruction, Flight, Program, Wave, Workgroup, registers

__all__ = ["Machine", "Observer"]

# Called before each instruction: the wave and what it is about to execute.
Observer = Callable[[Wave, DecodedInstruction], None]
_NARROW_LDS = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2}


class Machine:
    """One launch of a kernel.

    Attributes:
        program, code: the kernel, and its decoded instructions (``code[wave.pc]`` comes next).
        counts: how often each of them was executed.
        memory: all allocations.
        races: what orders the workgroups; None if there is only one.
        counters: what was executed; call :meth:`tally` to fill in the sums by class.
        groups: workgroups that have started and not ended.
        executed: instructions of all waves so far.
        observer: called before each instruction, or None.
        copied: by line, how often a wave overwrote a float32 copy in LDS that differed within ``copies``.
    """

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        memory: Memory,
        kernarg: bytes,
        lds: int,
        *,
        observer: Observer | None = None,
        limit: int = 1_000_000,
        count: bool = True,
        copies: float = 0.0,
    ) -> None:
        self.program, self.grid, self.block, self.memory = program, grid, block, memory
        self.kernarg, self.lds_bytes, self.observer, self.limit = kernarg, lds, observer, limit
        self.counters = Counters(enabled=count)
        self.code = decode_program(program)
        self.counts = [0] * len(self.code)
        self.kernarg_base = memory.add("kernel arguments", np.frombuffer(kernarg, np.uint8), writable=False).base
        self.copies, self.copied = copies, dict[int, int]()
        self.races = Races(grid, _narrowest(self.code)) if self.total > 1 else None
        self.groups: list[Workgroup] = []
        self.executed = 0
        self._next = 0
        self._order: Sequence[int] | None = None
        self._vgprs, self._agprs = self._rows()
        widths = [_NARROW_LDS.get(part, 4) for o in self.code if o.op.startswith("ds_") for part in o.op.split("_")]
        narrow = any(o.op.endswith(("byte", "short")) and " lds" in f" {o.args}" for o in self.code)
        self._granule = 1 if narrow or any(o.op.startswith("flat_") for o in self.code) else min(widths, default=4)

    def _rows(self) -> tuple[int, int]:
        used = [r for o in self.code for r in (*o.reads, *o.writes, *o.lane_reads)]
        used += [r for o in self.code for r in _named(o.args)]
        if any(o.op == "s_set_gpr_idx_on" for o in self.code):  # an index reaches registers that no line names
            used.append(self.program.settings.vgprs - 1)
        v = max((r for r in used if r < 256), default=0)
        return v + 1, max((r - 255 for r in used if r >= 256), default=0)

    # ---- workgroups

    @property
    def total(self) -> int:
        """Workgroups in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def start_group(self, number: int | None = None) -> Workgroup | None:
        """Start the next workgroup (or the one of this number); None when all have started."""
        if number is None:
            if self._next >= (self.total if self._order is None else len(self._order)):
                return None
            number = self._order[self._next] if self._order is not None else self._next
            self._next += 1
        gx, gy, _ = self.grid
        threads = self.block[0] * self.block[1] * self.block[2]
        block = registers(self._vgprs, self._agprs, -(-threads // 64))
        place = (number % gx, number // gx % gy, number // (gx * gy))
        lds = Lds(self.lds_bytes, self._granule, self.copies, self.copied, self.program.places)
        group = Workgroup(number, place, lds, block, self.memory, self.counters, self.races)
        for i in range(-(-threads // 64)):
            group.waves.append(self._wave(group, i, min(64, threads - 64 * i)))
        self.groups.append(group)
        return group

    def _wave(self, group: Workgroup, index: int, lanes: int) -> Wave:
        s = self.program.settings
        rows = self._vgprs, self._agprs
        w = Wave(index, group, rows, group.block[:, 64 * index : 64 * index + 64], s.scratch, s.mode)
        w.pc = self.program.entry
        at = 0
        for name, n in s.user:
            if name == "kernarg_segment_ptr":
                w.s[at], w.s[at + 1] = self.kernarg_base & 0xFFFFFFFF, self.kernarg_base >> 32
            elif name == "private_segment_size":
                w.s[at] = s.scratch
            at += n
        length, first = s.preload
        for i in range(length):
            piece = self.kernarg[4 * (first + i) : 4 * (first + i) + 4]
            w.s[at + i] = int.from_bytes(piece, "little")
        at = max(s.user_count, at + length)
        for axis, wanted in enumerate(s.ids):
            if wanted:
                w.s[at] = group.ids[axis]
                at += 1
        w.set_exec(ALL_LANES if lanes == 64 else (1 << lanes) - 1)
        bx, by, _ = self.block
        flat = np.arange(64, dtype=np.uint32) + np.uint32(64 * index)
        x, y, z = flat % bx, flat // bx % by, flat // (bx * by)
        # gfx90a and later pack the three into v0, ten bits each; what is not asked for is 0.
        packed = x | (y << 10 if s.id_dims > 1 else 0) | (z << 20 if s.id_dims > 2 else 0)
        w.V[0][:] = packed
        w.valid[0] = ALL_LANES
        return w

    def run(
        self,
        order: str | int = "together",
        slice_: int = 50_000,
        resident: int = 304,
        only: Sequence[int] | None = None,
    ) -> None:
        """Run all workgroups to their end.

        Args:
            order: ``together`` runs the waves of a workgroup side by side, which takes the least time (with an
                observer it is ``alone``); ``alone`` runs each wave to its next barrier or its end, ``round_robin`` one
                instruction of each wave in turn; a number is the seed of random workgroups, waves and run lengths.
            slice_: instructions after which a workgroup that has not ended makes room for others, so that kernels
                whose workgroups wait for each other can finish.
            resident: workgroups that can be under way at once.
            only: numbers of the workgroups that run; None runs all.

        Raises:
            RunError: see :meth:`step`; also when all waves wait for each other.
        """
        if order not in ("together", "alone", "round_robin") and not isinstance(order, int):
            raise RunError(f"order={order!r}: together, alone, round_robin or a number")
        random_ = random.Random(order) if isinstance(order, int) else None
        chosen = range(self.total) if only is None else only
        if random_ is not None:
            self._order = random_.sample(chosen, len(chosen))
        elif only is not None:
            self._order = only
        if len(chosen) == 1:
            self.races = None
        queue: list[Workgroup] = []
        with np.errstate(all="ignore"):
            while True:
                if len(queue) < resident and (group := self.start_group()) is not None:
                    queue.insert(0, group)
                elif not queue:
                    break
                group = queue.pop(random_.randrange(len(queue)) if random_ else 0)
                left = random_.randrange(1, slice_) if random_ else slice_
                if not self._run_group(group, order, left, random_):
                    queue.append(group)

    def _run_group(self, group: Workgroup, order: str | int, budget: int, random_: random.Random | None) -> bool:
        """Give a workgroup some instructions; True when it has ended."""
        turn = 0
        while budget > 0:
            ready = [w for w in group.waves if w.status in ("ready", "ending")]
            if not ready:
                if all(w.status == "ended" for w in group.waves):
                    return True
                raise RunError(f"{group!r}: every wave waits at a barrier that others never reach", rule="deadlock")
            if order == "together" and self.observer is None:
                budget -= self._run_side_by_side(group, ready, turn)
                turn += 1
                continue
            if random_ is not None:
                w, n = random_.choice(ready), random_.choice((1, 2, 7, 30, 200))
            elif order in ("alone", "together"):
                # A wave that spins on memory must not starve the others for ever.
                w, n = ready[turn // 2000 % len(ready)] if turn else ready[0], 20_000
            else:
                w, n = ready[turn % len(ready)], 1
            turn += 1
            if w.status == "ending":
                self._drain(w)
                budget -= 1
            else:
                budget -= max(1, self._run_wave(w, min(n, budget)))
        return all(w.status == "ended" for w in group.waves)

    # ---- instructions

    def step(self, w: Wave) -> DecodedInstruction:
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
        self._run_wave(w, 1)
        return self.code[at]

    def _run_side_by_side(self, group: Workgroup, ready: list[Wave], turn: int) -> int:
        """Move the waves that stand at one place to the next straight line or stop; return how many instructions."""
        for w in ready:
            if w.status == "ending":
                self._drain(w)
                return 1
        # Those furthest behind go first, so that waves meet again; now and then others, for whom these may be waiting.
        at = ready[turn // 8 % len(ready)].pc if turn % 8 == 7 else min([w.pc for w in ready])
        waves, done = [w for w in ready if w.pc == at], 0
        straight = self.code[at].straight if at < len(self.code) else None
        if straight is not None:
            fit = [w for w in waves if straight.fits(w)]
            if fit:
                try:
                    straight.execute(fit, group.fused(fit), self.counts)
                except RunError as e:
                    raise self._where(next((w for w in fit if w.pc != straight.end), fit[0]), e) from None
                done = len(straight.operations) * len(fit)
                self.executed += done
                for w in fit:
                    self._check_limit(w)
        for w in waves:
            if w.status == "ready":
                done += self._run_wave(w, 1000, int(w.pc == at))
        return done

    def _run_wave(self, w: Wave, budget: int, free: int = 1 << 62) -> int:
        """Execute up to ``budget`` instructions of a ready wave; return how many.

        After the first ``free`` ones it also stops where straight-line code begins.
        """
        code, s, valid, flight, observer = self.code, w.s, w.valid, w.flight, self.observer
        counts = self.counts
        done = 0
        try:
            while done < budget:
                o = code[w.pc]
                if o.straight is not None and done >= free:
                    break
                if observer is not None:
                    observer(w, o)
                lanes = ALL_LANES if o.all_lanes else w.exec
                for r in o.sreads:
                    if s[r].__class__ is not int:
                        self._check_scalar(w, o, r)
                        self._copy_nothing(w, o, lanes)
                        done += 1
                        break
                else:
                    for r in o.reads:
                        if lanes & ~valid[r]:
                            self._check_vector(w, o, r, lanes)
                    weak = ALL_LANES
                    if o.weak:
                        for r in o.weak:
                            weak &= valid[r]
                    if flight:
                        for r in o.touches:
                            if r in flight:
                                self._check_touched(w, o, r, lanes)
                    for r in o.swrites:
                        if s[r].__class__ is Flight:
                            w.pc += 1
                            what = f"{s[r].op} of line {s[r].line}"
                            raise RunError(f"writes s{r}, which {what} is still loading", rule="wait")
                    w.pc += 1
                    done += 1
                    counts[o.index] += 1
                    o.run(w)
                    if o.copies:
                        self._copy_valid(w, o, lanes)
                    else:
                        for r in o.writes:
                            valid[r] |= lanes
                        if lanes & ~weak:
                            valid[r] &= ~lanes | weak
        except Stop:
            if w.status == "barrier":
                self._release_barrier(w.group)
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

    def _check_scalar(self, w: Wave, o: DecodedInstruction, r: int) -> None:
        if o.copies and w.s[r] is None and o.kind != "scratch":  # of a spill it is the address
            return
        w.pc += 1
        name = {106: "vcc_lo", 107: "vcc_hi", 124: "m0"}.get(r, f"s{r}")
        f = w.s[r]
        if isinstance(f, Flight):
            raise RunError(
                f"reads {name}, which {f.op} of line {f.line} is still loading; s_waitcnt lgkmcnt(0) is missing",
                rule="wait",
            )
        raise RunError(f"reads {name}, which was never written", rule="undefined")

    def _copy_nothing(self, w: Wave, o: DecodedInstruction, lanes: int) -> None:
        """Leave the target of a move undefined where its source is."""
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

    def _check_vector(self, w: Wave, o: DecodedInstruction, r: int, lanes: int) -> None:
        bad = lanes & ~w.valid[r]
        f = w.flight.get(r)
        if o.copies and not (f is not None and f.lanes & bad):
            return
        w.pc += 1
        lane = (bad & -bad).bit_length() - 1
        if f is not None and f.lanes & bad:
            raise RunError(
                f"reads {register_name(r)}, which {f.op} of line {f.line} is still loading; s_waitcnt is missing "
                "or too weak",
                rule="wait",
            )
        raise RunError(f"reads {register_name(r)}, which was never written in lane {lane}", rule="undefined")

    def _check_touched(self, w: Wave, o: DecodedInstruction, r: int, lanes: int) -> None:
        """Refuse a register that a load under way would overwrite."""
        f = w.flight[r]
        if f.lanes & lanes:
            w.pc += 1
            verb = "writes" if r in o.writes else "reads"
            raise RunError(
                f"{verb} {register_name(r)}, which {f.op} of line {f.line} is still "
                "loading; s_waitcnt is missing or too weak",
                rule="wait",
            )

    def _copy_valid(self, w: Wave, o: DecodedInstruction, lanes: int) -> None:
        """Carry over which lanes a move defines."""
        n = len(o.writes)
        for j, r in enumerate(o.writes):
            source = w.valid[o.reads[j]] if len(o.reads) == n else ALL_LANES
            if o.sreads and not o.reads and w.s[o.sreads[j % len(o.sreads)]] is None:
                source = 0
            w.valid[r] = w.valid[r] & ~lanes | source & lanes

    def _release_barrier(self, group: Workgroup) -> None:
        """Release the barrier when every wave that has not ended is at it."""
        if all(w.status in ("barrier", "ended", "ending") for w in group.waves):
            group.lds.barrier((w.index, f.line, *f.touched) for w in group.waves for f in w.lg if f.touched is not None)
            for w in group.waves:
                if w.status == "barrier":
                    w.status = "ready"

    def _drain(self, w: Wave) -> None:
        """Let one store of a wave that has ended reach memory, the newest first; without one it has really ended."""
        if not drain(w):
            w.status = "ended"
            self._release_barrier(w.group)
            if all(x.status == "ended" for x in w.group.waves):
                self.groups.remove(w.group)

    def tally(self) -> Counters:
        """Return the counters, with the sums by class filled in."""
        c = self.counters
        c.instructions = {}
        c.lanes = c.mfma_flops = 0
        for o, n in zip(self.code, self.counts, strict=True):
            if n:
                c.instructions[o.kind] = c.instructions.get(o.kind, 0) + n
                c.mfma_flops += o.flops * n
                if o.kind in ("valu", "mfma", "lds", "permute", "global", "scratch"):
                    c.lanes += 64 * n
        return c


def _narrowest(code: Sequence[DecodedInstruction]) -> int:
    """Return the bytes of the narrowest access to global memory, 4 at most."""
    ops = [o.op for o in code if o.kind == "global" or o.op.startswith("buffer_")]
    if any("byte" in op for op in ops):
        return 1
    return 2 if any("short" in op for op in ops) else 4


@lru_cache(maxsize=16384)
def _named(args: str) -> tuple[int, ...]:
    """Return the highest vector registers named in operands (destinations of loads are not in ``writes``)."""
    found = []
    for m in re.finditer(r"\b([va])(?:(\d{1,3})\b|\[(\d{1,3}):(\d{1,3})\])", args):
        found.append(int(m[2] or m[4]) + (256 if m[1] == "a" else 0))
    return tuple(found)
