# SPDX-License-Identifier: MIT
"""The state of one wave: its registers, its masks, and the memory operations that it has under way.

A vector register is a row of 64 lanes. Accumulation register ``a3`` is row 256 + 3. What a register holds is defined
lane by lane: bit L of ``valid[r]`` says that lane L was written. A scalar register that was never written holds None,
one whose load is under way holds the :class:`Flight`.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "Shader State and Data".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cdna.run.memory.lds import Group

__all__ = ["ALL_LANES", "EXEC", "M0", "VCC", "Flight", "Wave", "bits_of", "lanes_of", "registers", "views"]

ALL_LANES = (1 << 64) - 1
VCC, M0, EXEC, SCRATCH, XNACK = 106, 124, 126, 102, 104
_POISON = 0x7FA0DEAD  # a signalling NaN that is easy to recognise in a register view
_MASKS: dict[int, Any] = {}


def lanes_of(mask: int) -> Any:
    """A 64-bit mask as 64 booleans, lane 0 first; the array is shared and must not be written.

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
    """64 booleans as a 64-bit mask.

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
    pending: int = 1


def registers(vgprs: int, agprs: int, waves: int) -> Any:
    """Vector registers of some waves side by side, ``[register, 64 * waves]``, all poisoned."""
    return np.full((vgprs + agprs, 64 * waves), _POISON, np.uint32)


def views(block: Any, vgprs: int) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Rows of a block of registers as uint32, float32, int32 and uint16 halves; accumulation registers from 256 on."""
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
        "F",
        "H",
        "I",
        "V",
        "block",
        "code_base",
        "dpp_ok",
        "exec",
        "executed",
        "flight",
        "full",
        "group",
        "index",
        "lg",
        "mask",
        "mode",
        "pc",
        "rows",
        "s",
        "scc",
        "scratch",
        "scratch_valid",
        "status",
        "valid",
        "vm",
    )

    def __init__(self, index: int, group: Group, rows: tuple[int, int], block: Any, scratch: int, mode: int) -> None:
        self.index, self.group, self.rows, self.block = index, group, rows, block
        self.V, self.F, self.I, self.H = views(block, rows[0])
        agprs = rows[1]
        self.valid = [0] * (256 + agprs)
        self.s: list[Any] = [None] * 128
        self.scratch = np.zeros((64, scratch), np.uint8)
        self.scratch_valid = np.zeros((64, scratch), np.bool_)
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

    def mask_at(self, n: int) -> Any:
        """The mask in scalar registers ``n`` and ``n + 1`` as 64 booleans."""
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
        """The row of ``block`` that holds vector register ``r``."""
        return r if r < 256 else r - 256 + self.rows[0]

    def register(self, name: str) -> Any:
        """One vector register (``v7``, ``a0``) as 64 uint32; lanes never written hold 0x7fa0dead."""
        return self.V[int(name[1:]) + (256 if name[0] == "a" else 0)]
