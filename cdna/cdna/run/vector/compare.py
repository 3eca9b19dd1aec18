# SPDX-License-Identifier: MIT
"""Comparisons of the vector ALU: a mask of the lanes in which they hold, into VCC, a scalar pair, or EXEC too.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "VOPC".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.access import Access
from cdna.run.wave import Wave, bits_of

__all__ = ["decode_compare"]

_FLOAT_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "f": lambda a, b: np.False_, "lt": np.less, "eq": np.equal, "le": np.less_equal,
    "gt": np.greater, "lg": lambda a, b: (a < b) | (a > b), "ge": np.greater_equal,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "neq": lambda a, b: ~(a == b), "nlt": lambda a, b: ~(a < b),
    "tru": lambda a, b: np.True_,
}  # fmt: skip
_INTEGER_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "f": _FLOAT_TESTS["f"], "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater,
    "ne": np.not_equal, "ge": np.greater_equal, "t": _FLOAT_TESTS["tru"],
}  # fmt: skip


def _classes(x: Any, wanted: Any) -> Any:
    """V_CMP_CLASS: which of ten kinds of number, as bits of ``wanted``."""
    negative, tiny = np.signbit(x), np.finfo(x.dtype).smallest_normal
    size = np.abs(x)
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    quiet = bits >> bits.dtype.type(np.finfo(x.dtype).nmant - 1) & bits.dtype.type(1) == 1
    nan = np.isnan(x)
    kinds = [nan & ~quiet, nan & quiet, np.isinf(x) & negative, (size >= tiny) & np.isfinite(x) & negative,
             (size < tiny) & (size > 0) & negative, (size == 0) & negative, (size == 0) & ~negative,
             (size < tiny) & (size > 0) & ~negative, (size >= tiny) & np.isfinite(x) & ~negative,
             np.isinf(x) & ~negative]  # fmt: skip
    found = np.zeros(np.shape(x), np.bool_)
    for i, kind in enumerate(kinds):
        found = found | kind & (wanted >> np.uint32(i) & np.uint32(1) == 1)
    return found


def decode_compare(a: Access) -> Callable[[Wave], None] | None:
    """The function that executes a comparison, or None."""
    head, _, rest = a.base.removeprefix("v_").partition("_")
    kind, _, type_ = rest.partition("_")
    if type_ not in ("f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"):
        return None
    if kind == "class" and type_[0] == "f":
        f: Callable[[Any, Any], Any] = _classes
        x, y = a.src(1, type_), a.src(2, "u32")
    else:
        table = _FLOAT_TESTS if type_[0] == "f" else _INTEGER_TESTS
        if kind not in table:
            return None
        f = table[kind]
        x, y = a.src(1, type_), a.src(2, type_)
    put, also = a.mask_out(0), head == "cmpx"
    a.private &= not also
    a.lanewise = not also and a.dpp is None
    if "clamp" in a.mods:
        a.used.add("clamp")  # only asks for exceptions, which are not modelled

    def run(w: Wave) -> None:
        r = f(x(w), y(w))
        put(w, r if np.ndim(r) else np.full(len(w.mask), r))
        if also:
            w.set_exec(bits_of(r if np.ndim(r) else np.full(64, r)) & w.exec)

    return run
