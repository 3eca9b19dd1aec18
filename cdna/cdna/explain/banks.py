# SPDX-License-Identifier: MIT
"""LDS banks: which lanes of an access meet in a bank, from addresses, from executed code, and from a TTGIR layout.

The model is that of :mod:`cdna.run.counters`: 32 banks of 4 bytes, and groups of lanes that go together.
Two lanes of a group that want different words of one bank conflict; the same word is read once for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdna.base import InputError
from cdna.ir.layouts import Layout
from cdna.ir.program import parse_ir
from cdna.run import prepare
from cdna.run.counters import lanes_together

__all__ = ["BANKS", "BankAccess", "BankError", "bank_access", "executed_accesses", "layout_access"]

BANKS = 32


class BankError(InputError):
    """Addresses that are no access, or a layout that cannot be followed."""


@dataclass(frozen=True)
class BankAccess:
    """One LDS access of a wave.

    Attributes:
        addresses: byte address of each of the 64 lanes, -1 for a lane that is switched off.
        size: bytes for each lane.
        write: whether it writes.
    """

    addresses: tuple[int, ...]
    size: int
    write: bool = False

    @property
    def groups(self) -> list[dict[int, dict[int, list[int]]]]:
        """Return for each group of lanes that go together: bank -> word (address / 4) -> the lanes that want it."""
        found = []
        for lanes in lanes_together(self.size, self.write).tolist():
            banks: dict[int, dict[int, list[int]]] = {}
            for lane in lanes:
                at = self.addresses[lane]
                for word in range(at >> 2, (at + self.size - 1 >> 2) + 1) if at >= 0 else ():
                    banks.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
            if banks:
                found.append(banks)
        return found

    @property
    def cycles(self) -> int:
        """Cycles of the LDS: for each group as many as its busiest bank has different words."""
        return sum(max(map(len, banks.values())) for banks in self.groups)

    @property
    def ideal(self) -> int:
        """Cycles without any conflict."""
        return len(self.groups)

    def conflicts(self) -> list[tuple[int, list[list[int]]]]:
        """Return each conflict as its bank and the lanes that take turns there, one list for each word.

        >>> bank_access([128 * lane for lane in range(64)], 4).conflicts()[0][1][:3]
        [[0], [1], [2]]
        """
        return [(b, list(w.values())) for banks in self.groups for b, w in sorted(banks.items()) if len(w) > 1]

    def __str__(self) -> str:
        return f"{self.size * 8} bits a lane: {self.cycles} cycles, {self.ideal} without conflicts"


def bank_access(addresses: Sequence[int], size: int, write: bool = False) -> BankAccess:
    """Model an access of 64 lanes to the given byte addresses of LDS (-1: the lane is switched off).

    Raises:
        BankError: other than 64 addresses, or a size that no instruction has.

    >>> print(bank_access([4 * lane for lane in range(64)], 4))
    32 bits a lane: 2 cycles, 2 without conflicts
    >>> print(bank_access([128 * lane for lane in range(64)], 4))
    32 bits a lane: 64 cycles, 2 without conflicts
    """
    if len(addresses) != 64:
        raise BankError(f"{len(addresses)} addresses: a wave has 64 lanes; -1 for one that is switched off")
    if size not in (1, 2, 4, 8, 12, 16):
        raise BankError(f"size={size!r}: 1, 2, 4, 8, 12 or 16 bytes for each lane")
    return BankAccess(tuple(int(a) for a in addresses), size, write)


@dataclass(frozen=True)
class ExecutedAccess:
    """All executions of one LDS instruction in a workgroup.

    Attributes:
        line, op, source: where it stands.
        times: accesses (a ``read2`` makes two).
        cycles, ideal: of the LDS, in all.
        worst: the access that took longest.
    """

    line: int
    op: str
    source: str
    times: int
    cycles: int
    ideal: int
    worst: BankAccess

    @property
    def conflicts(self) -> int:
        """Cycles that bank conflicts cost."""
        return self.cycles - self.ideal


def executed_accesses(
    kernel: Any,
    grid: int | Sequence[int],
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    group: int = 0,
    shared: int | None = None,
) -> list[ExecutedAccess]:
    """Execute one workgroup as gfx942 code and collect the addresses of its LDS instructions, by line.

    The arguments are those of :func:`cdna.run.session.run`; nothing is written into the caller's arrays.

    Raises:
        RunError: the code does what the hardware does not allow.
    """
    machine = prepare(kernel, grid, arguments, shared=shared).machine
    started = machine.start_group(group)
    if started is None or not 0 <= group < machine.total:
        raise BankError(f"group={group!r}: the grid has workgroups 0 to {machine.total - 1}")
    seen: dict[int, list[BankAccess]] = {}
    now: list[Any] = [None, 0]

    def watch(where: str, at: Any, size: int, write: bool) -> None:
        if where == "lds":
            places = np.full(64, -1, np.int64)
            places[now[0]] = at
            seen.setdefault(now[1], []).append(BankAccess(tuple(places.tolist()), size, write))

    machine.counters.watch = watch
    with np.errstate(all="ignore"):
        while any(w.status != "ended" for w in started.waves):
            ready = [w for w in started.waves if w.status in ("ready", "ending")]
            if not ready:
                raise BankError("every wave waits at a barrier that others never reach")
            for w in ready:
                if w.status == "ready":
                    now[:] = [_lanes(w.exec), machine.code[w.pc].line]
                machine.step(w)
    code = {o.line: o for o in machine.code}
    found = []
    for line, accesses in sorted(seen.items()):
        each = {a: (a.cycles, a.ideal) for a in set(accesses)}
        total = [each[a] for a in accesses]
        worst = max(accesses, key=lambda a: each[a][0])
        o = code[line]
        found.append(
            ExecutedAccess(
                line, o.op, o.source, len(accesses), sum(c for c, _ in total), sum(i for _, i in total), worst
            )
        )
    return found


def _lanes(mask: int) -> Any:
    return np.array([n for n in range(64) if mask >> n & 1], np.int64)


@dataclass(frozen=True)
class LayoutAccess:
    """First LDS read of a ``ttg.local_load`` of a matrix operand, with the layout's swizzle and without it."""

    line: int
    source: str
    operand: str
    layout: Layout
    swizzled: BankAccess
    plain: BankAccess


def _address(layout: Layout, shape: tuple[int, ...], index: tuple[Any, Any], size: int, swizzle: bool) -> Any:
    """Return the byte address of elements of a two-dimensional buffer in LDS.

    Source: Triton, "TritonGPU dialect attributes": SwizzledSharedEncodingAttr, AMDRotatingSharedEncodingAttr.
    """
    order = layout.numbers("order")
    row, column = index[order[1]], index[order[0]]
    if swizzle:
        vec, per, most = (layout.numbers(key)[0] for key in ("vec", "perPhase", "maxPhase"))
        phase = row // per % most
        if layout.spelling == "amd_rotating_shared":
            phase = phase ^ (row // (per * most) % most)
        column = ((column // vec) ^ phase) * vec + column % vec
    return (row * shape[order[0]] + column) * size


def layout_access(ttgir: str) -> list[LayoutAccess]:
    """Return the first access of wave 0 for each matrix operand that a TTGIR text loads from LDS.

    A lane of a dot operand takes ``kWidth`` neighbouring elements along k; where these lie side by side in LDS they are
    one access, otherwise the first of them is. Buffers whose layout is neither swizzled nor rotated are left out.

    Raises:
        IrError: the text holds no function.
    """
    program = parse_ir(ttgir)[0]
    found = []
    for op in program.operations:
        if program.move(op) != "LDS -> registers" or not op.results or not op.operands:
            continue
        buffer, value = program.values[op.operands[0]], program.values[op.results[0]]
        shared, dot = buffer.layout, value.layout
        if shared is None or dot is None or dot.kind != "dot_op" or dot.parent is None:
            continue
        tile, width, side = dot.parent.numbers("instrShape"), dot.numbers("kWidth"), dot.numbers("opIdx")
        if shared.spelling not in ("swizzled_shared", "amd_rotating_shared") or not (tile and width and side):
            continue
        shape = value.type.shape
        size = value.type.bytes // (shape[0] * shape[1])
        lane, k_dim = np.arange(64), 1 - side[0]
        across, along = lane % tile[side[0]], lane // tile[side[0]] * width[0]
        index = (across, along) if k_dim == 1 else (along, across)
        beside = shared.numbers("order")[0] == k_dim
        wide = min(16, size * (min(width[0], max(1, shared.numbers("vec")[0])) if beside else 1))
        accesses = [bank_access(_address(shared, shape, index, size, s).tolist(), wide) for s in (True, False)]
        found.append(LayoutAccess(op.line, op.source, "AB"[side[0]], shared, *accesses))
    return found
