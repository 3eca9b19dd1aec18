# SPDX-License-Identifier: MIT
"""Scalar loads: constants and arguments into scalar registers, for the whole wave.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Scalar Memory Operations".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.allocations import gather
from cdna.run.memory.in_flight import launch_scalar
from cdna.run.vector.access import Access
from cdna.run.wave import Flight, Wave

__all__ = ["decode_scalar_memory"]

_LOAD = re.compile(r"s_(?P<b>buffer_)?load_dword(?:x(?P<n>2|4|8|16))?$")


def _deliver(w: Wave, first: int, values: list[int]) -> Callable[[], None]:
    def done() -> None:
        w.s[first : first + len(values)] = values

    return done


def _load(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None]:
    n, op = int(m["n"] or 1), a.op
    d = a.take(0)
    if d.kind != "s" or d.count != n or d.index >= 108:
        raise a.fail(f"the result is {n} scalar registers")
    a.used |= {"glc"}
    imm = a.number("offset")
    b = a.take(1)
    if b.kind != "s" or b.count != (4 if m["b"] else 2):
        raise a.fail("the base is two scalar registers (four for a buffer)")
    base = a.s64_at(b.index)
    records = a.s64_at(b.index + 2) if m["b"] else None
    o = a.take(2)
    offset: Callable[[Wave], Any] = a.s32(2)
    if o.kind == "int":
        fixed = int(o.value)
        offset = lambda w: fixed  # noqa: E731
    regs = tuple(range(d.index, d.index + n))

    def run(w: Wave) -> None:
        start, at = base(w), offset(w) + imm
        if records is not None:
            start &= (1 << 48) - 1
            limit = records(w) & 0xFFFFFFFF
            size = max(0, min(4 * n, (limit - at) // 4 * 4))
        else:
            size = 4 * n
        address = (start + at) & ~3
        values = [0] * n
        if size:
            memory = w.group.memory
            found = memory.find(address)
            if found is None or address + size > found.base + found.size:
                what = memory.describe(address, size, 0, False).replace("lane 0 reads", "reads")
                raise RunError(what, line, "bounds")
            at_ = np.array([address - found.base])
            if w.group.races is not None:
                w.group.races.read(w.group, found, at_, size, line, False)
            raw = gather(found, at_, size).ravel().tolist()
            values[: len(raw)] = raw
        launch_scalar(w, Flight(line, op, "lgkmcnt", regs, 0, _deliver(w, regs[0], values), scalar=True))

    return run


def _time(a: Access, line: int) -> Callable[[Wave], None]:
    """s_memtime, s_memrealtime: here a clock that ticks once for each instruction of the wave."""
    d = a.take(0)
    if d.kind != "s" or d.count != 2:
        raise a.fail("the result is two scalar registers")
    regs, op = (d.index, d.index + 1), a.op

    def run(w: Wave) -> None:
        values = [w.executed & 0xFFFFFFFF, w.executed >> 32]
        launch_scalar(w, Flight(line, op, "lgkmcnt", regs, 0, _deliver(w, regs[0], values), scalar=True))

    return run


def decode_scalar_memory(a: Access, line: int) -> Callable[[Wave], None] | None:
    """The function that executes a scalar memory instruction, or None."""
    if m := _LOAD.match(a.base):
        return _load(a, m, line)
    if a.base in ("s_memtime", "s_memrealtime"):
        return _time(a, line)
    if a.base.startswith("s_dcache_"):
        return lambda w: None
    return None
