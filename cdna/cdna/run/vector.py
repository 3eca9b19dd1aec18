# SPDX-License-Identifier: MIT
"""The vector ALU: the rows of the table, comparisons, and instructions with carries, scalars or single lanes.

Accessors add modifiers, masks and EXEC to numpy arrays of 64 lanes.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP2", "VOP3A", "VOP3B", "VOPC".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.access import Access
from cdna.run.arithmetic import div_scale, fma16, fma32, fma64
from cdna.run.errors import RunError
from cdna.run.rounding import rounded
from cdna.run.state import EXEC, Flight, Run, Wave, bits_of, lanes_of
from cdna.run.vector_table import ROWS, Row

__all__ = []

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
    """Test as V_CMP_CLASS does, which of ten kinds of number, as bits of ``wanted``."""
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


def _compare(a: Access) -> Run | None:
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


def _cndmask(a: Access) -> Run:
    x, y = a.src(1, "f32" if "|" in str(a.operands) or "-v" in str(a.operands) else "u32"), None
    y = a.src(2, "f32" if "|" in str(a.operands) or "-v" in str(a.operands) else "u32")
    which = a.mask_in(3 if len(a) > 3 else None)
    put = a.dst(0, "u32")
    a.lanewise = a.dpp is None

    def bits(v: Any) -> Any:
        return v.view(np.uint32) if v.dtype != np.uint32 else v

    return lambda w: put(w, np.where(which(w), bits(y(w)), bits(x(w))))


def _carry(a: Access) -> Run:
    """Decode v_add_co, v_addc_co and their subtractions: VCC or an SGPR pair gives and takes the carries."""
    name = a.base.removesuffix("_u32").removesuffix("_co")[2:]
    x, y = a.src(2, "u32"), a.src(3, "u32")
    takes = name in ("addc", "subb", "subbrev")
    carry = a.carry_in(4) if takes else None
    put, out = a.dst(0, "u32"), a.sdst64(1)
    reverse, subtract = name in ("subrev", "subbrev"), name.startswith("sub")

    def run(w: Wave) -> None:
        p, q = np.asarray(x(w), np.int64), np.asarray(y(w), np.int64)
        p, q = (q, p) if reverse else (p, q)
        c = lanes_of(carry(w)).astype(np.int64) if carry else 0
        total = np.broadcast_to(p - q - c if subtract else p + q + c, 64)
        put(w, (total & 0xFFFFFFFF).astype(np.uint32))
        out(w, bits_of((total < 0) | (total >> 32 != 0)) & w.exec)

    return run


def _mad64(a: Access) -> Run:
    dtype = np.uint64 if a.base.endswith("u32") else np.int64
    t = "u" if dtype == np.uint64 else "i"
    x, y, z = a.src(2, f"{t}32"), a.src(3, f"{t}32"), a.src(4, f"{t}64")
    # Compilers use the low half alone: then the upper half of the addend may be anything, and so is that of the sum.
    if (o := a.take(4)).kind == "v":
        a.reads.remove(o.index + 1)
        a.weak.append(o.index + 1)
    put, out = a.dst(0, f"{t}64"), a.sdst64(1)

    def run(w: Wave) -> None:
        p = np.broadcast_to(np.asarray(x(w)).astype(dtype) * np.asarray(y(w)).astype(dtype), 64)
        c = z(w)
        r = p + c
        put(w, r)
        over = r < p if dtype == np.uint64 else (p ^ r) & (c ^ r) < 0
        out(w, bits_of(over) & w.exec)

    return run


def _div_scale(a: Access) -> Run:
    t = a.base[-3:]
    x, y, z = a.src(2, t), a.src(3, t), a.src(4, t)
    put, out = a.dst(0, t), a.sdst64(1)

    def run(w: Wave) -> None:
        value, flag = div_scale(x(w), y(w), z(w))
        put(w, value)
        out(w, bits_of(np.broadcast_to(flag, 64)) & w.exec)

    return run


def _div_fmas(a: Access) -> Run:
    t = a.base[-3:]
    x, y, z = a.src(1, t), a.src(2, t), a.src(3, t)
    put, which, fma, scale = a.dst(0, t), a.carry_in(), fma32 if t == "f32" else fma64, 64 if t == "f32" else 128

    def run(w: Wave) -> None:
        q = z(w)
        r = fma(x(w), y(w), q)
        # A large quotient was scaled down by V_DIV_SCALE, a small one up.
        put(w, np.where(lanes_of(which(w)), np.ldexp(r, np.where(np.abs(q) >= 2, scale, -scale)), r))

    return run


_FMA = {"f32": fma32, "f16": fma16, "f64": fma64}


def _accumulate(a: Access) -> Run:
    """Decode v_fmac (the result is also an addend), v_fmamk and v_fmaak (one factor or addend is a literal)."""
    t, kind = a.base[-3:], a.base[2:].partition("_")[0]
    fma = _FMA[t]
    a.lanewise = a.dpp is None
    if kind in ("fmac", "mac"):
        x, y = a.src(1, t), a.src(2, t)
        z = a.src(0, t)
    else:
        x, y, z = a.src(1, t), a.src(2, t), a.src(3, t)
    put = a.dst(0, t)
    if a.rounds and (pick := rounded(a.base, fma)):
        return lambda w: put(w, pick(w)(x(w), y(w), z(w)))
    return lambda w: put(w, fma(x(w), y(w), z(w)))


def _read_lane(a: Access) -> Run:
    """Decode v_readlane and v_readfirstlane; a lane that is undefined makes the scalar undefined."""
    source = a.take(1)
    if source.kind != "v":
        get = a.s32(1)
        put = a.sdst32(0)
        return lambda w: put(w, get(w))
    n = source.index
    o = a.take(0)
    if o.kind != "s" or o.count != 1 or o.index in (EXEC, EXEC + 1):
        raise a.fail("the result is one scalar register")
    target = o.index
    a.swrites.append(target)
    a.lane_reads.append(n)
    which = a.s32(2) if a.base == "v_readlane_b32" else None

    def run(w: Wave) -> None:
        lane = which(w) & 63 if which else (w.exec & -w.exec).bit_length() - 1 if w.exec else 0
        w.s[target] = int(w.V[n][lane]) if w.valid[n] >> lane & 1 else None

    return run


def _write_lane(a: Access) -> Run:
    """Decode v_writelane; an undefined scalar makes the lane undefined: compilers save whole groups of registers so."""
    n = a.rows(0, 1, write=True)
    a.writes.clear()
    a.private = False  # it defines one lane, and takes undefined scalars
    o = a.take(1)
    plain = o.kind == "s" and o.index not in (EXEC, EXEC + 1)
    get = (lambda w: w.s[o.index]) if plain else a.s32(1)
    which = a.s32(2)

    def run(w: Wave) -> None:
        lane, value = which(w) & 63, get(w)
        if value is None:
            w.valid[n] &= ~(1 << lane)
            return
        if value.__class__ is Flight:
            raise RunError(f"reads s{o.index}, which {value.op} of line {value.line} is still loading; "
                           "s_waitcnt lgkmcnt(0) is missing", rule="wait")  # fmt: skip
        w.V[n][lane] = value
        w.valid[n] |= 1 << lane

    return run


def _mbcnt(a: Access) -> Run:
    """Decode v_mbcnt: ones of the mask below this lane, in the low or the high half, plus an addend."""
    high = "_hi_" in a.base
    x, y, put = a.src(1, "u32"), a.src(2, "u32"), a.dst(0, "u32")
    lane = np.arange(64)
    count = np.clip(lane - 32 if high else lane, 0, 32)
    below = ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    return lambda w: put(w, np.bitwise_count(x(w) & below).astype(np.uint32) + y(w))


def _swap(a: Access) -> Run:
    m, n = a.rows(0, 1), a.rows(1, 1)
    a.rows(0, 1, write=True)
    a.rows(1, 1, write=True)

    def run(w: Wave) -> None:
        x = w.V[m].copy()
        np.copyto(w.V[m], w.V[n], where=w.mask)
        np.copyto(w.V[n], x, where=w.mask)

    return run


def _accvgpr(a: Access) -> Run:
    get, put = a.src(1, "u32"), a.dst(0, "u32")
    a.copies = a.lanewise = True
    return lambda w: put(w, get(w))


_SPECIAL: dict[str, Callable[[Access], Run | None]] = {
    "v_cndmask_b32": _cndmask, "v_readlane_b32": _read_lane, "v_readfirstlane_b32": _read_lane,
    "v_writelane_b32": _write_lane, "v_mbcnt_lo_u32_b32": _mbcnt, "v_mbcnt_hi_u32_b32": _mbcnt, "v_swap_b32": _swap,
    "v_mad_u64_u32": _mad64, "v_mad_i64_i32": _mad64, "v_accvgpr_read_b32": _accvgpr, "v_accvgpr_write_b32": _accvgpr,
    "v_accvgpr_mov_b32": _accvgpr, "v_div_scale_f32": _div_scale, "v_div_scale_f64": _div_scale,
    "v_div_fmas_f32": _div_fmas, "v_div_fmas_f64": _div_fmas, "v_nop": lambda a: lambda w: None,
    **{f"v_{n}_co_u32": _carry for n in ("add", "sub", "subrev", "addc", "subb", "subbrev")},
    **{f"v_{n}_{t}": _accumulate for n in ("fmac", "fmamk", "fmaak") for t in ("f32", "f16", "f64")},
}  # fmt: skip


def decode_vector(a: Access) -> Run | None:
    """Return the function that executes a vector instruction with one result for each lane, or None."""
    row = ROWS.get(a.base)
    if row is None:
        if a.base.startswith(("v_cmp_", "v_cmpx_")):
            return _compare(a)
        special = _SPECIAL.get(a.base)
        return special(a) if special else None
    if len(a) != 1 + len(row.sources):
        raise a.fail(f"{len(row.sources)} sources are needed")
    a.copies = a.base in ("v_mov_b32", "v_mov_b64") and not a.encoding.startswith(("dpp", "sdwa"))
    halves = a.bits("op_sel", (0, 0, 0, 0)) if "op_sel" in a.mods else (0, 0, 0, 0)
    sources = [a.src(i + 1, t, halves[i]) for i, t in enumerate(row.sources)]
    put, f = a.dst(0, row.result, row.merge), row.f
    if "clamp" in a.mods and row.result[0] != "f":
        f = _saturating(a, row)
    a.lanewise = a.dpp is None
    if a.rounds and (pick := rounded(a.base, f)):
        return lambda w: put(w, pick(w)(*(read(w) for read in sources)))
    if len(sources) == 1:
        (one,) = sources
        return lambda w: put(w, f(one(w)))
    if len(sources) == 2:
        x, y = sources
        return lambda w: put(w, f(x(w), y(w)))
    x, y, z = sources
    return lambda w: put(w, f(x(w), y(w), z(w)))


def _saturating(a: Access, row: Row) -> Callable[..., Any]:
    """Return an integer operation with clamp: computed wide, then clipped to the range of its type."""
    a.used.add("clamp")
    dtype = {"u32": np.uint32, "i32": np.int32, "u16": np.uint16, "i16": np.int16}.get(row.result)
    if dtype is None or not a.base.startswith(("v_add_", "v_sub", "v_mad_", "v_mul_")):
        raise a.fail("clamp of this instruction is not supported")
    info = np.iinfo(dtype)
    return lambda *xs: np.clip(row.f(*(np.asarray(x).astype(np.int64) for x in xs)), info.min, info.max).astype(dtype)
