# SPDX-License-Identifier: MIT
"""The state of a run: a program and its instructions, a workgroup and its waves, and what is in flight.

A vector register is a row of 64 lanes. Accumulation register ``a3`` is row 256 + 3. What a register holds is defined
lane by lane: bit L of ``valid[r]`` says that lane L was written. A scalar register that was never written holds None,
one whose load is under way holds the :class:`Flight`.

Between two instructions that reach memory, branch, or change EXEC, a wave concerns nobody else. If all its lanes are
on, all that such straight-line code reads is defined and nothing that it touches is under way, then no instruction in
it can meet an undefined register or a missing wait, and the checks of each can be left out. Vector instructions that
treat every lane alike are then executed for all waves of a workgroup that stand at the same place in one numpy
operation. A wave for which this does not hold executes the same instructions one by one, with every check.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "Shader State and Data".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cdna.isa.text import Raw
from cdna.run.counters import Counters
from cdna.run.lds import Lds
from cdna.run.memory import Memory
from cdna.run.races import Races

__all__ = ["DecodedInstruction", "Flight", "Wave"]

ALL_LANES = (1 << 64) - 1
LANE = np.arange(64)
VCC, M0, EXEC, SCRATCH, XNACK = 106, 124, 126, 102, 104
UNWRITTEN, UNDEFINED, DEFINED = 0, 1, 2  # a byte of scratch: never written, a copy of something undefined, a value
_POISON = 0x7FA0DEAD  # a signalling NaN that is easy to recognise in a register view
_MASKS: dict[int, Any] = {}
# What decoding makes of an instruction and of its operands: closures over register numbers, called with a wave.
Run = Callable[["Wave"], None]
Read = Callable[["Wave"], Any]
Write = Callable[["Wave", Any], None]


def lanes_of(mask: int) -> Any:
    """Return a 64-bit mask as 64 booleans, lane 0 first; the array is shared and must not be written.

    >>> lanes_of(5)[:4].tolist()
    [True, False, True, False]
    """
    found = _MASKS.get(mask)
    if found is None:
        if len(_MASKS) > 4096:
            _MASKS.clear()
        raw = np.frombuffer(mask.to_bytes(8, "little"), np.uint8)
        found = _MASKS[mask] = np.unpackbits(raw, bitorder="little").view(np.bool_)
    return found


def bits_of(lanes: Any) -> int:
    """Return 64 booleans as a 64-bit mask.

    >>> bits_of(np.arange(64) < 3)
    7
    """
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


@dataclass(slots=True, eq=False)
class Flight:
    """A memory operation under way.

    Attributes:
        line, op: the instruction that started it.
        counter: ``vmcnt`` or ``lgkmcnt``, or ``flat`` for both.
        registers: vector registers that it will write (256 and up: accumulation), or scalar ones when ``scalar``.
        lanes: mask of the lanes that take part.
        deliver: writes the registers, or memory for a store; called when the operation completes.
        region: what a store or a load into LDS will change: allocation (or the workgroup), first and last byte.
        undefined: for each register the lanes in which a load from scratch copies something undefined; empty for none.
        pending: counters that have not yet counted it down.
    """

    line: int
    op: str
    counter: str
    registers: tuple[int, ...]
    lanes: int
    deliver: Callable[[], None] | None
    scalar: bool = False
    region: tuple[Any, int, int] | None = None
    touched: tuple[Any, str] | None = None
    undefined: tuple[int, ...] = ()
    pending: int = 1


def registers(vgprs: int, agprs: int, waves: int) -> Any:
    """Return the vector registers of some waves side by side, ``[register, 64 * waves]``, all poisoned."""
    return np.full((vgprs + agprs, 64 * waves), _POISON, np.uint32)


def _views(block: Any, vgprs: int) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return the rows of a block of registers as uint32, float32, int32 and uint16 halves; accumulation registers from
    256 on.
    """
    halves = block.view(np.uint16).reshape(len(block), -1, 2)
    rest: list[Any] = [None] * (256 - vgprs)
    each = [list(x) for x in (block, block.view(np.float32), block.view(np.int32), halves)]
    v, f, i, h = ([*x[:vgprs], *rest, *x[vgprs:]] for x in each)
    return v, f, i, h


class Wave:
    """One wave of 64 lanes. All fields may be read at any time; ``Machine`` alone writes them.

    Attributes:
        index, group: number in the workgroup, and the workgroup.
        pc: index of the next instruction in ``program.code``.
        s: scalar registers; 106 and 107 are VCC, 124 is M0. EXEC is ``exec``.
        V, F, I, H: every vector register as uint32, float32, int32 ``[64]`` and as uint16 halves ``[64, 2]``.
        valid: for each vector register the mask of lanes that hold something defined.
        exec, full, mask: the lanes that are switched on: as a number, whether all are, as booleans.
        scc, mode: the scalar condition code and the MODE register.
        vm, lg: operations that ``vmcnt`` and ``lgkmcnt`` count, oldest first.
        flight: the last operation under way for each vector register.
        status: ``ready``, ``barrier`` or ``ended``.
        executed: instructions so far.
    """

    __slots__ = (
        *("F", "H", "I", "V", "block", "dpp_ok", "exec", "executed", "flight"),
        *("full", "group", "index", "lg", "mask", "mode", "pc", "rows", "s"),
        *("scc", "scratch", "scratch_state", "status", "valid", "vm"),
    )

    def __init__(
        self, index: int, group: Workgroup, rows: tuple[int, int], block: Any, scratch: int, mode: int
    ) -> None:
        self.index, self.group, self.rows, self.block = index, group, rows, block
        self.V, self.F, self.I, self.H = _views(block, rows[0])
        agprs = rows[1]
        self.valid = [0] * (256 + agprs)
        self.s: list[Any] = [None] * 128
        self.scratch = np.zeros((64, scratch), np.uint8)
        self.scratch_state = np.full((64, scratch), UNWRITTEN, np.uint8)
        self.pc = self.scc = self.executed = 0
        self.mode = mode
        self.vm: deque[Flight] = deque()
        self.lg: deque[Flight] = deque()
        self.flight: dict[int, Flight] = {}
        self.status = "ready"
        self.dpp_ok: Any = None
        self.set_exec(ALL_LANES)

    def set_exec(self, value: int) -> None:
        """Write EXEC."""
        self.exec = value
        self.full = value == ALL_LANES
        self.mask = lanes_of(value)

    def active(self, n: int) -> Any:
        """Return row ``n`` of the vector file in the lanes that are on, as uint32."""
        return self.V[n] if self.full else self.V[n][self.mask]

    def active_rows(self, n: int, count: int) -> Any:
        """Return ``count`` rows from ``n`` in the lanes that are on: uint32 ``[lane, row]``."""
        return np.stack([self.active(r) for r in range(n, n + count)], axis=1)

    @property
    def lanes(self) -> Any:
        """Numbers of the lanes that are on; not to be written."""
        return LANE if self.full else LANE[self.mask]

    def mask_at(self, n: int) -> Any:
        """Return the mask in scalar registers ``n`` and ``n + 1`` as 64 booleans."""
        return lanes_of(self.s[n] | self.s[n + 1] << 32)

    def put_mask(self, n: int, lanes: Any) -> None:
        """Write 64 booleans into scalar registers ``n`` and ``n + 1``; lanes that are off give 0."""
        bits = bits_of(lanes) & self.exec
        self.s[n] = bits & 0xFFFFFFFF
        self.s[n + 1] = bits >> 32

    @property
    def vcc(self) -> int | None:
        """VCC, or None while it is undefined or under way."""
        low, high = self.s[VCC], self.s[VCC + 1]
        return low | high << 32 if isinstance(low, int) and isinstance(high, int) else None

    @property
    def in_flight(self) -> list[Flight]:
        """Everything under way, oldest first within each counter."""
        return [*self.vm, *(f for f in self.lg if f.counter != "flat")]

    def row(self, r: int) -> int:
        """Return the row of ``block`` that holds vector register ``r``."""
        return r if r < 256 else r - 256 + self.rows[0]

    def register(self, name: str) -> Any:
        """Return one vector register (``v7``, ``a0``) as 64 uint32; lanes never written hold 0x7fa0dead."""
        return self.V[int(name[1:]) + (256 if name[0] == "a" else 0)]


class _FusedWaves:
    """The registers of several waves as one wave of many lanes, as far as lanewise instructions look at a wave."""

    exec, full = ALL_LANES, True

    def __init__(self, waves: Sequence[Wave], block: Any) -> None:
        self.waves = list(waves)
        self.block, self.row = block, waves[0].row
        self.V, self.F, self.I, self.H = _views(block, waves[0].rows[0])
        self.mask = np.ones(64 * len(waves), np.bool_)
        self.s = waves[0].s
        self.mode = waves[0].mode

    def mask_at(self, n: int) -> Any:
        """Return the masks of all waves one after another."""
        return np.concatenate([lanes_of(w.s[n] | w.s[n + 1] << 32) for w in self.waves])

    def put_mask(self, n: int, lanes: Any) -> None:
        """Give each wave its part of a mask."""
        words = np.packbits(lanes, bitorder="little").view(np.uint32).tolist()
        for i, w in enumerate(self.waves):
            w.s[n], w.s[n + 1] = words[2 * i], words[2 * i + 1]


class StraightLine:
    """Consecutive instructions that touch only registers of their wave and leave EXEC alone.

    Attributes:
        operations: the instructions.
        end: index of the instruction that follows.
        needs, scalars: vector and scalar registers that are read before it writes them.
        writes, scalar_writes: those that it writes.
        touches: vector registers that it reads or writes.
    """

    __slots__ = ("end", "needs", "operations", "scalar_writes", "scalars", "touches", "writes")

    def __init__(self, operations: Sequence[DecodedInstruction]) -> None:
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
        """Return whether nothing in it can go wrong for this wave."""
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

    def execute(self, waves: Sequence[Wave], together: _FusedWaves | None, counts: list[int]) -> None:
        """Execute it for waves that fit; ``together`` are their registers side by side, if they can be had so.

        ``counts`` are the executions so far of each instruction of the program.
        """
        n, s = len(waves), waves[0].s
        for w in waves:
            valid = w.valid
            for r in self.writes:
                valid[r] = ALL_LANES
        for o in self.operations:
            counts[o.index] += n
            if (
                together is not None
                and o.lanewise
                and (not o.uniform or all(w.s[r] == s[r] for w in waves for r in o.uniform))
            ):
                o.run(together)  # type: ignore[arg-type]  # a wave, for instructions that are lanewise
            else:
                for w in waves:
                    w.pc = o.index + 1
                    o.run(w)
        for w in waves:
            w.pc = self.end
            w.executed += len(self.operations)


@dataclass(slots=True, eq=False)
class DecodedInstruction:
    """One decoded instruction.

    Attributes:
        index, line, op, args, source: its place in the program and in the text, its text, the source line.
        kind: see :data:`cdna.isa.mnemonics.KINDS`.
        run: executes it on a wave.
        reads, writes: vector registers (256 and up: accumulation registers) that must be defined and become so.
        sreads, swrites: scalar registers likewise.
        all_lanes: EXEC does not matter (matrix instructions).
        copies: only moves values, so an undefined source makes an undefined result instead of an error.
        lane_reads: vector registers of which single lanes are read.
        flops: of a matrix instruction.
        weak: registers that only reach the last register written: undefined ones leave that one undefined.
        private: touches nothing but registers of its wave, and not EXEC.
        lanewise, uniform: can be executed for several waves at once, if these scalar registers are the same in all.
        touches: vector registers that no load may be under way to.
        straight: what can be executed from here on without checks, if this is the first instruction of it.
    """

    index: int
    line: int
    op: str
    args: str
    source: str
    kind: str
    run: Run
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    sreads: tuple[int, ...] = ()
    swrites: tuple[int, ...] = ()
    all_lanes: bool = False
    copies: bool = False
    lane_reads: tuple[int, ...] = ()
    flops: int = 0
    weak: tuple[int, ...] = ()
    private: bool = False
    lanewise: bool = False
    uniform: tuple[int, ...] = ()
    touches: tuple[int, ...] = ()
    straight: StraightLine | None = None

    @property
    def text(self) -> str:
        """The instruction as one line."""
        return f"{self.op} {self.args}".strip()


class Workgroup:
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
        self.side_by_side: dict[tuple[int, ...], _FusedWaves] = {}

    def fused(self, waves: list[Wave]) -> _FusedWaves | None:
        """Return the registers of neighbouring waves side by side; None of one wave, or with a gap between them."""
        first, last = waves[0].index, waves[-1].index
        if last == first or last - first >= len(waves) or any(w.mode != waves[0].mode for w in waves):
            return None
        found = self.side_by_side.get((first, last))
        if found is None:
            found = _FusedWaves(waves, self.block[:, 64 * first : 64 * last + 64])
            self.side_by_side[first, last] = found
        found.mode = waves[0].mode
        return found

    def __repr__(self) -> str:
        return f"workgroup {self.ids}"


class Parameter(NamedTuple):
    """One kernel argument as the metadata describes it; ``type`` is Triton's (``*fp16``, ``i32``), if known."""

    offset: int
    size: int
    kind: str
    name: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the kernel descriptor.

    Attributes:
        vgprs, agprs: registers of each kind that a wave may name.
        lds, scratch, kernarg: bytes for a workgroup, for a lane, for the arguments.
        user: the scalar registers set before the start, in order: name and number of registers.
        preload: dwords of the arguments that are in scalar registers, and the first of them.
        ids: which workgroup ids (x, y, z) follow in scalar registers; then the workgroup info.
        id_dims: dimensions of the work-item id packed into v0.
        mode: the MODE register at the start.
        threads: work-items of a workgroup at most, 0 if the text does not say.
    """

    vgprs: int = 256
    agprs: int = 256
    lds: int = 0
    scratch: int = 0
    kernarg: int = 0
    user: tuple[tuple[str, int], ...] = (("kernarg_segment_ptr", 2),)
    user_count: int = 2
    preload: tuple[int, int] = (0, 0)
    ids: tuple[bool, bool, bool] = (True, False, False)
    info: bool = False
    id_dims: int = 1
    mode: int = 0xF0 | 0x300
    threads: int = 0


@dataclass(slots=True)
class Program:
    """One kernel before it is decoded.

    Attributes:
        name, settings, parameters: of the kernel.
        body: instructions of the kernel and, behind it, of the functions that it may call.
        entry: index of the first instruction.
        labels: index for each label; ``kernel`` first wins.
        addresses, by_address: made-up (or listed) address of each instruction, and the way back.
        flushes, rounds: denormal float32 values may have to become zero, results to be rounded other than to nearest.
        decoded: the instructions ready to execute, after the first launch; no launch changes them.
        waits: whether the wait states have been found right.
        places: what LDS accesses touch, by their addresses; see :class:`cdna.run.lds.Lds`.
        hardware_sums: matrix instructions add up as an MI300X does; see :mod:`cdna.run.matrix_sums`.
    """

    name: str
    text: str = field(repr=False)
    settings: Settings
    parameters: tuple[Parameter, ...]
    body: list[Raw] = field(repr=False)
    entry: int = 0
    labels: dict[str, int] = field(default_factory=dict, repr=False)
    addresses: list[int] = field(default_factory=list, repr=False)
    by_address: dict[int, int] = field(default_factory=dict, repr=False)
    flushes: bool = False
    rounds: bool = False
    decoded: list[DecodedInstruction] | None = field(default=None, repr=False)
    waits: bool = False
    places: dict[Any, Any] = field(default_factory=dict, repr=False)
    hardware_sums: bool = False

    @property
    def listing(self) -> bool:
        """Return whether the text is a disassembly, which has addresses and nothing about the kernel's start."""
        return self.body[0].address >= 0

    def lines(self) -> list[str]:
        """Return the text by lines; ``Raw.line`` counts from 1."""
        return self.text.split("\n")
