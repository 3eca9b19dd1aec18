# SPDX-License-Identifier: MIT
"""The vector ALU: numpy arrays of 64 lanes go in and out; accessors add modifiers, masks and EXEC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.access import Access
from cdna.run.vector.floats import add_float_rows
from cdna.run.vector.integers import add_integer_rows
from cdna.run.vector.rows import Row, Rows
from cdna.run.wave import Wave

__all__ = ["decode_vector"]


def _table() -> Rows:
    rows = Rows()
    add_float_rows(rows)
    add_integer_rows(rows)
    return rows


ROWS = _table()


def decode_vector(a: Access) -> Callable[[Wave], None] | None:
    """The function that executes a row of the table, or None if the table does not have it."""
    row = ROWS.get(a.base)
    if row is None:
        return None
    if len(a) != 1 + len(row.sources):
        raise a.fail(f"{len(row.sources)} sources are needed")
    a.copies = a.base in ("v_mov_b32", "v_mov_b64") and not a.encoding.startswith(("dpp", "sdwa"))
    halves = a.bits("op_sel", (0, 0, 0, 0)) if "op_sel" in a.mods else (0, 0, 0, 0)
    sources = [a.src(i + 1, t, halves[i]) for i, t in enumerate(row.sources)]
    put, f = a.dst(0, row.result, row.merge), row.f
    if "clamp" in a.mods and row.result[0] != "f":
        f = _saturating(a, row)
    a.lanewise = a.dpp is None
    if len(sources) == 1:
        (one,) = sources
        return lambda w: put(w, f(one(w)))
    if len(sources) == 2:
        x, y = sources
        return lambda w: put(w, f(x(w), y(w)))
    x, y, z = sources
    return lambda w: put(w, f(x(w), y(w), z(w)))


def _saturating(a: Access, row: Row) -> Callable[..., Any]:
    """An integer operation with clamp: computed wide, then clipped to the range of its type."""
    a.used.add("clamp")
    dtype = {"u32": np.uint32, "i32": np.int32, "u16": np.uint16, "i16": np.int16}.get(row.result)
    if dtype is None or not a.base.startswith(("v_add_", "v_sub", "v_mad_", "v_mul_")):
        raise a.fail("clamp of this instruction is not supported")
    info = np.iinfo(dtype)
    return lambda *xs: np.clip(row.f(*(np.asarray(x).astype(np.int64) for x in xs)), info.min, info.max).astype(dtype)
