# SPDX-License-Identifier: MIT
"""Instructions of the LDS: reads, writes, atomics, and data moved between lanes by its crossbar.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "DS Instructions".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cdna.run.access import Access
from cdna.run.errors import RunError
from cdna.run.in_flight import deliver, issue_load, issue_store, narrow, unless_off
from cdna.run.memory import ATOMICS, apply_atomic
from cdna.run.state import LANE, Flight, Run, Wave, lanes_of

__all__ = []

_READ = re.compile(
    r"ds_read(?:_(?P<n>u8|i8|u16|i16|b32|b64|b96|b128)(?P<d16>_d16(?:_hi)?)?|2(?P<st>st64)?_(?P<m>b32|b64))$"
)
_WRITE = re.compile(r"ds_write(?:_(?P<n>b8|b16|b32|b64|b96|b128)(?P<hi>_d16_hi)?|2(?P<st>st64)?_(?P<m>b32|b64))$")
_BITS = re.compile(r"\d+$")


def _size(name: str) -> int:
    return int(_BITS.search(name)[0]) // 8  # type: ignore[index]


def _read(a: Access, m: re.Match[str], line: int) -> Run:
    size = _size(m["n"] or m["m"])
    words = max(1, size // 4)
    regs = a.loaded(0, words * (1 if m["n"] else 2))
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
        lds, lanes = w.group.lds, w.lanes
        lds.by = line
        base = w.active(n).astype(np.int64)
        parts, touched = [], []
        for offset in offsets:
            at = base + offset & 0xFFFFFFFF  # a negative base plus an offset is an address too
            parts.append(lds.read(w.index, at, size, lanes))
            touched.append(lds.last)
            w.group.count.lds(at, size, lanes, False)
        values = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        f = Flight(line, op, "lgkmcnt", regs, w.exec, deliver(w, regs, values, w.exec, finish))
        f.touched = (touched, "read")
        issue_load(w, f)

    return unless_off(run, line, op, "lgkmcnt")


def _write(a: Access, m: re.Match[str], line: int) -> Run:
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
        lds, lanes = w.group.lds, w.lanes
        lds.by = line
        base = w.active(n).astype(np.int64)
        touched = []
        for first, offset in zip(firsts, offsets, strict=True):
            values = w.active_rows(first, words)
            if high:
                values = values >> np.uint32(16)
            at = base + offset & 0xFFFFFFFF  # a negative base plus an offset is an address too
            lds.write(w.index, at, values, size, lanes)
            touched.append(lds.last)
            w.group.count.lds(at, size, lanes, True)
        f = Flight(line, op, "lgkmcnt", (), w.exec, None)
        f.touched = (touched, "write")
        issue_store(w, f)

    return unless_off(run, line, op, "lgkmcnt")


_ATOMIC = re.compile(r"ds_(?P<op>\w+?)(?P<rtn>_rtn)?_(?P<t>b32|u32|i32|f32|b64|u64|i64|f64|f16|bf16)$")


def _atomic(a: Access, m: re.Match[str], line: int) -> Run | None:
    name, type_ = m["op"], m["t"]
    if (name, type_) not in ATOMICS:
        return None
    size = 8 if type_.endswith("64") else 4
    words = size // 4
    at = 1 if m["rtn"] else 0
    regs = a.loaded(0, words) if m["rtn"] else ()
    n = a.rows(at, 1)
    data = [a.rows(i, words) for i in range(at + 1, len(a))]
    offset, op = a.number("offset"), a.op
    if len(data) != (2 if name == "cmpst" else 1):
        raise a.fail("wrong number of data operands")

    def run(w: Wave) -> None:
        lds, lanes = w.group.lds, w.lanes
        lds.by = line
        where = w.active(n).astype(np.int64) + offset & 0xFFFFFFFF
        places = lds.granules(where, size, lanes, True)
        g = places.each
        if not lds.valid[g].all():
            i = int(np.argmin(lds.valid[g].all(axis=1)))
            raise RunError(
                f"lane {int(lanes[i])} updates byte {int(where[i])} of LDS, which nobody has written", rule="undefined"
            )
        if not lds.atomics[g].any():
            lds.note_read(places, w.index, lanes)
        values = [w.active_rows(d, words) for d in data]
        old = apply_atomic(lds, where, name, type_, values)
        lds.readers[places.once] &= ~np.uint32(1 << w.index)
        lds.mark(places.once, "atomic", w.index)
        w.group.count.lds(where, size, lanes, True)
        done = deliver(w, regs, old, w.exec) if regs else None
        f = Flight(line, op, "lgkmcnt", regs, w.exec, done)
        f.touched = ([places.once], "atomic")
        issue_load(w, f)

    return unless_off(run, line, op, "lgkmcnt")


def decode_lds(a: Access, line: int) -> Run | None:
    """Return the function that executes a ``ds_`` instruction, or None."""
    if a.base in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
        return _decode_crossbar(a, line)
    if m := _READ.match(a.base):
        return _read(a, m, line)
    if m := _WRITE.match(a.base):
        return _write(a, m, line)
    if m := _ATOMIC.match(a.base):
        return _atomic(a, m, line)
    return (lambda w: None) if a.base == "ds_nop" else None


def _swizzle(offset: str) -> Any:
    """Return the source lane of each lane for ds_swizzle: quad mode (bit 15), or bit masks within 32 lanes."""
    if m := re.fullmatch(r"swizzle\((\w+),(.*)\)", offset.replace(" ", "")):
        mode, rest = m[1], m[2]
        if mode == "QUAD_PERM":
            code = 0x8000 | sum(int(x) << 2 * i for i, x in enumerate(rest.split(",")))
        elif mode == "BITMASK_PERM":
            mask = rest.strip('"')
            keep = sum((c in "pi") << (4 - i) for i, c in enumerate(mask))
            ones = sum((c == "1") << (4 - i) for i, c in enumerate(mask))
            flip = sum((c == "i") << (4 - i) for i, c in enumerate(mask))
            code = keep | ones << 5 | flip << 10
        else:
            group, *more = (int(x) for x in rest.split(","))
            one = {
                "BROADCAST": (32 - group, more[0] if more else 0, 0),
                "SWAP": (31, 0, group),
                "REVERSE": (31, 0, group - 1),
            }.get(mode)
            if one is None:
                raise RunError(f"ds_swizzle {offset}: unknown mode", rule="text")
            code = one[0] & 31 | one[1] << 5 | one[2] << 10
    else:
        code = int(offset, 0)
    if code & 0x8000:
        return (LANE & ~3) + (code >> 2 * (LANE & 3) & 3)
    keep, ones, flip = code & 31, code >> 5 & 31, code >> 10 & 31
    return (LANE & 32) + ((LANE & 31 & keep | ones) ^ flip)


def _decode_crossbar(a: Access, line: int) -> Run:
    """Decode ds_bpermute (pull), ds_permute (push), ds_swizzle: data moves between lanes, no LDS memory is used."""
    kind, op = a.base, a.op
    regs = a.loaded(0, 1)
    fixed = None
    if kind == "ds_swizzle_b32":
        a.used.add("offset")
        try:
            fixed = _swizzle(a.mods.get("offset", "0"))
        except (ValueError, IndexError):
            raise a.fail("the pattern makes no sense") from None
        n = address = a.take(1).index
        a.rows(1, 1)
        a.reads.pop()
        a.lane_reads.append(n)
    else:
        address = a.rows(1, 1)
        n = a.rows(2, 1)
        if kind == "ds_bpermute_b32":
            a.reads.pop()
            a.lane_reads.append(n)
    offset = a.number("offset") if fixed is None else 0

    def run(w: Wave) -> None:
        mask = w.mask
        if kind == "ds_permute_b32":
            out, defined = np.zeros(64, np.uint32), np.ones(64, np.bool_)
            target = (w.V[address].astype(np.int64) + offset >> 2) & 63
            out[target[mask]] = w.V[n][mask]
        else:
            source = fixed if fixed is not None else (w.V[address].astype(np.int64) + offset >> 2) & 63
            on = mask[source]
            # A lane that is switched off gives 0.
            out = np.where(on, w.V[n][source], np.uint32(0))
            defined = lanes_of(w.valid[n])[source] | ~on
        if not defined[mask].all():
            lane = int(np.argmax(mask & ~defined))
            raise RunError(f"lane {lane} takes v{n} from a lane where it is undefined", rule="undefined")
        done = deliver(w, regs, out[mask][:, None], w.exec)
        issue_load(w, Flight(line, op, "lgkmcnt", regs, w.exec, done))

    return run
