# SPDX-License-Identifier: MIT
"""Where the lanes of a vector memory instruction go: global and flat addresses, buffer descriptors, scratch.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Buffer Addressing", "Flat Memory Instructions". What
NUM_RECORDS counts on GFX9 (bytes, or records where an index goes with a stride): Mesa, src/amd/common/ac_descriptors.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.operands import PRIVATE_BASE, SHARED_BASE
from cdna.run.vector.access import Access
from cdna.run.wave import Wave

__all__ = ["Where", "buffer_place", "flat_place", "scratch_place"]

_LANE = np.arange(64)
_FOUR_GB = 1 << 32


@dataclass(slots=True)
class Where:
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

    def keep(self, which: Any) -> Where:
        """The part of some lanes."""
        return Where(self.addresses[which], self.lanes[which], None, self.aperture, which)

    def split(self) -> Iterator[Where]:
        """Parts that each lie in one aperture."""
        if self.aperture != "mixed":
            yield self
            return
        for name, base in (("lds", SHARED_BASE), ("scratch", PRIVATE_BASE)):
            inside = (self.addresses >= base) & (self.addresses < base + _FOUR_GB)
            if inside.any():
                yield Where(self.addresses[inside] - base, self.lanes[inside], None, name, inside)
        rest = (self.addresses < SHARED_BASE) | (self.addresses >= PRIVATE_BASE + _FOUR_GB)
        if rest.any():
            yield Where(self.addresses[rest], self.lanes[rest], None, "", rest)


def flat_place(a: Access, first: int, flat: bool, after: int | None = None) -> Callable[[Wave], Where]:
    """``v[0:1], off`` or ``v0, s[2:3]``; ``after`` is the scalar operand's place if data stands between them."""
    at = after if after is not None else len(a) - 1
    o = a.take(first)
    offset = a.number("offset")
    if flat or a.take(at).kind == "off":
        n = a.rows(first, 2)

        def wide(w: Wave) -> Where:
            low, high = w.V[n], w.V[n + 1]
            lanes = _LANE
            if not w.full:
                low, high, lanes = low[w.mask], high[w.mask], _LANE[w.mask]
            addresses = (low.astype(np.int64) | high.astype(np.int64) << 32) + offset
            if flat and ((addresses >= SHARED_BASE) & (addresses < PRIVATE_BASE + _FOUR_GB)).any():
                return Where(addresses, lanes, aperture="mixed")
            return Where(addresses, lanes)

        return wide
    if o.kind != "v":
        raise a.fail(f"{o.text} cannot be an address")
    n, base = a.rows(first, 1), a.s64(at)

    def short(w: Wave) -> Where:
        low, lanes = (w.V[n], _LANE) if w.full else (w.V[n][w.mask], _LANE[w.mask])
        start = base(w) + offset
        return Where(low.astype(np.int64) + (start - (1 << 64) if start >> 63 == 1 else start), lanes)

    return short


def scratch_place(a: Access, first: int) -> Callable[[Wave], Where]:
    """``off, s32``, ``v0, off`` or both: bytes from the start of the lane's own scratch."""
    at = len(a) - 1 if a.base.startswith("scratch_load") else 2
    offset = a.number("offset")
    n = None if a.take(first).kind == "off" else a.rows(first, 1)
    base = None if a.take(at).kind == "off" else a.s32(at)

    def place(w: Wave) -> Where:
        lanes = _LANE if w.full else _LANE[w.mask]
        start = offset + (base(w) if base else 0)
        where = np.full(len(lanes), start, np.int64)
        if n is not None:
            where = where + w.V[n][lanes]
        return Where(where, lanes, aperture="scratch", chosen=np.ones(len(lanes), np.bool_))

    return place


def buffer_place(a: Access, first: int) -> Callable[[Wave], Where]:
    """A buffer descriptor in four scalar registers, an offset or index in vector registers, a scalar offset."""
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

    def place(w: Wave) -> Where:
        d0, d1 = low(w), high(w)
        base, stride, records = d0 & (1 << 48) - 1, d0 >> 48 & 0x3FFF, d1 & 0xFFFFFFFF
        if d0 >> 63 or d1 >> 55 & 1:
            raise RunError("a buffer descriptor with swizzling or thread ids is not supported", rule="unknown")
        lanes = _LANE if w.full else _LANE[w.mask]
        within = np.full(len(lanes), offset, np.int64)
        if offen:
            within += w.V[n + idxen][lanes]
        scalar = soffset(w)
        start = base + scalar
        if not (idxen and stride):  # raw: NUM_RECORDS counts bytes; a stride alone (cache swizzle) bounds nothing
            left = records - scalar
            return Where(within + start, lanes, lambda size: within + size <= left)
        index = w.V[n][lanes].astype(np.int64)
        inside = index < records
        return Where(within + index * stride + start, lanes, lambda size: inside & (within + size <= stride))

    return place
