# SPDX-License-Identifier: MIT
"""Instructions that use the LDS: reads, writes, atomics.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "DS Instructions".
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.atomics import ATOMICS, apply_atomic
from cdna.run.memory.in_flight import launch_load, launch_store
from cdna.run.memory.results import deliver, narrow
from cdna.run.vector.access import Access
from cdna.run.vector.crossbar import decode_crossbar
from cdna.run.wave import Flight, Wave

__all__ = ["decode_lds"]

_READ = re.compile(
    r"ds_read(?:_(?P<n>u8|i8|u16|i16|b32|b64|b96|b128)(?P<d16>_d16(?:_hi)?)?|2(?P<st>st64)?_(?P<m>b32|b64))$"
)
_WRITE = re.compile(r"ds_write(?:_(?P<n>b8|b16|b32|b64|b96|b128)(?P<hi>_d16_hi)?|2(?P<st>st64)?_(?P<m>b32|b64))$")
_BITS = re.compile(r"\d+$")
_LANE = np.arange(64)


def _size(name: str) -> int:
    return int(_BITS.search(name)[0]) // 8  # type: ignore[index]


def _read(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None]:
    size = _size(m["n"] or m["m"])
    words = max(1, size // 4)
    rows = a.rows(0, words * (1 if m["n"] else 2), write=True)
    a.writes.clear()
    regs = tuple(range(rows, rows + words * (1 if m["n"] else 2)))
    n = a.rows(1, 1)
    if m["n"]:
        offsets = [a.number("offset")]
        finish = narrow(m["n"], m["d16"]) if size < 4 else None
    else:
        scale = size * (64 if m["st"] else 1)
        offsets = [a.number("offset0") * scale, a.number("offset1") * scale]
        finish = None
    op = a.op

    def run(w: Wave) -> None:
        if not w.exec:
            launch_load(w, Flight(line, op, "lgkmcnt", (), 0, None))
            return
        lds, lanes = w.group.lds, _LANE if w.full else _LANE[w.mask]
        lds.by = line
        base = (w.V[n] if w.full else w.V[n][w.mask]).astype(np.int64)
        parts, touched = [], []
        for offset in offsets:
            at = base + offset & 0xFFFFFFFF  # a negative base plus an offset is an address too
            parts.append(lds.read(w, at, size, lanes))
            touched.append(lds.last)
            w.group.count.lds(at, size, lanes, False)
        values = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        f = Flight(line, op, "lgkmcnt", regs, w.exec, deliver(w, regs, values, w.exec, finish))
        f.touched = (touched, "read")
        launch_load(w, f)

    return run


def _write(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None]:
    size = _size(m["n"] or m["m"])
    words = max(1, size // 4)
    n = a.rows(0, 1)
    firsts = [a.rows(1, words)] if m["n"] else [a.rows(1, words), a.rows(2, words)]
    scale = 1 if m["n"] else size * (64 if m["st"] else 1)
    names = ["offset"] if m["n"] else ["offset0", "offset1"]
    offsets = [a.number(name) * scale for name in names]
    high = bool(m["n"] and m["hi"])
    op = a.op

    def run(w: Wave) -> None:
        if not w.exec:
            launch_store(w, Flight(line, op, "lgkmcnt", (), 0, None))
            return
        lds, lanes = w.group.lds, _LANE if w.full else _LANE[w.mask]
        lds.by = line
        base = (w.V[n] if w.full else w.V[n][w.mask]).astype(np.int64)
        touched = []
        for first, offset in zip(firsts, offsets, strict=True):
            columns = [w.V[r] if w.full else w.V[r][w.mask] for r in range(first, first + words)]
            values = np.stack(columns, axis=1)
            if high:
                values = values >> np.uint32(16)
            at = base + offset & 0xFFFFFFFF  # a negative base plus an offset is an address too
            lds.write(w, at, values, size, lanes)
            touched.append(lds.last)
            w.group.count.lds(at, size, lanes, True)
        f = Flight(line, op, "lgkmcnt", (), w.exec, None)
        f.touched = (touched, "write")
        launch_store(w, f)

    return run


_ATOMIC = re.compile(r"ds_(?P<op>\w+?)(?P<rtn>_rtn)?_(?P<t>b32|u32|i32|f32|b64|u64|i64|f64|f16|bf16)$")


def _atomic(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None] | None:
    name, type_ = m["op"], m["t"]
    if (name, type_) not in ATOMICS:
        return None
    size = 8 if type_.endswith("64") else 4
    words = size // 4
    at = 1 if m["rtn"] else 0
    regs: tuple[int, ...] = ()
    if m["rtn"]:
        first = a.rows(0, words, write=True)
        a.writes.clear()
        regs = tuple(range(first, first + words))
    n = a.rows(at, 1)
    data = [a.rows(i, words) for i in range(at + 1, len(a))]
    offset, op = a.number("offset"), a.op
    if len(data) != (2 if name == "cmpst" else 1):
        raise a.fail("wrong number of data operands")

    def run(w: Wave) -> None:
        if not w.exec:
            launch_load(w, Flight(line, op, "lgkmcnt", (), 0, None))
            return
        lds, lanes = w.group.lds, _LANE[w.mask]
        lds.by = line
        where = w.V[n][w.mask].astype(np.int64) + offset & 0xFFFFFFFF
        places = lds.granules(where, size, lanes, True)
        g = places.each
        if not lds.valid[g].all():
            i = int(np.argmin(lds.valid[g].all(axis=1)))
            raise RunError(
                f"lane {int(lanes[i])} updates byte {int(where[i])} of LDS, which nobody has written", rule="undefined"
            )
        me = np.uint32(1 << w.index)
        if not lds.atomics[g].any():
            lds.note_read(places, me, lanes)
        values = [np.stack([w.V[r][w.mask] for r in range(d, d + words)], axis=1) for d in data]
        old = apply_atomic(lds, where, name, type_, values)
        lds.readers[places.once] &= ~me
        lds.mark(places.once, "atomic", me)
        w.group.count.lds(where, size, lanes, True)
        done = deliver(w, regs, old, w.exec) if regs else None
        f = Flight(line, op, "lgkmcnt", regs, w.exec, done)
        f.touched = ([places.once], "atomic")
        launch_load(w, f)

    return run


def decode_lds(a: Access, line: int) -> Callable[[Wave], None] | None:
    """The function that executes a ``ds_`` instruction, or None."""
    if a.base in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
        return decode_crossbar(a, line)
    if m := _READ.match(a.base):
        return _read(a, m, line)
    if m := _WRITE.match(a.base):
        return _write(a, m, line)
    if m := _ATOMIC.match(a.base):
        return _atomic(a, m, line)
    return (lambda w: None) if a.base == "ds_nop" else None
