# SPDX-License-Identifier: MIT
"""Reads and writes at the addresses of a vector memory instruction, wherever they lie: global memory, LDS, scratch."""

from __future__ import annotations

from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.addresses import Where
from cdna.run.memory.allocations import Note
from cdna.run.memory.in_flight import overlapping
from cdna.run.wave import Wave

__all__ = ["pieces", "read_global", "write_scratch"]


def read_global(w: Wave, at: Where, size: int, line: int, shared: bool) -> Any:
    """uint32 ``[active lanes, words]``; what the descriptor forbids is 0. ``shared`` is a load with sc1."""
    if at.aperture:
        return _read_aperture(w, at, size, line, shared)
    memory, races = w.group.memory, w.group.races
    note: Note | None = None
    if races is not None:
        note = lambda a, where, n: races.read(w.group, a, where, n, line, shared)  # noqa: E731
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


def _read_aperture(w: Wave, at: Where, size: int, line: int, shared: bool) -> Any:
    out = np.zeros((len(at.lanes), max(1, size // 4)), np.uint32)
    for part in at.split():
        if part.aperture == "lds":
            out[part.chosen] = w.group.lds.read(w, part.addresses, size, part.lanes)
        elif part.aperture == "scratch":
            out[part.chosen] = _read_scratch(w, part, size)
        else:
            out[part.chosen] = read_global(w, part, size, line, shared)
    return out


def _check_scratch(w: Wave, at: Where, size: int, verb: str) -> Any:
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


def _read_scratch(w: Wave, at: Where, size: int) -> Any:
    where = _check_scratch(w, at, size, "reads")
    rows = at.lanes[:, None]
    valid = w.scratch_valid[rows, where]
    if not valid.all():
        i = int(np.argmin(valid.all(axis=1)))
        raise RunError(
            f"lane {int(at.lanes[i])} reads byte {int(at.addresses[i])} of its scratch, which it has not written",
            rule="undefined",
        )
    raw = np.ascontiguousarray(w.scratch[rows, where])
    return raw.view(np.uint32) if size >= 4 else raw.view(f"u{size}").astype(np.uint32)


def write_scratch(w: Wave, at: Where, values: Any, size: int) -> None:
    where = _check_scratch(w, at, size, "writes")
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(at.lanes), -1)[:, :size]
    w.scratch[at.lanes[:, None], where] = raw
    w.scratch_valid[at.lanes[:, None], where] = True


def pieces(w: Wave, at: Where, values: Any, size: int) -> list[tuple[Any, Any, Any, int]]:
    """Where a store goes, checked: allocation, offsets, values, bytes."""
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
