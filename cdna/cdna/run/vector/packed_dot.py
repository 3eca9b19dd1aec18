# SPDX-License-Identifier: MIT
"""Dot products within a lane, and conversions to and from 8-bit floats, which pack several numbers in a register.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "VOP3P", V_CVT_PK_FP8_F32 and neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.access import Access
from cdna.run.vector.convert import FLOAT8, bf16_to_f32, f32_to_f8, stochastic_f8
from cdna.run.wave import Wave

__all__ = ["DOTS", "dot", "from_f8", "selectors", "to_f8"]

_LOW = np.uint32(0xFFFF)


def selectors(a: Access, n: int) -> list[tuple[int, ...]]:
    """op_sel, op_sel_hi, neg_lo and neg_hi for ``n`` sources."""
    return [a.bits("op_sel", (0,) * n), a.bits("op_sel_hi", (1,) * n), a.bits("neg_lo", (0,) * n),
            a.bits("neg_hi", (0,) * n)]  # fmt: skip


def _bytes(x: Any, signed: bool, bits: int) -> list[Any]:
    out = []
    for i in range(32 // bits):
        v = (x >> np.uint32(i * bits) & np.uint32((1 << bits) - 1)).astype(np.int64)
        out.append(np.where(v >> (bits - 1) == 1, v - (1 << bits), v) if signed else v)
    return out


DOTS = {"dot2_f32_f16": ("f16", 0), "dot2c_f32_f16": ("f16", 0), "dot2_f32_bf16": ("bf16", 0),
         "dot2_i32_i16": ("i", 16), "dot2_u32_u16": ("u", 16), "dot2c_i32_i16": ("i", 16), "dot4_i32_i8": ("i", 8),
         "dot4c_i32_i8": ("i", 8), "dot4_u32_u8": ("u", 8), "dot8_i32_i4": ("i", 4), "dot8_u32_u4": ("u", 4),
         "dot8c_i32_i4": ("i", 4)}  # fmt: skip


def dot(a: Access) -> Callable[[Wave], None]:
    """Products of two, four or eight pairs, added to an accumulator."""
    kind, bits = DOTS[a.base.removeprefix("v_")]
    x, y = a.src(1, "h32"), a.src(2, "h32")
    accumulates = len(a) == 3
    sel, sel_hi, neg, neg_hi = selectors(a, 3)
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


def to_f8(a: Access) -> Callable[[Wave], None]:
    """v_cvt_pk_*: two values into a half (``op_sel`` bit 2); v_cvt_sr_*: one into the byte of op_sel bits 2, 3.

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


def from_f8(a: Access) -> Callable[[Wave], None]:
    """v_cvt_pk_f32_fp8: two bytes to two float32."""
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
