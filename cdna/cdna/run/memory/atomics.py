# SPDX-License-Identifier: MIT
"""Read-modify-write operations, on LDS and on global memory: lanes one after another, in the order of their numbers.

The hardware promises no order; a kernel whose result depends on it is not to be trusted.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "DS", "MUBUF" and "FLAT" atomics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.memory.allocations import gather, scatter
from cdna.run.vector.convert import bf16_to_f32

__all__ = ["ATOMICS", "apply_atomic"]

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
