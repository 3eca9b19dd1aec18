# SPDX-License-Identifier: MIT
"""Global memory: named allocations far apart, so that an address that belongs to none of them is found out.

Each argument's array gets a made-up address and guard gaps. Arrays that share memory share an allocation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError

__all__ = ["Allocation", "Memory"]

_FIRST, _GUARD = 0x7F00_0000_0000, 1 << 20


Note = Callable[["Allocation", Any, int], None]


class Allocation:
    """A run of bytes with a name.

    Attributes:
        name: of the argument.
        base, size: made-up address, and bytes.
        data: the bytes, filled up to a multiple of 16.
        writable: False for a read-only array.
    """

    __slots__ = ("base", "bytes", "data", "dwords", "halves", "name", "size", "writable")

    def __init__(self, name: str, base: int, content: Any, writable: bool) -> None:
        self.name, self.base, self.size, self.writable = name, base, len(content), writable
        self.data = np.zeros(-(-max(self.size, 1) // 16) * 16, np.uint8)
        self.data[: self.size] = content
        self.bytes = self.data
        self.halves = self.data.view(np.uint16)
        self.dwords = self.data.view(np.uint32)

    def __repr__(self) -> str:
        return f"Allocation({self.name!r}, base=0x{self.base:x}, size={self.size})"


class Memory:
    """All allocations of a run, in the order of their addresses."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.bases: list[int] = []
        self._next = _FIRST

    def add(self, name: str, content: Any, offset: int = 0, writable: bool = True) -> Allocation:
        """A new allocation with the given bytes; ``offset`` is where the first of them lies in a 256-byte line."""
        made = Allocation(name, self._next + offset, content, writable)
        self.allocations.append(made)
        self.bases.append(made.base)
        self._next += (offset + made.size + _GUARD + 0xFFFF) & ~0xFFFF
        return made

    def find(self, address: int) -> Allocation | None:
        """The allocation that an address lies in, or None."""
        i = bisect_right(self.bases, address) - 1
        if i >= 0 and address < self.bases[i] + self.allocations[i].size:
            return self.allocations[i]
        return None

    def locate(self, addresses: Any, size: int, lanes: Any, write: bool) -> tuple[Allocation, Any]:
        """The allocation that holds ``size`` bytes at every address (int64), and the offsets in it.

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
        """The message for an access outside of memory."""
        near = min(self.allocations, key=lambda a: max(a.base - address, address - a.base - a.size), default=None)
        where = "there is no memory"
        if near is not None and abs(address - near.base) < 1 << 40:
            offset = address - near.base
            where = f"that is byte {offset} of {near.name}, which has {near.size}"
        verb = "writes" if write else "reads"
        return f"lane {lane} {verb} {size} bytes at 0x{address & (1 << 64) - 1:x}: {where}"

    def read(self, addresses: Any, size: int, lanes: Any, note: Note | None = None) -> Any:
        """``size`` bytes at each address: uint32 ``[n, size / 4]``, or ``[n, 1]`` for one or two bytes.

        ``note`` is called with each allocation that is read, the offsets in it and ``size``.
        """
        try:
            a, at = self.locate(addresses, size, lanes, False)
        except RunError as e:
            if e.rule != "split":
                raise
            parts = [self.read(addresses[i : i + 1], size, lanes[i : i + 1], note) for i in range(len(addresses))]
            return np.concatenate(parts)
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
        """For an update: allocation, offsets, and which of the lanes, for each allocation in turn."""
        everyone = np.arange(len(addresses))
        try:
            return [(*self.locate(addresses, size, lanes, True), everyone)]
        except RunError as e:
            if e.rule != "split":
                raise
        return [
            (*self.locate(addresses[i : i + 1], size, lanes[i : i + 1], True), everyone[i : i + 1]) for i in everyone
        ]


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
