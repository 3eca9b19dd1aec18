# SPDX-License-Identifier: MIT
"""Instructions on global memory: global, flat, buffer and scratch accesses, their atomics, loads straight into LDS.

A buffer access outside its descriptor reads 0 or writes nothing, dword by dword; one that the descriptor allows and no
allocation holds is an error, as it would be a fault or silent corruption on hardware.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Vector Memory Operations", "Flat Memory Instructions";
range checks: the same, "Buffer Resource Descriptor" and "Range checking".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.addresses import Where, buffer_place, flat_place, scratch_place
from cdna.run.memory.allocations import scatter
from cdna.run.memory.atomics import apply_atomic
from cdna.run.memory.global_access import pieces, read_global, write_scratch
from cdna.run.memory.in_flight import launch_load, launch_store, overlapping
from cdna.run.memory.results import deliver, narrow
from cdna.run.vector.access import Access
from cdna.run.wave import M0, Flight, Wave

__all__ = ["decode_global"]

_NARROW = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "byte": 1, "short": 2}
_LOAD = re.compile(
    r"(?P<w>global|flat|buffer|scratch)_load_(?P<lds>lds_)?(?:dword(?:x(?P<n>[234]))?"
    r"|(?P<s>[us]byte|[us]short|short)(?P<d16>_d16(?:_hi)?)?)$"
)
_STORE = re.compile(
    r"(?P<w>global|flat|buffer|scratch)_store_(?:dword(?:x(?P<n>[234]))?|(?P<s>byte|short)(?P<hi>_d16_hi)?)$"
)
_ATOMIC = re.compile(r"(?P<w>global|flat|buffer)_atomic_(?P<op>[a-z_]+?)(?P<t>_x2|_f32|_f64|_f16|_bf16)?$")
_NAMES = {
    "add": ("add", "u32"),
    "sub": ("sub", "u32"),
    "smin": ("min", "i32"),
    "umin": ("min", "u32"),
    "smax": ("max", "i32"),
    "umax": ("max", "u32"),
    "and": ("and", "b32"),
    "or": ("or", "b32"),
    "xor": ("xor", "b32"),
    "inc": ("inc", "u32"),
    "dec": ("dec", "u32"),
    "swap": ("swap", "b32"),
    "cmpswap": ("cmpst", "b32"),
}


def _atomic_kind(op: str, suffix: str | None) -> tuple[str, str] | None:
    if suffix in (None, "_x2"):
        found = _NAMES.get(op)
        return (found[0], found[1][0] + ("64" if suffix else "32")) if found else None
    if op in ("add", "min", "max") and suffix in ("_f32", "_f64"):
        return op, suffix[1:]
    return (op, suffix[1:]) if op == "pk_add" and suffix in ("_f16", "_bf16") else None


def _place(a: Access, which: str, first: int) -> Callable[[Wave], Where]:
    """How the addresses come about; ``first`` is the operand that holds them."""
    if which == "buffer":
        return buffer_place(a, first)
    if which == "scratch":
        return scratch_place(a, first)
    return flat_place(a, first, which == "flat")


def _load(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None]:
    size = _NARROW[m["s"]] if m["s"] else 4 * int(m["n"] or 1)
    words = max(1, size // 4)
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"
    to_lds, shared = bool(m["lds"]) or "lds" in a.mods, "sc1" in a.mods
    a.used |= {"lds", "glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    finish = narrow(m["s"], m["d16"]) if m["s"] else None
    if to_lds:
        return _load_to_lds(a, m["w"], size, line)
    first = a.rows(0, words, write=True)
    a.writes.clear()
    regs = tuple(range(first, first + words))
    place = _place(a, m["w"], 1)

    def run(w: Wave) -> None:
        if not w.exec:
            launch_load(w, Flight(line, op, counter, (), 0, None))
            return
        at = place(w)
        w.group.lds.by = line
        values = read_global(w, at, size, line, shared)
        if not at.aperture:
            w.group.count.memory(at.addresses if at.allowed is None else at.addresses[at.allowed(4)], size, False)
        launch_load(w, Flight(line, op, counter, regs, w.exec, deliver(w, regs, values, w.exec, finish)))

    return run


def _load_to_lds(a: Access, which: str, size: int, line: int) -> Callable[[Wave], None]:
    place, op, offset, shared = _place(a, which, 0), a.op, a.number("offset"), "sc1" in a.mods
    a.sreads.append(M0)

    def run(w: Wave) -> None:
        if not w.exec:
            launch_load(w, Flight(line, op, "vmcnt", (), 0, None))
            return
        at, lds = place(w), w.group.lds
        values = read_global(w, at, size, line, shared)
        w.group.count.memory(at.addresses, size, False)
        target = at.lanes * max(4, size) + (w.s[M0] & 0xFFFF) + offset
        g = lds.granules(target, size, at.lanes, True).each
        lds.valid[g] = False
        entry: tuple[Any, Any] = (None, None)

        def done() -> None:
            lds.loading.remove(entry)
            lds.by = line
            lds.write(w, target, values, size, at.lanes)

        f = Flight(line, op, "vmcnt", (), w.exec, done)
        entry = (f, set(g.ravel().tolist()))
        lds.loading.append(entry)
        launch_load(w, f)

    return run


def _store(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None]:
    size = _NARROW[m["s"]] if m["s"] else 4 * int(m["n"] or 1)
    words, high = max(1, size // 4), bool(m["hi"])
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"
    a.used |= {"glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    data, shared = 0 if m["w"] == "buffer" else 1, "sc1" in a.mods
    first = a.rows(data, words)
    place = _place(a, m["w"], 1 - data if m["w"] != "buffer" else 1)

    def run(w: Wave) -> None:
        if not w.exec:
            launch_store(w, Flight(line, op, counter, (), 0, None))
            return
        at = place(w)
        columns = [w.V[r] if w.full else w.V[r][w.mask] for r in range(first, first + words)]
        values = np.stack(columns, axis=1)
        if high:
            values = values >> np.uint32(16)
        parts: list[tuple[Any, Any, Any, int]] = []
        for part in at.split():
            these = values if part.chosen is None else values[part.chosen]
            if part.aperture == "lds":
                w.group.lds.by = line
                w.group.lds.write(w, part.addresses, these, size, part.lanes)
            elif part.aperture == "scratch":
                write_scratch(w, part, these, size)
            else:
                parts += pieces(w, part, these, size)
                within = part.addresses if part.allowed is None else part.addresses[part.allowed(4)]
                w.group.count.memory(within, size, True)

        def done() -> None:
            group = w.group
            for a_, at_, v, n in parts:
                if group.races is not None:
                    try:
                        group.races.write(group, a_, at_, n, line, shared, v)
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
        launch_store(w, f)

    return run


def _atomic(a: Access, m: re.Match[str], line: int) -> Callable[[Wave], None] | None:
    kind = _atomic_kind(m["op"], m["t"])
    if kind is None:
        return None
    name, type_ = kind
    words = 2 if type_.endswith("64") else 1
    size, buffer = 4 * words, m["w"] == "buffer"
    returns = "sc0" in a.mods or "glc" in a.mods
    a.used |= {"glc", "slc", "scc", "sc0", "sc1", "nt", "offen", "idxen"}
    taken = words * (2 if name == "cmpst" else 1)
    regs: tuple[int, ...] = ()
    address = 1 if buffer or returns else 0
    data = a.rows(0 if buffer else address + 1, taken)
    if returns:
        first = data if buffer else a.rows(0, words, write=True)
        a.writes.clear()
        regs = tuple(range(first, first + words))
    place = buffer_place(a, 1) if buffer else flat_place(a, address, m["w"] == "flat", after=address + 2)
    op, counter = a.op, "flat" if m["w"] == "flat" else "vmcnt"

    def run(w: Wave) -> None:
        if not w.exec:
            launch_load(w, Flight(line, op, counter, (), 0, None))
            return
        at = place(w)
        values = np.stack([w.V[r][w.mask] for r in range(data, data + taken)], axis=1)
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
                    w.group.races.atomic(w.group, a_, offsets, size, line, returns)
                old[chosen[which]] = apply_atomic(a_, offsets, name, type_, [s[which] for s in split])
        done = deliver(w, regs, old, w.exec) if regs else None
        launch_load(w, Flight(line, op, counter, regs, w.exec, done))

    return run


def _cache(name: str, agent: bool, op: str, line: int) -> Callable[[Wave], None]:
    """Writing back or invalidating caches; with sc1 it is one half of a release or an acquire between workgroups."""

    def run(w: Wave) -> None:
        races = w.group.races
        if name == "buffer_wbl2":
            launch_store(w, Flight(line, op, "vmcnt", (), 0, None))
            if agent and races is not None:
                races.write_back(w.group)
        elif name == "buffer_inv" and agent and races is not None:
            races.invalidate(w.group)

    return run


def decode_global(a: Access, line: int) -> Callable[[Wave], None] | None:
    """The function that executes a global, flat, buffer or scratch instruction, or None."""
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
