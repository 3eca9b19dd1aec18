# SPDX-License-Identifier: MIT
"""Vector instructions that read or write more than one vector result: masks, carries, scalars, other lanes.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP2", "VOP3A", "VOP3B".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.vector.access import Access
from cdna.run.vector.arithmetic import div_scale, fma16, fma32, fma64
from cdna.run.vector.compare import decode_compare
from cdna.run.wave import EXEC, Flight, Wave, bits_of, lanes_of

__all__ = ["decode_special"]


def _cndmask(a: Access) -> Callable[[Wave], None]:
    x, y = a.src(1, "f32" if "|" in str(a.operands) or "-v" in str(a.operands) else "u32"), None
    y = a.src(2, "f32" if "|" in str(a.operands) or "-v" in str(a.operands) else "u32")
    which = a.mask_in(3 if len(a) > 3 else None)
    put = a.dst(0, "u32")
    a.lanewise = a.dpp is None

    def bits(v: Any) -> Any:
        return v.view(np.uint32) if v.dtype != np.uint32 else v

    return lambda w: put(w, np.where(which(w), bits(y(w)), bits(x(w))))


def _carry(a: Access) -> Callable[[Wave], None]:
    """v_add_co, v_addc_co and their subtractions: VCC or an SGPR pair gives and takes the carries."""
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


def _mad64(a: Access) -> Callable[[Wave], None]:
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


def _div_scale(a: Access) -> Callable[[Wave], None]:
    t = a.base[-3:]
    x, y, z = a.src(2, t), a.src(3, t), a.src(4, t)
    put, out = a.dst(0, t), a.sdst64(1)

    def run(w: Wave) -> None:
        value, flag = div_scale(x(w), y(w), z(w))
        put(w, value)
        out(w, bits_of(np.broadcast_to(flag, 64)) & w.exec)

    return run


def _div_fmas(a: Access) -> Callable[[Wave], None]:
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


def _accumulate(a: Access) -> Callable[[Wave], None]:
    """v_fmac (the result is also an addend), v_fmamk and v_fmaak (one factor or addend is a literal)."""
    t, kind = a.base[-3:], a.base[2:].partition("_")[0]
    fma = _FMA[t]
    a.lanewise = a.dpp is None
    if kind in ("fmac", "mac"):
        x, y = a.src(1, t), a.src(2, t)
        z = a.src(0, t)
        put = a.dst(0, t)
        return lambda w: put(w, fma(x(w), y(w), z(w)))
    x, y, z = a.src(1, t), a.src(2, t), a.src(3, t)
    put = a.dst(0, t)
    return lambda w: put(w, fma(x(w), y(w), z(w)))


def _read_lane(a: Access) -> Callable[[Wave], None]:
    """v_readlane and v_readfirstlane; a lane that is undefined makes the scalar undefined."""
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


def _write_lane(a: Access) -> Callable[[Wave], None]:
    """v_writelane; an undefined scalar makes the lane undefined: compilers save whole groups of registers so."""
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


def _mbcnt(a: Access) -> Callable[[Wave], None]:
    """Ones of the mask below this lane, in the low or the high half, plus an addend."""
    high = "_hi_" in a.base
    x, y, put = a.src(1, "u32"), a.src(2, "u32"), a.dst(0, "u32")
    lane = np.arange(64)
    count = np.clip(lane - 32 if high else lane, 0, 32)
    below = ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    return lambda w: put(w, np.bitwise_count(x(w) & below).astype(np.uint32) + y(w))


def _swap(a: Access) -> Callable[[Wave], None]:
    m, n = a.rows(0, 1), a.rows(1, 1)
    a.rows(0, 1, write=True)
    a.rows(1, 1, write=True)

    def run(w: Wave) -> None:
        x = w.V[m].copy()
        np.copyto(w.V[m], w.V[n], where=w.mask)
        np.copyto(w.V[n], x, where=w.mask)

    return run


def _accvgpr(a: Access) -> Callable[[Wave], None]:
    get, put = a.src(1, "u32"), a.dst(0, "u32")
    a.copies = a.lanewise = True
    return lambda w: put(w, get(w))


_NAMES: dict[str, Callable[[Access], Callable[[Wave], None] | None]] = {
    "v_cndmask_b32": _cndmask, "v_readlane_b32": _read_lane, "v_readfirstlane_b32": _read_lane,
    "v_writelane_b32": _write_lane, "v_mbcnt_lo_u32_b32": _mbcnt, "v_mbcnt_hi_u32_b32": _mbcnt, "v_swap_b32": _swap,
    "v_mad_u64_u32": _mad64, "v_mad_i64_i32": _mad64, "v_accvgpr_read_b32": _accvgpr, "v_accvgpr_write_b32": _accvgpr,
    "v_accvgpr_mov_b32": _accvgpr, "v_div_scale_f32": _div_scale, "v_div_scale_f64": _div_scale,
    "v_div_fmas_f32": _div_fmas, "v_div_fmas_f64": _div_fmas, "v_nop": lambda a: lambda w: None,
    **{f"v_{n}_co_u32": _carry for n in ("add", "sub", "subrev", "addc", "subb", "subbrev")},
    **{f"v_{n}_{t}": _accumulate for n in ("fmac", "fmamk", "fmaak") for t in ("f32", "f16", "f64")},
}  # fmt: skip


def decode_special(a: Access) -> Callable[[Wave], None] | None:
    """The function that executes one of these instructions, or None."""
    if a.base.startswith(("v_cmp_", "v_cmpx_")):
        return decode_compare(a)
    make = _NAMES.get(a.base)
    return make(a) if make else None
