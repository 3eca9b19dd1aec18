# SPDX-License-Identifier: MIT
"""Packed and mixed-precision vector instructions (VOP3P), dot products within a lane, and 8-bit floats.

Each half of a packed result takes, by ``op_sel`` and ``op_sel_hi``, either half of every source; ``neg_lo`` and
``neg_hi`` change signs.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "VOP3P", V_CVT_PK_FP8_F32 and neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.access import Access
from cdna.run.arithmetic import FLOAT8, bf16_to_f32, f32_to_f8, fma16, fma32, max_num, min_num, stochastic_f8, to_unit
from cdna.run.rounding import rounded
from cdna.run.state import EXEC, M0, Read, Run, Wave

__all__ = []

_LOW = np.uint32(0xFFFF)


def _selectors(a: Access, n: int) -> list[tuple[int, ...]]:
    """Return op_sel, op_sel_hi, neg_lo and neg_hi for ``n`` sources."""
    return [a.bits("op_sel", (0,) * n), a.bits("op_sel_hi", (1,) * n), a.bits("neg_lo", (0,) * n),
            a.bits("neg_hi", (0,) * n)]  # fmt: skip


def _bytes(x: Any, signed: bool, bits: int) -> list[Any]:
    out = []
    for i in range(32 // bits):
        v = (x >> np.uint32(i * bits) & np.uint32((1 << bits) - 1)).astype(np.int64)
        out.append(np.where(v >> (bits - 1) == 1, v - (1 << bits), v) if signed else v)
    return out


_DOTS = {"dot2_f32_f16": ("f16", 0), "dot2c_f32_f16": ("f16", 0), "dot2_f32_bf16": ("bf16", 0),
         "dot2_i32_i16": ("i", 16), "dot2_u32_u16": ("u", 16), "dot2c_i32_i16": ("i", 16), "dot4_i32_i8": ("i", 8),
         "dot4c_i32_i8": ("i", 8), "dot4_u32_u8": ("u", 8), "dot8_i32_i4": ("i", 4), "dot8_u32_u4": ("u", 4),
         "dot8c_i32_i4": ("i", 4)}  # fmt: skip


def _dot(a: Access) -> Run:
    """Add products of two, four or eight pairs to an accumulator."""
    kind, bits = _DOTS[a.base.removeprefix("v_")]
    x, y = a.src(1, "h32"), a.src(2, "h32")
    accumulates = len(a) == 3
    sel, sel_hi, neg, neg_hi = _selectors(a, 3)
    if any(sel) or any(neg) or any(neg_hi) or 0 in sel_hi[:2]:
        raise a.fail("op_sel and neg of a dot product are not supported")
    z = a.src(0 if accumulates else 3, "f32" if bits == 0 else "u32")
    put = a.dst(0, "f32" if bits == 0 else "u32")
    clamp = "clamp" in a.mods and bits
    a.used.add("clamp")
    widen: Callable[[Any], Any] = (lambda h: h.view(np.float16).astype(np.float64)) if kind == "f16" else bf16_to_f32

    def floats(w: Wave) -> None:
        p, q = (np.broadcast_to(v(w), 64) for v in (x, y))
        total = np.asarray(z(w), np.float64)
        for shift in (0, 16):
            m, n = (widen((v >> np.uint32(shift)).astype(np.uint16)).astype(np.float64) for v in (p, q))
            total = total + m * n
        put(w, total.astype(np.float32))

    def integers(w: Wave) -> None:
        p, q = (np.broadcast_to(v(w), 64) for v in (x, y))
        c = np.asarray(z(w)).astype(np.int64)
        total = np.where(c >> 31 == 1, c - (1 << 32), c) if kind == "i" else c
        for m, n in zip(_bytes(p, kind == "i", bits), _bytes(q, kind == "i", bits), strict=True):
            total = total + m * n
        if clamp:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1) if kind == "i" else np.clip(total, 0, (1 << 32) - 1)
        put(w, (total & 0xFFFFFFFF).astype(np.uint32))

    return integers if bits else floats


def _to_f8(a: Access) -> Run:
    """Decode v_cvt_pk_*: two values into a half (``op_sel`` bit 2); v_cvt_sr_*: one into the byte of op_sel bits 2, 3.

    Clang shows it: __builtin_amdgcn_cvt_sr_fp8_f32(x, r, old, 2) becomes op_sel:[0,0,0,1]. Other bytes stay.
    """
    kind = "fp8" if "fp8" in a.base else "bf8"
    n = a.take(0)
    if n.kind != "v" or n.count != 1:
        raise a.fail("the result is one vector register")
    a.writes.append(n.index)
    d = n.index
    sel = a.bits("op_sel", (0, 0, 0, 0))
    x = a.src(1, "f32")
    a.lanewise = True
    if "_pk_" in a.base:
        y, half = a.src(2, "f32"), sel[2]

        def pair(w: Wave) -> None:
            ovfl = bool(w.mode >> 23 & 1)
            r = f32_to_f8(x(w), kind, ovfl) | f32_to_f8(y(w), kind, ovfl) << np.uint32(8)
            np.copyto(w.H[d][:, half], r.astype(np.uint16), where=w.mask)

        return pair
    noise, shift = a.src(2, "u32"), np.uint32(8 * (sel[2] + 2 * sel[3]))

    def one(w: Wave) -> None:
        r = stochastic_f8(x(w), noise(w), kind, bool(w.mode >> 23 & 1)) << shift
        np.copyto(w.V[d], w.V[d] & ~(np.uint32(0xFF) << shift) | r, where=w.mask)

    return one


def _from_f8(a: Access) -> Run:
    """Decode v_cvt_pk_f32_fp8: two bytes to two float32."""
    table = FLOAT8["fp8" if "fp8" in a.base else "bf8"]
    half = a.bits("op_sel", (0, 0))[0]
    x, shift = a.src(1, "u32"), np.uint32(16 * half)
    d = a.rows(0, 2, write=True)
    a.lanewise = True

    def run(w: Wave) -> None:
        v = x(w) >> shift & _LOW
        np.copyto(w.F[d], table[v & np.uint32(0xFF)], where=w.mask)
        np.copyto(w.F[d + 1], table[v >> np.uint32(8)], where=w.mask)

    return run


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
        return lambda *x: to_unit(np.asarray(f(*x)))
    info = np.iinfo(dtype)
    return lambda *x: np.clip(f(*(v.astype(np.int64) for v in x)), info.min, info.max).astype(dtype)


def _by_mode(a: Access, f: Callable[..., Any], dtype: Any) -> Callable[[Wave], Callable[..., Any]]:
    """Return what gives for a wave the operation on one half, clamped and rounded."""
    if a.rounds and (pick := rounded(a.base, f)):
        a.used.add("clamp")
        return lambda w: _clamped(a, pick(w), dtype)
    g = _clamped(a, f, dtype)
    return lambda w: g


def _packed16(a: Access) -> Run:
    type_, n, f = _HALVES[a.base]
    dtype = _DTYPES[type_]
    sel, sel_hi, neg, neg_hi = _selectors(a, n)
    raw = [a.src(i + 1, "h32") for i in range(n)]
    low = [_half(r, s, m, dtype) for r, s, m in zip(raw, sel, neg, strict=False)]
    high = [_half(r, s, m, dtype) for r, s, m in zip(raw, sel_hi, neg_hi, strict=False)]
    # An inline constant of an f16 operation is a half, so its bits are those of the type.
    for i in range(n):
        if (o := a.take(i + 1)).kind == "float":
            always = _constant(np.uint32(o.constant("f16")))
            low[i] = _half(always, sel[i], neg[i], dtype)
            high[i] = _half(always, sel_hi[i], neg_hi[i], dtype)
    put, pick = a.dst(0, "u32"), _by_mode(a, f, dtype)
    a.used.add("clamp")
    a.lanewise = True

    def run(w: Wave) -> None:
        f = pick(w)
        x = np.asarray(f(*(r(w) for r in low))).view(np.uint16).astype(np.uint32)
        y = np.asarray(f(*(r(w) for r in high))).view(np.uint16).astype(np.uint32)
        put(w, x | y << np.uint32(16))

    return run


def _single(a: Access, i: int, which: int, negative: int) -> Read:
    """Return a reader of one float32 of a pair of registers; a constant is the same for both halves."""
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


def _packed32(a: Access) -> Run:
    n, f = _PAIRS[a.base]
    sel, sel_hi, neg, neg_hi = _selectors(a, n)
    low = [_single(a, i + 1, sel[i], neg[i]) for i in range(n)]
    high = [_single(a, i + 1, sel_hi[i], neg_hi[i]) for i in range(n)]
    d, pick = a.rows(0, 2, write=True), _by_mode(a, f, np.float32)
    a.lanewise = True

    def run(w: Wave) -> None:
        f = pick(w)
        x, y = f(*(r(w) for r in low)), f(*(r(w) for r in high))
        if w.full:
            w.F[d][:] = x
            w.F[d + 1][:] = y
        else:
            np.copyto(w.F[d], x, where=w.mask)
            np.copyto(w.F[d + 1], y, where=w.mask)

    return run


def _packed_move(a: Access) -> Run:
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
    """Return a reader of a float32, or one half of a register widened, with the signs of a mixed instruction."""
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


def _mix(a: Access) -> Run:
    """Decode v_fma_mix: each source is a float32, or with ``op_sel_hi`` the half of it that ``op_sel`` names."""
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
            r = to_unit(r)
        np.copyto(w.H[d][:, half], r.view(np.uint16), where=w.mask)

    return run


def decode_packed(a: Access) -> Run | None:
    """Return the function that executes one of these instructions, or None."""
    name = a.base
    if name in _HALVES:
        return _packed16(a)
    if name in _PAIRS:
        return _packed32(a)
    if name == "v_pk_mov_b32":
        return _packed_move(a)
    if name.startswith(("v_fma_mix", "v_mad_mix")) and name.endswith(("mix_f32", "mixlo_f16", "mixhi_f16")):
        return _mix(a)
    if name.removeprefix("v_") in _DOTS:
        return _dot(a)
    if name in ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"):
        return _to_f8(a)
    if name in ("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"):
        return _from_f8(a)
    return None
