# SPDX-License-Identifier: MIT
"""Packed and mixed-precision vector instructions (VOP3P).

Each half of a packed result takes, by ``op_sel`` and ``op_sel_hi``, either half of every source; ``neg_lo`` and
``neg_hi`` change signs.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "VOP3P", V_CVT_PK_FP8_F32 and neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.access import Access, Read
from cdna.run.vector.arithmetic import fma16, fma32, max_num, min_num
from cdna.run.vector.packed_dot import DOTS, dot, from_f8, selectors, to_f8
from cdna.run.wave import EXEC, M0, Wave

__all__ = ["decode_packed"]


def _mask16(x: Any) -> Any:
    return x & x.dtype.type(15)


_HALVES: dict[str, tuple[str, int, Callable[..., Any]]] = {
    "v_pk_add_f16": ("f16", 2, np.add),
    "v_pk_mul_f16": ("f16", 2, np.multiply),
    "v_pk_fma_f16": ("f16", 3, fma16),
    "v_pk_min_f16": ("f16", 2, min_num),
    "v_pk_max_f16": ("f16", 2, max_num),
    "v_pk_add_u16": ("u16", 2, np.add),
    "v_pk_sub_u16": ("u16", 2, np.subtract),
    "v_pk_add_i16": ("i16", 2, np.add),
    "v_pk_sub_i16": ("i16", 2, np.subtract),
    "v_pk_mul_lo_u16": ("u16", 2, np.multiply),
    "v_pk_mad_u16": ("u16", 3, lambda a, b, c: a * b + c),
    "v_pk_mad_i16": ("i16", 3, lambda a, b, c: a * b + c),
    "v_pk_min_u16": ("u16", 2, np.minimum),
    "v_pk_max_u16": ("u16", 2, np.maximum),
    "v_pk_min_i16": ("i16", 2, np.minimum),
    "v_pk_max_i16": ("i16", 2, np.maximum),
    "v_pk_lshlrev_b16": ("u16", 2, lambda s, a: a << _mask16(s)),
    "v_pk_lshrrev_b16": ("u16", 2, lambda s, a: a >> _mask16(s)),
    "v_pk_ashrrev_i16": ("i16", 2, lambda s, a: a >> _mask16(s)),
}
_PAIRS: dict[str, tuple[int, Callable[..., Any]]] = {
    "v_pk_add_f32": (2, np.add),
    "v_pk_mul_f32": (2, np.multiply),
    "v_pk_fma_f32": (3, fma32),
}
_DTYPES = {"f16": np.float16, "u16": np.uint16, "i16": np.int16}


def _constant(bits: Any) -> Callable[[Wave], Any]:
    return lambda w: bits


def _half(read: Read, which: int, negative: int, dtype: Any) -> Read:
    shift = np.uint32(16 * which)
    if negative:
        return lambda w: -(read(w) >> shift).astype(np.uint16).view(dtype)
    return lambda w: (read(w) >> shift).astype(np.uint16).view(dtype)


def _clamped(a: Access, f: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    if "clamp" not in a.mods:
        return f
    a.used.add("clamp")
    if dtype in (np.float16, np.float32):
        return lambda *x: (lambda r: np.where(np.isnan(r), r.dtype.type(0), np.clip(r, 0, 1)))(np.asarray(f(*x)))
    info = np.iinfo(dtype)
    return lambda *x: np.clip(f(*(v.astype(np.int64) for v in x)), info.min, info.max).astype(dtype)


def _packed16(a: Access) -> Callable[[Wave], None]:
    type_, n, f = _HALVES[a.base]
    dtype = _DTYPES[type_]
    sel, sel_hi, neg, neg_hi = selectors(a, n)
    raw = [a.src(i + 1, "h32") for i in range(n)]
    low = [_half(r, s, m, dtype) for r, s, m in zip(raw, sel, neg, strict=False)]
    high = [_half(r, s, m, dtype) for r, s, m in zip(raw, sel_hi, neg_hi, strict=False)]
    # An inline constant of an f16 operation is a half, so its bits are those of the type.
    for i in range(n):
        if (o := a.take(i + 1)).kind == "float":
            always = _constant(np.uint32(o.constant("f16")))
            low[i] = _half(always, sel[i], neg[i], dtype)
            high[i] = _half(always, sel_hi[i], neg_hi[i], dtype)
    put, f = a.dst(0, "u32"), _clamped(a, f, dtype)
    a.used.add("clamp")
    a.lanewise = True

    def run(w: Wave) -> None:
        x = np.asarray(f(*(r(w) for r in low))).view(np.uint16).astype(np.uint32)
        y = np.asarray(f(*(r(w) for r in high))).view(np.uint16).astype(np.uint32)
        put(w, x | y << np.uint32(16))

    return run


def _single(a: Access, i: int, which: int, negative: int) -> Read:
    """One float32 of a pair of registers; a constant is the same for both halves."""
    o = a.take(i)
    sign = -1 if negative else 1
    if o.kind == "v":
        n = o.index + which
        if o.count != 2:
            raise a.fail(f"{o.text} must be two registers")
        a.reads.append(n)
        return (lambda w: -w.F[n]) if negative else (lambda w: w.F[n])
    if o.kind == "s" and o.count == 2 and o.index not in (EXEC, M0):
        a.sreads.append(n := o.index + which)  # the other of the two need not be defined
        return lambda w: np.uint32(w.s[n]).view(np.float32) * np.float32(sign)
    if o.kind == "s":
        get, shift = a.s64(i), 32 * which
        return lambda w: np.uint32(get(w) >> shift & 0xFFFFFFFF).view(np.float32) * np.float32(sign)
    value = np.uint32(o.constant("f32")).view(np.float32) * np.float32(sign)
    return lambda w: value


def _packed32(a: Access) -> Callable[[Wave], None]:
    n, f = _PAIRS[a.base]
    sel, sel_hi, neg, neg_hi = selectors(a, n)
    low = [_single(a, i + 1, sel[i], neg[i]) for i in range(n)]
    high = [_single(a, i + 1, sel_hi[i], neg_hi[i]) for i in range(n)]
    d, f = a.rows(0, 2, write=True), _clamped(a, f, np.float32)
    a.lanewise = True

    def run(w: Wave) -> None:
        x, y = f(*(r(w) for r in low)), f(*(r(w) for r in high))
        if w.full:
            w.F[d][:] = x
            w.F[d + 1][:] = y
        else:
            np.copyto(w.F[d], x, where=w.mask)
            np.copyto(w.F[d + 1], y, where=w.mask)

    return run


def _packed_move(a: Access) -> Callable[[Wave], None]:
    sel = a.bits("op_sel", (0, 0))
    a.bits("op_sel_hi", (0, 0))
    x, y = _single(a, 1, sel[0], 0), _single(a, 2, sel[1], 0)
    d = a.rows(0, 2, write=True)
    a.lanewise = True

    def run(w: Wave) -> None:
        first, second = np.array(x(w)).view(np.uint32), np.array(y(w)).view(np.uint32)
        np.copyto(w.V[d], first, where=w.mask)
        np.copyto(w.V[d + 1], second, where=w.mask)

    return run


def _mix_source(a: Access, i: int, is_half: int, which: int) -> Read:
    """A float32, or one half of a register widened, with the signs of a mixed instruction."""
    o = a.take(i)
    if is_half:
        raw = a.src(i, "h32") if not (o.neg or o.abs) else _unsigned(a, i)
        shift = np.uint32(16 * which)
        read: Read = lambda w: (raw(w) >> shift).astype(np.uint16).view(np.float16).astype(np.float32)  # noqa: E731
        if o.kind == "float":
            half = np.uint16(o.constant("f16")).view(np.float16).astype(np.float32)
            read = lambda w: half  # noqa: E731
    else:
        return a.src(i, "f32")
    if o.abs and o.neg:
        return lambda w: -np.abs(read(w))
    if o.abs:
        return lambda w: np.abs(read(w))
    return (lambda w: -read(w)) if o.neg else read


def _unsigned(a: Access, i: int) -> Read:
    text = a.operands[i]
    a.operands[i] = text.replace("-", "").replace("|", "").replace("neg(", "").replace("abs(", "").replace(")", "")
    try:
        return a.src(i, "h32")
    finally:
        a.operands[i] = text


def _mix(a: Access) -> Callable[[Wave], None]:
    """v_fma_mix: each source is a float32, or with ``op_sel_hi`` the half of it that ``op_sel`` names."""
    sel, sel_hi = a.bits("op_sel", (0, 0, 0)), a.bits("op_sel_hi", (0, 0, 0))
    x, y, z = (_mix_source(a, i + 1, sel_hi[i], sel[i]) for i in range(3))
    kind = a.base.removeprefix("v_fma_").removeprefix("v_mad_")
    a.lanewise = True
    if kind == "mix_f32":
        put = a.dst(0, "f32")
        return lambda w: put(w, fma32(x(w), y(w), z(w)))
    half = int(kind == "mixhi_f16")
    d = a.rows(0, 1, write=True)
    clamp = "clamp" in a.mods
    a.used.add("clamp")

    def run(w: Wave) -> None:
        # Two roundings, as the instruction is defined: the float32 result is converted.
        r = fma32(x(w), y(w), z(w)).astype(np.float16)
        if clamp:
            r = np.where(np.isnan(r), np.float16(0), np.clip(r, np.float16(0), np.float16(1)))
        np.copyto(w.H[d][:, half], r.view(np.uint16), where=w.mask)

    return run


def decode_packed(a: Access) -> Callable[[Wave], None] | None:
    """The function that executes one of these instructions, or None."""
    name = a.base
    if name in _HALVES:
        return _packed16(a)
    if name in _PAIRS:
        return _packed32(a)
    if name == "v_pk_mov_b32":
        return _packed_move(a)
    if name.startswith(("v_fma_mix", "v_mad_mix")) and name.endswith(("mix_f32", "mixlo_f16", "mixhi_f16")):
        return _mix(a)
    if name.removeprefix("v_") in DOTS:
        return dot(a)
    if name in ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"):
        return to_f8(a)
    if name in ("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"):
        return from_f8(a)
    return None
