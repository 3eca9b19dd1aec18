# SPDX-License-Identifier: MIT
"""Instructions on global memory and scratch: global, flat and buffer accesses, atomics, loads straight into LDS.

A buffer access outside its descriptor reads 0 or writes nothing, dword by dword; one that the descriptor allows and no
allocation holds is an error, as it would be a fault or silent corruption on hardware.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Vector Memory Operations", "Buffer Addressing", "Flat
Memory Instructions", "Buffer Resource Descriptor", "Range checking". What NUM_RECORDS counts on GFX9 (bytes, or records
where an index goes with a stride): Mesa, src/amd/common/ac_descriptors.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdna.run.access import Access
from cdna.run.errors import RunError
from cdna.run.in_flight import deliver, issue_load, issue_store, narrow, overlapping, unless_off
from cdna.run.memory import Note, apply_atomic, scatter
from cdna.run.operands import PRIVATE_BASE, SHARED_BASE
from cdna.run.state import DEFINED, M0, UNDEFINED, UNWRITTEN, Flight, Run, Wave, bits_of, lanes_of

__all__ = []

_FOUR_GB = 1 << 32


@dataclass(slots=True)
class _Where:
    """Addresses (int64) of the active lanes.

    ``allowed(n)`` says for each lane whether its first n bytes lie inside the buffer's range; None where there is no
    descriptor. ``aperture`` is ``lds`` or ``scratch`` (addresses are then offsets), ``mixed`` for flat addresses that
    are not all global, or empty. ``chosen`` are the lanes that a part stands for.
    """

    addresses: Any
    lanes: Any
    allowed: Callable[[int], Any] | None = None
    aperture: str = ""
    chosen: Any = None

    def keep(self, which: Any) -> _Where:
        """Return the part of some lanes."""
        return _Where(self.addresses[which], self.lanes[which], None, self.aperture, which)

    def split(self) -> Iterator[_Where]:
        """Yield parts that each lie in one aperture."""
        if self.aperture != "mixed":
            yield self
            return
        for name, base in (("lds", SHARED_BASE), ("scratch", PRIVATE_BASE)):
            inside = (self.addresses >= base) & (self.addresses < base + _FOUR_GB)
            if inside.any():
                yield _Where(self.addresses[inside] - base, self.lanes[inside], None, name, inside)
        rest = (self.addresses < SHARED_BASE) | (self.addresses >= PRIVATE_BASE + _FOUR_GB)
        if rest.any():
            yield _Where(self.addresses[rest], self.lanes[rest], None, "", rest)


def _flat_place(a: Access, first: int, flat: bool, after: int | None = None) -> Callable[[Wave], _Where]:
    """Return where ``v[0:1], off`` or ``v0, s[2:3]`` leads; ``after`` is the scalar operand's place if data stands
    between them.
    """
    at = after if after is not None else len(a) - 1
    o = a.take(first)
    offset = a.number("offset")
    if flat or a.take(at).kind == "off":
        n = a.rows(first, 2)

        def wide(w: Wave) -> _Where:
            addresses = (w.active(n).astype(np.int64) | w.active(n + 1).astype(np.int64) << 32) + offset
            mixed = flat and ((addresses >= SHARED_BASE) & (addresses < PRIVATE_BASE + _FOUR_GB)).any()
            return _Where(addresses, w.lanes, aperture="mixed" if mixed else "")

        return wide
    if o.kind != "v":
        raise a.fail(f"{o.text} cannot be an address")
    n, base = a.rows(first, 1), a.s64(at)

    def short(w: Wave) -> _Where:
        start = base(w) + offset
        return _Where(w.active(n).astype(np.int64) + (start - (1 << 64) if start >> 63 == 1 else start), w.lanes)

    return short


def _scratch_place(a: Access, first: int) -> Callable[[Wave], _Where]:
    """Return where ``off, s32``, ``v0, off`` or both lead: bytes from the start of the lane's own scratch."""
    at = len(a) - 1 if a.base.startswith("scratch_load") else 2
    offset = a.number("offset")
    n = None if a.take(first).kind == "off" else a.rows(first, 1)
    base = None if a.take(at).kind == "off" else a.s32(at)

    def place(w: Wave) -> _Where:
        lanes = w.lanes
        start = offset + (base(w) if base else 0)
        where = np.full(len(lanes), start, np.int64)
        if n is not None:
            where = where + w.V[n][lanes]
        return _Where(where, lanes, aperture="scratch", chosen=np.ones(len(lanes), np.bool_))

    return place


def _buffer_place(a: Access, first: int) -> Callable[[Wave], _Where]:
    """Return where a buffer access leads: a descriptor in four scalar registers, an offset or index in vector
    registers, a scalar offset.
    """
    o = a.take(first)
    offset, offen, idxen = a.number("offset"), "offen" in a.mods, "idxen" in a.mods
    a.used |= {"offen", "idxen"}
    if (o.kind == "off") == (offen or idxen):
        raise a.fail("an address register goes with offen or idxen")
    n = a.rows(first, int(offen) + int(idxen)) if offen or idxen else 0
    r = a.take(first + 1)
    if r.kind != "s" or r.count != 4:
        raise a.fail("the descriptor is four scalar registers")
    low, high = a.s64_at(r.index), a.s64_at(r.index + 2)
    soffset = a.s32(first + 2)

    def place(w: Wave) -> _Where:
        d0, d1 = low(w), high(w)
        base, stride, records = d0 & (1 << 48) - 1, d0 >> 48 & 0x3FFF, d1 & 0xFFFFFFFF
        if d0 >> 63 or d1 >> 55 & 1:
            raise RunError("a buffer descriptor with swizzling or thread ids is not supported", rule="unknown")
        lanes = w.lanes
        within = np.full(len(lanes), offset, np.int64)
        if offen:
            within += w.V[n + idxen][lanes]
        scalar = soffset(w)
        start = base + scalar
        if not (idxen and stride):  # raw: NUM_RECORDS counts bytes; a stride alone (cache swizzle) bounds nothing
            left = records - scalar
            return _Where(within + start, lanes, lambda size: within + size <= left)
        index = w.V[n][lanes].astype(np.int64)
        inside = index < records
        return _Where(within + index * stride + start, lanes, lambda size: inside & (within + size <= stride))

    return place


def _read_global(w: Wave, at: _Where, size: int, line: int, shared: bool) -> Any:
    """Return uint32 ``[active lanes, words]``; what the descriptor forbids is 0. ``shared`` is a load with sc1."""
    if at.aperture:
        return _read_aperture(w, at, size, line, shared)
    memory, races = w.group.memory, w.group.races
    note: Note | None = None
    if races is not None:
        note = lambda a, where, n: races.read(w.group.number, a, where, n, line, shared)  # noqa: E731
    if w.vm and len(at.lanes):
        low = int(at.addresses.min())
        overlapping(w, ("memory", low, int(at.addresses.max()) + size - 1))
    if at.allowed is None:
        return memory.read(at.addresses, size, at.lanes, note)
    words = max(1, size // 4)
    out = np.zeros((len(at.lanes), words), np.uint32)
    whole = at.allowed(size)
    if whole.any():
        out[whole] = memory.read(at.addresses[whole], size, at.lanes[whole], note)
    if words > 1 and not whole.all():
        for j in range(words):
            part = at.allowed(4 * j + 4) & ~whole
            if part.any():
                out[part, j] = memory.read(at.addresses[part] + 4 * j, 4, at.lanes[part], note)[:, 0]
    return out


def _read_aperture(w: Wave, at: _Where, size: int, line: int, shared: bool) -> Any:
    out = np.zeros((len(at.lanes), max(1, size // 4)), np.uint32)
    for part in at.split():
        if part.aperture == "lds":
            out[part.chosen] = w.group.lds.read(w.index, part.addresses, size, part.lanes)
        elif part.aperture == "scratch":
            out[part.chosen] = _read_scratch(w, part, size)
        else:
            out[part.chosen] = _read_global(w, part, size, line, shared)
    return out


def _check_scratch(w: Wave, at: _Where, size: int, verb: str) -> Any:
    limit = w.scratch.shape[1]
    bad = (at.addresses < 0) | (at.addresses + size > limit)
    if bad.any():
        i = int(np.argmax(bad))
        raise RunError(
            f"lane {int(at.lanes[i])} {verb} {size} bytes at byte {int(at.addresses[i])} of its scratch, "
            f"which has {limit}",
            rule="bounds",
        )
    return at.addresses[:, None] + np.arange(size)


def _read_scratch(w: Wave, at: _Where, size: int) -> Any:
    where = _check_scratch(w, at, size, "reads")
    rows = at.lanes[:, None]
    written = w.scratch_state[rows, where] != UNWRITTEN
    if not written.all():
        i = int(np.argmin(written.all(axis=1)))
        raise RunError(
            f"lane {int(at.lanes[i])} reads byte {int(at.addresses[i])} of its scratch, which it has not written",
            rule="undefined",
        )
    raw = np.ascontiguousarray(w.scratch[rows, where])
    return raw.view(np.uint32) if size >= 4 else raw.view(f"u{size}").astype(np.uint32)


def _write_scratch(w: Wave, at: _Where, values: Any, size: int, registers: range | None = None) -> None:
    """Write the bytes of the lanes; ``registers`` are those of a spill, which may hold something undefined."""
    where = _check_scratch(w, at, size, "writes")
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(at.lanes), -1)[:, :size]
    w.scratch[at.lanes[:, None], where] = raw
    state: Any = DEFINED
    if registers is not None and any(w.exec & ~w.valid[r] for r in registers):
        known = np.stack([lanes_of(w.valid[r])[at.lanes] for r in registers], axis=1)
        state = np.repeat(np.where(known, DEFINED, UNDEFINED), min(size, 4), axis=1)
    w.scratch_state[at.lanes[:, None], where] = state


def _undefined_words(w: Wave, at: _Where, size: int, words: int) -> tuple[int, ...]:
    """Return for each word of a load from scratch the mask of lanes in which it copies something undefined."""
    state = w.scratch_state[at.lanes[:, None], at.addresses[:, None] + np.arange(size)]
    bad = (state == UNDEFINED).reshape(len(at.lanes), words, -1).any(axis=2)
    lanes = np.zeros((64, words), np.bool_)
    lanes[at.lanes] = bad
    return tuple(bits_of(lanes[:, j]) for j in range(words)) if bad.any() else ()


def _pieces(w: Wave, at: _Where, values: Any, size: int) -> list[tuple[Any, Any, Any, int]]:
    """Return where a store goes, checked: allocation, offsets, values, bytes."""
    memory = w.group.memory
    if at.allowed is None:
        return [(*p, size) for p in memory.write(at.addresses, values, size, at.lanes)]
    out: list[tuple[Any, Any, Any, int]] = []
    whole = at.allowed(size)
    if whole.any():
        out += [(*p, size) for p in memory.write(at.addresses[whole], values[whole], size, at.lanes[whole])]
    if size > 4 and not whole.all():
        for j in range(size // 4):
            part = at.allowed(4 * j + 4) & ~whole
            if part.any():
                found = memory.write(at.addresses[part] + 4 * j, values[part, j : j + 1], 4, at.lanes[part])
                out += [(*p, 4) for p in found]
    return out


_NARROW = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "byte": 1, "short": 2}
_LOAD = re.compile(
    r"(?P<w>global|flat|buffer|scratch)_load_(?P<lds>lds_)?(?:dword(?:x(?P<n>[234]))?"
    r"|(?P<s>[us]byte|[us]short|short)(?P<d16>_d16(?:_hi)?)?)$"
)
_STORE = re.compile(
    r"(?P<w>global|flat|buffer|scratch)_store_(?:dword(?:x(?P<n>[234]))?|(?P<s>byte|short)(?P<hi>_d16_hi)?)$"
)
_ATOMIC = re.compile(r"(?P<w>global|flat|buffer)_atomic_(?P<op>[a-z_]+?)(?P<t>_x2|_f32|_f64|_f16|_bf16)?$")
# Name of an atomic -> what it does (see ATOMICS), and the type of its 32-bit form.
_NAMES = {
    **{_name: f"{_name} u32" for _name in ("add", "sub", "inc", "dec")},
    **{_name: f"{_name} b32" for _name in ("and", "or", "xor", "swap")},
    "smin": "min i32",
    "umin": "min u32",
    "smax": "max i32",
    "umax": "max u32",
    "cmpswap": "cmpst b32",
}


def _atomic_kind(op: str, suffix: str | None) -> tuple[str, str] | None:
    if suffix in (None, "_x2"):
        if op not in _NAMES:
            return None
        name, type_ = _NAMES[op].split()
        return name, type_.replace("32", "64") if suffix else type_
    if op in ("add", "min", "max") and suffix in ("_f32", "_f64"):
        return op, suffix[1:]
    return (op, suffix[1:]) if op == "pk_add" and suffix in ("_f16", "_bf16") else None


def _place(a: Access, which: str, first: int) -> Callable[[Wave], _Where]:
    """Return what computes the addresses; ``first`` is the operand that holds them."""
    if which == "buffer":
        return _buffer_place(a, first)
    if which == "scratch":
        return _scratch_place(a, first)
    return _flat_place(a, first, which == "flat")


def _load(a: Access, m: re.Match[str], line: int) -> Run:
    size = _NARROW[m["s"]] if m["s"] else 4 * int(m["n"] or 1)
    words = max(1, size // 4)
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"
    to_lds, shared = bool(m["lds"]) or "lds" in a.mods, "sc1" in a.mods
    a.used |= {"lds", "glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    finish = narrow(m["s"], m["d16"]) if m["s"] else None
    if to_lds:
        return _load_to_lds(a, m["w"], size, line)
    regs = a.loaded(0, words)
    place = _place(a, m["w"], 1)

    def run(w: Wave) -> None:
        at = place(w)
        w.group.lds.by = line
        values = _read_global(w, at, size, line, shared)
        if not at.aperture:
            w.group.count.memory(at.addresses if at.allowed is None else at.addresses[at.allowed(4)], size, False)
        undefined = _undefined_words(w, at, size, words) if at.aperture == "scratch" else ()
        flight = Flight(line, op, counter, regs, w.exec, deliver(w, regs, values, w.exec, finish), undefined=undefined)
        issue_load(w, flight)

    return unless_off(run, line, op, counter)


def _load_to_lds(a: Access, which: str, size: int, line: int) -> Run:
    place, op, offset, shared = _place(a, which, 0), a.op, a.number("offset"), "sc1" in a.mods
    a.sreads.append(M0)

    def run(w: Wave) -> None:
        at, lds = place(w), w.group.lds
        values = _read_global(w, at, size, line, shared)
        w.group.count.memory(at.addresses, size, False)
        target = at.lanes * max(4, size) + (w.s[M0] & 0xFFFF) + offset
        g = lds.granules(target, size, at.lanes, True).each
        lds.valid[g] = False
        entry = (op, line, set(g.ravel().tolist()))
        lds.loading.append(entry)

        def done() -> None:
            lds.loading.remove(entry)
            lds.by = line
            lds.write(w.index, target, values, size, at.lanes)

        issue_load(w, Flight(line, op, "vmcnt", (), w.exec, done))

    return unless_off(run, line, op, "vmcnt")


def _store(a: Access, m: re.Match[str], line: int) -> Run:
    size = _NARROW[m["s"]] if m["s"] else 4 * int(m["n"] or 1)
    words, high = max(1, size // 4), bool(m["hi"])
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"
    a.used |= {"glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    data, shared = 0 if m["w"] == "buffer" else 1, "sc1" in a.mods
    first = a.rows(data, words)
    place = _place(a, m["w"], 1 - data if m["w"] != "buffer" else 1)
    # A spill at a fixed place: one half of a pair may be undefined, or a register that the caller never wrote.
    a.copies = spill = m["w"] == "scratch" and len(a.reads) == words
    registers = range(first, first + words) if spill else None

    def run(w: Wave) -> None:
        at = place(w)
        values = w.active_rows(first, words)
        if high:
            values = values >> np.uint32(16)
        parts: list[tuple[Any, Any, Any, int]] = []
        for part in at.split():
            these = values if part.chosen is None else values[part.chosen]
            if part.aperture == "lds":
                w.group.lds.by = line
                w.group.lds.write(w.index, part.addresses, these, size, part.lanes)
            elif part.aperture == "scratch":
                _write_scratch(w, part, these, size, registers)
            else:
                parts += _pieces(w, part, these, size)
                within = part.addresses if part.allowed is None else part.addresses[part.allowed(4)]
                w.group.count.memory(within, size, True)

        def done() -> None:
            group = w.group
            for a_, at_, v, n in parts:
                if group.races is not None:
                    try:
                        group.races.write(group.number, a_, at_, n, line, shared, v)
                    except RunError as e:  # it may be another line that waits for the store
                        raise RunError(f"line {line}: {op} ({group!r}, wave {w.index}): {e}", line, e.rule) from None
                scatter(a_, at_, v, n)

        f = Flight(line, op, counter, (), w.exec, done)
        if parts:
            f.region = (
                "memory",
                min(p.base + int(o.min()) for p, o, _, _ in parts),
                max(p.base + int(o.max()) + n - 1 for p, o, _, n in parts),
            )
        issue_store(w, f)

    return unless_off(run, line, op, counter)


def _atomic(a: Access, m: re.Match[str], line: int) -> Run | None:
    kind = _atomic_kind(m["op"], m["t"])
    if kind is None:
        return None
    name, type_ = kind
    words = 2 if type_.endswith("64") else 1
    size, buffer = 4 * words, m["w"] == "buffer"
    returns = "sc0" in a.mods or "glc" in a.mods
    a.used |= {"glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    taken = words * (2 if name == "cmpst" else 1)
    address = 1 if buffer or returns else 0
    data = a.rows(0 if buffer else address + 1, taken)
    regs: tuple[int, ...] = ()
    if returns:
        regs = tuple(range(data, data + words)) if buffer else a.loaded(0, words)
    place = _buffer_place(a, 1) if buffer else _flat_place(a, address, m["w"] == "flat", after=address + 2)
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"

    def run(w: Wave) -> None:
        at = place(w)
        values = w.active_rows(data, taken)
        old = np.zeros((len(at.lanes), words), np.uint32)
        for part in at.split():
            chosen = np.arange(len(at.lanes)) if part.chosen is None else np.flatnonzero(part.chosen)
            if part.aperture:
                raise RunError("atomics on LDS or scratch through a flat address are not supported", rule="unknown")
            if part.allowed is not None:
                allowed = part.allowed(size)
                chosen = chosen[allowed]
                part = part.keep(allowed)
            if not len(part.lanes):
                continue
            overlapping(w, ("memory", int(part.addresses.min()), int(part.addresses.max()) + size - 1))
            w.group.count.memory(part.addresses, size, True)
            here = values[chosen]
            split = [here[:, words:], here[:, :words]] if name == "cmpst" else [here]
            for lanes in w.group.memory.one_place(part.addresses, size, part.lanes):
                a_, offsets, which = lanes
                if w.group.races is not None:
                    w.group.races.atomic(w.group.number, a_, offsets, size, line, returns)
                old[chosen[which]] = apply_atomic(a_, offsets, name, type_, [s[which] for s in split])
        done = deliver(w, regs, old, w.exec) if regs else None
        issue_load(w, Flight(line, op, counter, regs, w.exec, done))

    return unless_off(run, line, op, counter)


def _cache(name: str, agent: bool, op: str, line: int) -> Run:
    """Write back or invalidate caches; with sc1 it is one half of a release or an acquire between workgroups."""

    def run(w: Wave) -> None:
        races = w.group.races
        if name == "buffer_wbl2":
            issue_store(w, Flight(line, op, "vmcnt", (), 0, None))
            if agent and races is not None:
                races.write_back(w.group.number)
        elif name == "buffer_inv" and agent and races is not None:
            races.invalidate(w.group.number)

    return run


def decode_global(a: Access, line: int) -> Run | None:
    """Return the function that executes a global, flat, buffer or scratch instruction, or None."""
    name = a.base
    if name in ("buffer_inv", "buffer_wbl2", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_invl2"):
        a.used |= {"sc0", "sc1", "nt", "scc"}
        return _cache(name, "sc1" in a.mods, a.op, line)
    if m := _LOAD.match(name):
        return _load(a, m, line)
    if m := _STORE.match(name):
        return _store(a, m, line)
    if m := _ATOMIC.match(name):
        return _atomic(a, m, line)
    return None
