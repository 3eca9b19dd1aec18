# SPDX-License-Identifier: MIT
"""The vector ALU: one row of a table per instruction, with the types of its result and sources.

Numpy arrays of 64 lanes go in and out; accessors add modifiers, masks and exec (see :mod:`access`).
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP1", "VOP2", "VOP3A".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .access import Access
from .arithmetic import div_fixup, fma16, fma32, fma64, max_num, median3, min_num, transcendental
from .convert import FLOAT8, round_toward_zero_f16, saturate
from .wave import Wave

__all__ = ["ROWS", "decode_vector"]


class Row(NamedTuple):
    """Result type, source types, function; ``merge`` keeps the other half of a 16-bit result (VOP3 with op_sel)."""

    result: str
    sources: tuple[str, ...]
    f: Callable[..., Any]
    merge: bool = False


ROWS: dict[str, Row] = {}


def _add(names: str, result: str, sources: str, f: Callable[..., Any], merge: bool = False) -> None:
    for name in names.split():
        ROWS[name] = Row(result, tuple(sources.split()), f, merge)


def _fract(x: Any) -> Any:
    y = x - np.floor(x)
    return np.where(y >= 1, np.nextafter(x.dtype.type(1), x.dtype.type(0)), y)


def _frexp_exponent(x: Any) -> Any:
    _, e = np.frexp(x)
    return np.where(np.isfinite(x), e, 0).astype(np.int32)


def _frexp_mantissa(x: Any) -> Any:
    m, _ = np.frexp(x)
    return np.where(np.isfinite(x), m, x)


def _ldexp(x: Any, e: Any) -> Any:
    wide = np.ldexp(np.asarray(x, np.float64), np.clip(e, -300, 300))
    return wide.astype(x.dtype)


def _high(dtype: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: (a.astype(dtype) * b.astype(dtype) >> dtype(32)).astype(np.uint32)


def _shift(x: Any, bits: int) -> Any:
    return x & x.dtype.type(bits - 1)


def _perm(a: Any, b: Any, selector: Any) -> Any:
    """V_PERM_B32: each byte of the selector picks one of eight bytes (``a`` holds 4 to 7) or a constant."""
    if np.ndim(selector) == 0 and not int(selector) & 0x08080808:
        pair = np.empty((64, 2), np.uint32)
        pair[:, 0] = b
        pair[:, 1] = a
        return pair.view(np.uint8).take([int(selector) >> 8 * i & 7 for i in range(4)], axis=1).view(np.uint32)[:, 0]
    both = b.astype(np.uint64) | a.astype(np.uint64) << np.uint64(32)
    out = np.zeros(64, np.uint32)
    for i in range(4):
        s = selector >> np.uint32(8 * i) & np.uint32(0xFF)
        byte = (both >> (np.uint64(8) * (s & np.uint32(7)).astype(np.uint64)) & np.uint64(0xFF)).astype(np.uint32)
        sign_at = np.array([15, 31, 47, 63], np.uint64)[s & np.uint32(3)]
        sign = (both >> sign_at & np.uint64(1)).astype(np.uint32) * np.uint32(0xFF)
        byte = np.where(s >= 8, np.where(s < 12, sign, np.where(s == 12, np.uint32(0), np.uint32(0xFF))), byte)
        out |= byte << np.uint32(8 * i)
    return out


def _bfe(a: Any, offset: Any, width: Any) -> Any:
    offset, width = offset & np.uint32(31), width & np.uint32(31)
    if a.dtype == np.uint32:
        return a >> offset & ((np.uint32(1) << width) - np.uint32(1))
    kept = (a >> offset.astype(np.int32)).view(np.uint32)
    left = (np.uint32(32) - width) & np.uint32(31)
    return np.where(width == 0, 0, (kept << left).view(np.int32) >> left.astype(np.int32))


def _align(bits: int) -> Callable[[Any, Any, Any], Any]:
    def f(a: Any, b: Any, s: Any) -> Any:
        both = a.astype(np.uint64) << np.uint64(32) | b.astype(np.uint64)
        amount = (s & np.uint32(31 if bits == 1 else 3)).astype(np.uint64) * np.uint64(bits)
        return (both >> amount & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return f


def _reverse_bits(x: Any) -> Any:
    for shift, keep in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        n, m = np.uint32(shift), np.uint32(keep)
        x = (x >> n & m) | (x & m) << n
    return x.byteswap()


def _count(x: Any) -> Any:
    return np.bitwise_count(x).astype(np.uint32)


def _first_high(x: Any) -> Any:
    """Zeros above the highest bit set; all ones if there is none."""
    _, e = np.frexp(np.asarray(x, np.float64))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), (32 - e).astype(np.uint32))


def _first_low(x: Any) -> Any:
    low = x & (~x + np.uint32(1))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), np.uint32(31) - _first_high(low))


def _sad(a: Any, b: Any, c: Any) -> Any:
    total = c.copy() if isinstance(c, np.ndarray) else np.full(64, c, np.uint32)
    for i in range(4):
        x, y = (v >> np.uint32(8 * i) & np.uint32(0xFF) for v in (a, b))
        total = total + (np.maximum(x, y) - np.minimum(x, y))
    return total


def _signed24(x: Any) -> Any:
    return (x << np.int32(8)) >> np.int32(8)


def _unsigned24(x: Any) -> Any:
    return x & np.uint32(0xFFFFFF)


_add("v_mov_b32", "u32", "u32", lambda a: a)
_add("v_mov_b64", "u64", "u64", lambda a: a)
_add("v_not_b32", "u32", "u32", lambda a: ~a)
_add("v_bfrev_b32", "u32", "u32", _reverse_bits)
_add("v_ffbh_u32", "u32", "u32", _first_high)
_add("v_ffbl_b32", "u32", "u32", _first_low)
_add("v_ffbh_i32", "u32", "i32",
     lambda a: np.where((a == 0) | (a == -1), np.uint32(0xFFFFFFFF), _first_high((a ^ a >> np.int32(31)).view(np.uint32))))  # fmt: skip
# Integers
_add("v_add_u32", "u32", "u32 u32", np.add)
_add("v_sub_u32", "u32", "u32 u32", np.subtract)
_add("v_subrev_u32", "u32", "u32 u32", lambda a, b: b - a)
_add("v_add_i32", "i32", "i32 i32", np.add)
_add("v_sub_i32", "i32", "i32 i32", np.subtract)
_add("v_mul_lo_u32", "u32", "u32 u32", np.multiply)
_add("v_mul_hi_u32", "u32", "u32 u32", _high(np.uint64))
_add("v_mul_hi_i32", "u32", "i32 i32", _high(np.int64))
_add("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: _unsigned24(a) * _unsigned24(b))
_add("v_mul_i32_i24", "i32", "i32 i32", lambda a, b: _signed24(a) * _signed24(b))
_add("v_mul_hi_u32_u24", "u32", "u32 u32", lambda a, b: _high(np.uint64)(_unsigned24(a), _unsigned24(b)))
_add("v_mul_hi_i32_i24", "u32", "i32 i32", lambda a, b: _high(np.int64)(_signed24(a), _signed24(b)))
_add("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c)
_add("v_mad_i32_i24", "i32", "i32 i32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c)
_add("v_and_b32", "u32", "u32 u32", np.bitwise_and)
_add("v_or_b32", "u32", "u32 u32", np.bitwise_or)
_add("v_xor_b32", "u32", "u32 u32", np.bitwise_xor)
_add("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b))
_add("v_lshlrev_b32", "u32", "u32 u32", lambda s, a: a << _shift(s, 32))
_add("v_lshrrev_b32", "u32", "u32 u32", lambda s, a: a >> _shift(s, 32))
_add("v_ashrrev_i32", "i32", "i32 i32", lambda s, a: a >> _shift(s, 32))
_add("v_lshlrev_b64", "u64", "u32 u64", lambda s, a: a << _shift(s, 64).astype(np.uint64))
_add("v_lshrrev_b64", "u64", "u32 u64", lambda s, a: a >> _shift(s, 64).astype(np.uint64))
_add("v_ashrrev_i64", "i64", "u32 i64", lambda s, a: a >> _shift(s, 64).astype(np.int64))
_add("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, s, c: (a << _shift(s, 32)) + c)
_add("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, s: a + b << _shift(s, 32))
_add("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, s, c: a << _shift(s, 32) | c)
_add("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: a & b | c)
_add("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c)
_add("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c)
_add("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c)
_add("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, s, c: (a << _shift(s, 8).astype(np.uint64)) + c)
_add("v_bfe_u32", "u32", "u32 u32 u32", _bfe)
_add("v_bfe_i32", "i32", "i32 u32 u32", _bfe)
_add("v_bfi_b32", "u32", "u32 u32 u32", lambda m, a, b: m & a | ~m & b)
_add("v_bfm_b32", "u32", "u32 u32", lambda n, s: ((np.uint32(1) << _shift(n, 32)) - np.uint32(1)) << _shift(s, 32))
_add("v_alignbit_b32", "u32", "u32 u32 u32", _align(1))
_add("v_alignbyte_b32", "u32", "u32 u32 u32", _align(8))
_add("v_perm_b32", "u32", "u32 u32 u32", _perm)
_add("v_bcnt_u32_b32", "u32", "u32 u32", lambda a, b: _count(a) + b)
_add("v_sad_u8", "u32", "u32 u32 u32", _sad)
_add("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
for _t in ("u32", "i32", "u16", "i16"):
    _merge = _t.endswith("16")
    _add(f"v_min_{_t}", _t, f"{_t} {_t}", np.minimum)
    _add(f"v_max_{_t}", _t, f"{_t} {_t}", np.maximum)
    _add(f"v_min3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: np.minimum(np.minimum(a, b), c), _merge)
    _add(f"v_max3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: np.maximum(np.maximum(a, b), c), _merge)
    _add(f"v_med3_{_t}", _t, f"{_t} {_t} {_t}", median3, _merge)
_add("v_add_u16", "u16", "u16 u16", np.add)
_add("v_sub_u16", "u16", "u16 u16", np.subtract)
_add("v_subrev_u16", "u16", "u16 u16", lambda a, b: b - a)
_add("v_mul_lo_u16", "u16", "u16 u16", np.multiply)
_add("v_add_i16", "i16", "i16 i16", np.add, True)
_add("v_sub_i16", "i16", "i16 i16", np.subtract, True)
_add("v_mad_u16 v_mad_legacy_u16", "u16", "u16 u16 u16", lambda a, b, c: a * b + c, True)
_add("v_mad_i16 v_mad_legacy_i16", "i16", "i16 i16 i16", lambda a, b, c: a * b + c, True)
_add("v_lshlrev_b16", "u16", "u16 u16", lambda s, a: a << _shift(s, 16))
_add("v_lshrrev_b16", "u16", "u16 u16", lambda s, a: a >> _shift(s, 16))
_add("v_ashrrev_i16", "i16", "i16 i16", lambda s, a: a >> _shift(s, 16))
# Floats
for _t in ("f32", "f16", "f64"):
    _add(f"v_add_{_t}", _t, f"{_t} {_t}", np.add)
    _add(f"v_sub_{_t}", _t, f"{_t} {_t}", np.subtract)
    _add(f"v_subrev_{_t}", _t, f"{_t} {_t}", lambda a, b: b - a)
    _add(f"v_mul_{_t}", _t, f"{_t} {_t}", np.multiply)
    _add(f"v_min_{_t}", _t, f"{_t} {_t}", min_num)
    _add(f"v_max_{_t}", _t, f"{_t} {_t}", max_num)
    _add(f"v_min3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: min_num(min_num(a, b), c), _t == "f16")
    _add(f"v_max3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: max_num(max_num(a, b), c), _t == "f16")
    _add(f"v_med3_{_t}", _t, f"{_t} {_t} {_t}", median3, _t == "f16")
    _add(f"v_trunc_{_t}", _t, _t, np.trunc)
    _add(f"v_ceil_{_t}", _t, _t, np.ceil)
    _add(f"v_floor_{_t}", _t, _t, np.floor)
    _add(f"v_rndne_{_t}", _t, _t, np.rint)
    _add(f"v_fract_{_t}", _t, _t, _fract)
    _add(f"v_frexp_mant_{_t}", _t, _t, _frexp_mantissa)
    _add(f"v_div_fixup_{_t}", _t, f"{_t} {_t} {_t}", div_fixup, _t == "f16")
_add("v_mul_legacy_f32", "f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))
_add("v_fma_f32", "f32", "f32 f32 f32", fma32)
_add("v_fma_f16", "f16", "f16 f16 f16", fma16, True)
_add("v_fma_f64", "f64", "f64 f64 f64", fma64)
_add("v_frexp_exp_i32_f32", "i32", "f32", _frexp_exponent)
_add("v_frexp_exp_i32_f64", "i32", "f64", _frexp_exponent)
_add("v_frexp_exp_i16_f16", "i16", "f16", lambda a: _frexp_exponent(a).astype(np.int16))
_add("v_ldexp_f32", "f32", "f32 i32", _ldexp)
_add("v_ldexp_f16", "f16", "f16 i16", _ldexp)
_add("v_ldexp_f64", "f64", "f64 i32", lambda x, e: np.ldexp(x, np.clip(e, -2200, 2200)))
_UNARY = {"exp": np.exp2, "log": np.log2, "rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
          "sin": lambda x: np.sin(2 * np.pi * (x - np.floor(x))),
          "cos": lambda x: np.cos(2 * np.pi * (x - np.floor(x)))}  # fmt: skip
for _name, _f in _UNARY.items():
    _add(f"v_{_name}_f32", "f32", "f32", lambda x, _f=_f: transcendental(_f, x))
    _add(f"v_{_name}_f16", "f16", "f16", lambda x, _f=_f: _f(x.astype(np.float64)).astype(np.float16))
    if _name in ("rcp", "rsq", "sqrt"):
        _add(f"v_{_name}_f64", "f64", "f64", _f)
ROWS["v_rcp_iflag_f32"] = ROWS["v_rcp_f32"]
# Conversions
_add("v_cvt_f32_i32", "f32", "i32", lambda a: a.astype(np.float32))
_add("v_cvt_f32_u32", "f32", "u32", lambda a: a.astype(np.float32))
_add("v_cvt_f32_f16", "f32", "f16", lambda a: a.astype(np.float32))
_add("v_cvt_f16_f32", "f16", "f32", lambda a: a.astype(np.float16))
_add("v_cvt_f32_f64", "f32", "f64", lambda a: a.astype(np.float32))
_add("v_cvt_f64_f32", "f64", "f32", lambda a: np.asarray(a, np.float64))
_add("v_cvt_f64_i32", "f64", "i32", lambda a: np.asarray(a, np.float64))
_add("v_cvt_f64_u32", "f64", "u32", lambda a: np.asarray(a, np.float64))
_add("v_cvt_i32_f32 v_cvt_i32_f64", "i32", "f32", lambda a: saturate(a, np.int32))
_add("v_cvt_u32_f32 v_cvt_u32_f64", "u32", "f32", lambda a: saturate(a, np.uint32))
ROWS["v_cvt_i32_f64"] = ROWS["v_cvt_i32_f32"]._replace(sources=("f64",))
ROWS["v_cvt_u32_f64"] = ROWS["v_cvt_u32_f32"]._replace(sources=("f64",))
_add("v_cvt_rpi_i32_f32", "i32", "f32", lambda a: saturate(np.floor(np.asarray(a, np.float64) + 0.5), np.int32))
_add("v_cvt_flr_i32_f32", "i32", "f32", lambda a: saturate(np.floor(a), np.int32))
_add("v_cvt_f16_u16", "f16", "u16", lambda a: a.astype(np.float16))
_add("v_cvt_f16_i16", "f16", "i16", lambda a: a.astype(np.float16))
_add("v_cvt_u16_f16", "u16", "f16", lambda a: saturate(a, np.uint16))
_add("v_cvt_i16_f16", "i16", "f16", lambda a: saturate(a, np.int16))
for _i in range(4):
    _add(f"v_cvt_f32_ubyte{_i}", "f32", "u32",
         lambda a, _i=_i: (a >> np.uint32(8 * _i) & np.uint32(0xFF)).astype(np.float32))  # fmt: skip
for _kind, _table in FLOAT8.items():
    _add(f"v_cvt_f32_{_kind}", "f32", "u32", lambda a, _table=_table: _table[a & np.uint32(0xFF)])


def _pair(low: Any, high: Any) -> Any:
    return low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)


def _norm(scale: float, dtype: Any) -> Callable[[Any], Any]:
    return lambda x: saturate(np.rint(np.clip(x.astype(np.float64), -1 if dtype == np.int16 else 0, 1) * scale), dtype)


_add("v_pack_b32_f16", "u32", "f16 f16", _pair)
_add("v_cvt_pkrtz_f16_f32", "u32", "f32 f32", lambda a, b: _pair(round_toward_zero_f16(a), round_toward_zero_f16(b)))
_add("v_cvt_pknorm_i16_f32", "u32", "f32 f32", lambda a, b: _pair(*map(_norm(32767, np.int16), (a, b))))
_add("v_cvt_pknorm_u16_f32", "u32", "f32 f32", lambda a, b: _pair(*map(_norm(65535, np.uint16), (a, b))))
_add("v_cvt_pk_u16_u32", "u32", "u32 u32", lambda a, b: _pair(*(np.minimum(x, 65535).astype(np.uint16) for x in (a, b))))
_add("v_cvt_pk_i16_i32", "u32", "i32 i32",
     lambda a, b: _pair(*(np.clip(x, -32768, 32767).astype(np.int16) for x in (a, b))))  # fmt: skip


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
