# SPDX-License-Identifier: MIT
"""Global memory as named allocations; reads, writes and atomic updates of bytes, in an allocation as in LDS.

Each argument's array gets a made-up address and guard gaps, so that an address that belongs to none of them is found
out. Arrays that share memory share an allocation. Atomics: lanes one after another, in the order of their numbers. The
hardware promises no order; a kernel whose result depends on it is not to be trusted.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "DS", "MUBUF" and "FLAT" atomics.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.arithmetic import bf16_to_f32
from cdna.run.errors import RunError

__all__ = []

_FIRST, _GUARD = 0x7F00_0000_0000, 1 << 20
_LARGEST_COPY = 1 << 30  # bytes
Note = Callable[["Allocation", Any, int], None]


class Allocation:
    """A run of bytes with a name.

    Attributes:
        name: of the argument.
        base, size: made-up address, and bytes.
        data: the bytes, filled up to a multiple of 16; of more than a gigabyte the caller's own, which need not all be
            in memory.
        copied: whether ``data`` is a copy.
        writable: False for a read-only array.
        loaded: whether something was read from it.
    """

    __slots__ = ("base", "bytes", "copied", "data", "dwords", "halves", "loaded", "name", "size", "writable")

    def __init__(self, name: str, base: int, content: Any, writable: bool) -> None:
        self.name, self.base, self.size, self.writable = name, base, len(content), writable
        self.loaded, self.copied = False, self.size <= _LARGEST_COPY
        if self.copied:
            self.data = np.zeros(-(-max(self.size, 1) // 16) * 16, np.uint8)
            self.data[: self.size] = content
        else:
            self.data = content
        self.bytes = self.data
        self.halves = self.data[: len(self.data) & ~1].view(np.uint16)
        self.dwords = self.data[: len(self.data) & ~3].view(np.uint32)

    def __repr__(self) -> str:
        return f"Allocation({self.name!r}, base=0x{self.base:x}, size={self.size})"


class Memory:
    """All allocations of a run, in the order of their addresses."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.bases: list[int] = []
        self.missing: list[str] = []  # pointers without a name that the caller left out: null
        self._next = _FIRST

    def add(self, name: str, content: Any, offset: int = 0, writable: bool = True) -> Allocation:
        """Add an allocation of the given bytes; ``offset`` is where the first of them lies in a 256-byte line."""
        made = Allocation(name, self._next + offset, content, writable)
        self.allocations.append(made)
        self.bases.append(made.base)
        self._next += (offset + made.size + _GUARD + 0xFFFF) & ~0xFFFF
        return made

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that an address lies in, or None."""
        i = bisect_right(self.bases, address) - 1
        if i >= 0 and address < self.bases[i] + self.allocations[i].size:
            return self.allocations[i]
        return None

    def locate(self, addresses: Any, size: int, lanes: Any, write: bool) -> tuple[Allocation, Any]:
        """Return the allocation that holds ``size`` bytes at every address (int64), and the offsets in it.

        Raises:
            RunError: an address outside every allocation, named with its lane; addresses in different allocations are
                handled by the caller lane by lane (``rule`` is then ``split``).
        """
        low = int(addresses.min())
        found = self.find(low)
        if found is not None and int(addresses.max()) + size <= found.base + found.size:
            if write and not found.writable:
                raise RunError(f"writes to {found.name}, which is read-only", rule="read-only")
            return found, addresses - found.base
        for lane, address in zip(lanes, addresses.tolist(), strict=True):
            a = self.find(address)
            if a is None or address + size > a.base + a.size:
                raise RunError(self.describe(address, size, int(lane), write), rule="bounds")
        raise RunError("lanes in different allocations", rule="split")

    def describe(self, address: int, size: int, lane: int, write: bool) -> str:
        """Return the message for an access outside of memory."""
        near = min(self.allocations, key=lambda a: max(a.base - address, address - a.base - a.size), default=None)
        where = "there is no memory"
        if self.missing and 0 <= address < 1 << 16:
            where = (
                f"a null pointer; {' and '.join(self.missing)} {'was' if len(self.missing) == 1 else 'were'} not given"
            )
        if near is not None and abs(address - near.base) < 1 << 40:
            offset = address - near.base
            where = f"that is byte {offset} of {near.name}, which has {near.size}"
        verb = "writes" if write else "reads"
        return f"lane {lane} {verb} {size} bytes at 0x{address & (1 << 64) - 1:x}: {where}"

    def read(self, addresses: Any, size: int, lanes: Any, note: Note | None = None) -> Any:
        """Read ``size`` bytes at each address: uint32 ``[n, size / 4]``, or ``[n, 1]`` for one or two bytes.

        ``note`` is called with each allocation that is read, the offsets in it and ``size``.
        """
        try:
            a, at = self.locate(addresses, size, lanes, False)
        except RunError as e:
            if e.rule != "split":
                raise
            parts = [self.read(addresses[i : i + 1], size, lanes[i : i + 1], note) for i in range(len(addresses))]
            return np.concatenate(parts)
        a.loaded = True
        if note is not None:
            note(a, at, size)
        return gather(a, at, size)

    def write(self, addresses: Any, values: Any, size: int, lanes: Any) -> list[tuple[Allocation, Any, Any]]:
        """Check a store and say where it goes: allocation, offsets, values of each piece."""
        try:
            a, at = self.locate(addresses, size, lanes, True)
        except RunError as e:
            if e.rule != "split":
                raise
            pieces: list[tuple[Allocation, Any, Any]] = []
            for i in range(len(addresses)):
                pieces += self.write(addresses[i : i + 1], values[i : i + 1], size, lanes[i : i + 1])
            return pieces
        return [(a, at, values)]

    def one_place(self, addresses: Any, size: int, lanes: Any) -> list[tuple[Allocation, Any, Any]]:
        """Check an update and say where it goes: allocation, offsets, lanes of each piece."""
        everyone = np.arange(len(addresses))
        try:
            pieces = [(*self.locate(addresses, size, lanes, True), everyone)]
        except RunError as e:
            if e.rule != "split":
                raise
            pieces = [
                (*self.locate(addresses[i : i + 1], size, lanes[i : i + 1], True), everyone[i : i + 1])
                for i in everyone
            ]
        for a, *_ in pieces:
            a.loaded = True
        return pieces


def gather(a: Any, at: Any, size: int) -> Any:
    """Read from an object with ``bytes``, ``halves`` and ``dwords`` at byte offsets, whatever their alignment."""
    if size >= 4:
        if not (at & 3).any():
            first = at >> 2
            if size == 4:
                return a.dwords[first][:, None]
            return a.dwords[first[:, None] + np.arange(size // 4)]
        raw = a.bytes[at[:, None] + np.arange(size)]
        return raw.view(np.uint32)
    if size == 1:
        return a.bytes[at].astype(np.uint32)[:, None]
    if not (at & 1).any():
        return a.halves[at >> 1].astype(np.uint32)[:, None]
    raw = a.bytes[at[:, None] + np.arange(2)]
    return raw.view(np.uint16).astype(np.uint32)


def scatter(a: Any, at: Any, values: Any, size: int) -> None:
    """Write uint32 ``[n, size / 4]`` (or the low bytes of ``[n, 1]``); of lanes that collide the last one stays."""
    if size >= 4:
        if not (at & 3).any():
            a.dwords[(at >> 2)[:, None] + np.arange(size // 4)] = values
            return
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(at), size)
        a.bytes[at[:, None] + np.arange(size)] = raw
        return
    if size == 1:
        a.bytes[at] = values[:, 0].astype(np.uint8)
    elif not (at & 1).any():
        a.halves[at >> 1] = values[:, 0].astype(np.uint16)
    else:
        a.bytes[at[:, None] + np.arange(2)] = (
            np.ascontiguousarray(values[:, 0].astype(np.uint16)).view(np.uint8).reshape(-1, 2)
        )


_TYPES = {"u32": np.uint32, "b32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "b64": np.uint64,
          "i64": np.int64, "f64": np.float64, "f16": np.float16, "bf16": np.uint16}  # fmt: skip


def _bf16_add(a: Any, b: Any) -> Any:
    total = (bf16_to_f32(a) + bf16_to_f32(b)).view(np.uint32).astype(np.uint64)
    rounded = total + np.uint64(0x7FFF) + (total >> np.uint64(16) & np.uint64(1))
    nan = (total & np.uint64(0x7FFFFFFF)) > np.uint64(0x7F800000)
    return np.where(nan, np.uint64(0x7FC0), rounded >> np.uint64(16)).astype(np.uint16)


_F: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, d: m + d, "sub": lambda m, d: m - d, "rsub": lambda m, d: d - m,
    "min": np.minimum, "max": np.maximum, "and": lambda m, d: m & d, "or": lambda m, d: m | d,
    "xor": lambda m, d: m ^ d, "wrxchg": lambda m, d: d, "swap": lambda m, d: d,
    "inc": lambda m, d: np.where(m >= d, m.dtype.type(0), m + m.dtype.type(1)),
    "dec": lambda m, d: np.where((m == 0) | (m > d), d, m - m.dtype.type(1)),
    "fmin": np.fmin, "fmax": np.fmax, "pk_add": lambda m, d: m + d,
    "cmpst": lambda m, d: d,  # where the value found is the one expected; apply_atomic compares
}  # fmt: skip
ATOMICS: dict[tuple[str, str], tuple[Any, Callable[[Any, Any], Any]]] = {}
for _name, _types in {
    "add": "u32 u64 f32 f64", "sub": "u32 u64", "rsub": "u32 u64", "inc": "u32 u64", "dec": "u32 u64",
    "min": "i32 u32 i64 u64 f32 f64", "max": "i32 u32 i64 u64 f32 f64", "and": "b32 b64", "or": "b32 b64",
    "xor": "b32 b64", "wrxchg": "b32 b64", "swap": "b32 b64", "cmpst": "b32 b64", "pk_add": "f16 bf16",
}.items():  # fmt: skip
    for _type in _types.split():
        _f = _F[{"min": "fmin", "max": "fmax"}[_name] if _name in ("min", "max") and _type[0] == "f" else _name]
        ATOMICS[_name, _type] = (_TYPES[_type], _bf16_add if _type == "bf16" else _f)


def apply_atomic(place: Any, at: Any, name: str, type_: str, data: list[Any]) -> Any:
    """Update ``place`` at byte offsets ``at`` and return what was there: uint32 ``[n, words]``.

    ``data`` holds one uint32 ``[n, words]`` array; for compare-and-swap two: the expected value, then the new one.
    """
    dtype, f = ATOMICS[name, type_]
    words = data[0].shape[1]
    size = 4 * words
    old = np.empty_like(data[0])
    left = np.arange(len(at))
    # Lanes with the same address take turns; those with different ones go together.
    while len(left):
        _, first = np.unique(at[left], return_index=True)
        now = left[np.sort(first)]
        before = np.ascontiguousarray(gather(place, at[now], size))
        old[now] = before
        if name == "cmpst":
            hit = (before == data[0][now]).all(axis=1)[:, None]
            after = np.where(hit, data[1][now], before)
        else:
            m, d = before.view(dtype), np.ascontiguousarray(data[0][now]).view(dtype)
            after = np.ascontiguousarray(f(m, d)).astype(dtype, copy=False).view(np.uint32).reshape(-1, words)
        scatter(place, at[now], after, size)
        left = np.setdiff1d(left, now, assume_unique=True)
    return old
