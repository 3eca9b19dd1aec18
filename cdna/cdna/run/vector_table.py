# SPDX-License-Identifier: MIT
"""The table of the vector ALU: one row an instruction, with the types of its result and sources, and its function.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP1", "VOP2", "VOP3A".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cdna.run.arithmetic import (
    FLOAT8,
    div_fixup,
    fma16,
    fma32,
    fma64,
    max_num,
    median3,
    min_num,
    saturate,
    transcendental,
    two_over_pi,
)
from cdna.run.rounding import round_to

__all__ = []


class Row(NamedTuple):
    """Result type, source types, function; ``merge`` keeps the other half of a 16-bit result (VOP3 with op_sel)."""

    result: str
    sources: tuple[str, ...]
    f: Callable[..., Any]
    merge: bool = False


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


def _pair(low: Any, high: Any) -> Any:
    return low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)


def _norm(scale: float, dtype: Any) -> Callable[[Any], Any]:
    return lambda x: saturate(np.rint(np.clip(x.astype(np.float64), -1 if dtype == np.int16 else 0, 1) * scale), dtype)


def _high(dtype: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: (a.astype(dtype) * b.astype(dtype) >> dtype(32)).astype(np.uint32)


def _shift(x: Any, bits: int) -> Any:
    return x & x.dtype.type(bits - 1)


def _perm(a: Any, b: Any, selector: Any) -> Any:
    """Permute bytes as V_PERM_B32 does: each byte of the selector picks one of eight bytes (``a`` holds 4 to
    7) or a constant.
    """
    if np.ndim(selector) == 0 and not int(selector) & 0x08080808:
        pair = np.empty((max(np.size(a), np.size(b)), 2), np.uint32)
        pair[:, 0] = b
        pair[:, 1] = a
        return pair.view(np.uint8).take([int(selector) >> 8 * i & 7 for i in range(4)], axis=1).view(np.uint32)[:, 0]
    both = b.astype(np.uint64) | a.astype(np.uint64) << np.uint64(32)
    out = np.zeros(np.broadcast_shapes(both.shape, np.shape(selector)), np.uint32)
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


def _first_high(x: Any) -> Any:
    """Return the zeros above the highest bit set; all ones if there is none."""
    _, e = np.frexp(np.asarray(x, np.float64))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), (32 - e).astype(np.uint32))


def _first_low(x: Any) -> Any:
    low = x & (~x + np.uint32(1))
    return np.where(x == 0, np.uint32(0xFFFFFFFF), np.uint32(31) - _first_high(low))


def _sad(a: Any, b: Any, c: Any) -> Any:
    total = c
    for i in range(4):
        x, y = (v >> np.uint32(8 * i) & np.uint32(0xFF) for v in (a, b))
        total = total + (np.maximum(x, y) - np.minimum(x, y))
    return total


def _signed24(x: Any) -> Any:
    return (x << np.int32(8)) >> np.int32(8)


def _unsigned24(x: Any) -> Any:
    return x & np.uint32(0xFFFFFF)


def _half_values(dtype: Any, lowest: int, highest: int) -> Callable[[Any, Any], Any]:
    return lambda a, b: _pair(*(np.clip(x, lowest, highest).astype(dtype) for x in (a, b)))


def _in_f32(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: transcendental(f, x)


def _in_f16(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: f(x.astype(np.float64)).astype(np.float16)


_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": lambda x: np.sin(2 * np.pi * (x - np.floor(x))),
    "cos": lambda x: np.cos(2 * np.pi * (x - np.floor(x))),
}
_FLOATS, _INTEGERS = "f32 f16 f64", "u32 i32 u16 i16"
# Names; the types of the result and of the sources; the function. T stands for each of the types at the end.
_TABLE: tuple[tuple[str, str, Callable[..., Any]] | tuple[str, str, Callable[..., Any], str], ...] = (
    # floats
    ("v_add_T", "T T T", np.add, _FLOATS),
    ("v_sub_T", "T T T", np.subtract, _FLOATS),
    ("v_subrev_T", "T T T", lambda a, b: b - a, _FLOATS),
    ("v_mul_T", "T T T", np.multiply, _FLOATS),
    ("v_min_T", "T T T", min_num, _FLOATS),
    ("v_max_T", "T T T", max_num, _FLOATS),
    ("v_min3_T", "T T T T", lambda a, b, c: min_num(min_num(a, b), c), _FLOATS),
    ("v_max3_T", "T T T T", lambda a, b, c: max_num(max_num(a, b), c), _FLOATS),
    ("v_med3_T", "T T T T", median3, _FLOATS),
    ("v_trunc_T", "T T", np.trunc, _FLOATS),
    ("v_ceil_T", "T T", np.ceil, _FLOATS),
    ("v_floor_T", "T T", np.floor, _FLOATS),
    ("v_rndne_T", "T T", np.rint, _FLOATS),
    ("v_fract_T", "T T", _fract, _FLOATS),
    ("v_frexp_mant_T", "T T", _frexp_mantissa, _FLOATS),
    ("v_div_fixup_T", "T T T T", div_fixup, _FLOATS),
    ("v_mul_legacy_f32", "f32 f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    ("v_fma_f32", "f32 f32 f32 f32", fma32),
    ("v_fma_f16", "f16 f16 f16 f16", fma16),
    ("v_fma_f64", "f64 f64 f64 f64", fma64),
    ("v_trig_preop_f64", "f64 f64 u32", two_over_pi),
    ("v_frexp_exp_i32_T", "i32 T", _frexp_exponent, "f32 f64"),
    ("v_frexp_exp_i16_f16", "i16 f16", lambda a: _frexp_exponent(a).astype(np.int16)),
    ("v_ldexp_f32", "f32 f32 i32", _ldexp),
    ("v_ldexp_f16", "f16 f16 i16", _ldexp),
    ("v_ldexp_f64", "f64 f64 i32", lambda x, e: np.ldexp(x, np.clip(e, -2200, 2200))),
    *((f"v_{_op}_f32", "f32 f32", _in_f32(_compute)) for _op, _compute in _UNARY.items()),
    *((f"v_{_op}_f16", "f16 f16", _in_f16(_compute)) for _op, _compute in _UNARY.items()),
    *((f"v_{_op}_f64", "f64 f64", _UNARY[_op]) for _op in ("rcp", "rsq", "sqrt")),
    ("v_rcp_iflag_f32", "f32 f32", _in_f32(_UNARY["rcp"])),
    # conversions
    ("v_cvt_f32_T", "f32 T", lambda a: a.astype(np.float32), "i32 u32 f16 f64"),
    ("v_cvt_f16_T", "f16 T", lambda a: a.astype(np.float16), "f32 u16 i16"),
    ("v_cvt_f64_T", "f64 T", lambda a: np.asarray(a, np.float64), "f32 i32 u32"),
    ("v_cvt_i32_T", "i32 T", lambda a: saturate(a, np.int32), "f32 f64"),
    ("v_cvt_u32_T", "u32 T", lambda a: saturate(a, np.uint32), "f32 f64"),
    ("v_cvt_i16_f16", "i16 f16", lambda a: saturate(a, np.int16)),
    ("v_cvt_u16_f16", "u16 f16", lambda a: saturate(a, np.uint16)),
    ("v_cvt_rpi_i32_f32", "i32 f32", lambda a: saturate(np.floor(np.asarray(a, np.float64) + 0.5), np.int32)),
    ("v_cvt_flr_i32_f32", "i32 f32", lambda a: saturate(np.floor(a), np.int32)),
    ("v_cvt_f32_ubyte0", "f32 u32", lambda a: (a & np.uint32(0xFF)).astype(np.float32)),
    ("v_cvt_f32_ubyte1", "f32 u32", lambda a: (a >> np.uint32(8) & np.uint32(0xFF)).astype(np.float32)),
    ("v_cvt_f32_ubyte2", "f32 u32", lambda a: (a >> np.uint32(16) & np.uint32(0xFF)).astype(np.float32)),
    ("v_cvt_f32_ubyte3", "f32 u32", lambda a: (a >> np.uint32(24)).astype(np.float32)),
    ("v_cvt_f32_fp8", "f32 u32", lambda a: FLOAT8["fp8"][a & np.uint32(0xFF)]),
    ("v_cvt_f32_bf8", "f32 u32", lambda a: FLOAT8["bf8"][a & np.uint32(0xFF)]),
    ("v_pack_b32_f16", "u32 f16 f16", _pair),
    ("v_cvt_pkrtz_f16_f32", "u32 f32 f32", lambda a, b: _pair(*(round_to(x, np.float16, 3) for x in (a, b)))),
    ("v_cvt_pknorm_i16_f32", "u32 f32 f32", lambda a, b: _pair(*map(_norm(32767, np.int16), (a, b)))),
    ("v_cvt_pknorm_u16_f32", "u32 f32 f32", lambda a, b: _pair(*map(_norm(65535, np.uint16), (a, b)))),
    ("v_cvt_pk_u16_u32", "u32 u32 u32", _half_values(np.uint16, 0, 65535)),
    ("v_cvt_pk_i16_i32", "u32 i32 i32", _half_values(np.int16, -32768, 32767)),
    # bits
    ("v_mov_b32", "u32 u32", lambda a: a),
    ("v_mov_b64", "u64 u64", lambda a: a),
    ("v_not_b32", "u32 u32", lambda a: ~a),
    ("v_bfrev_b32", "u32 u32", _reverse_bits),
    ("v_ffbh_u32", "u32 u32", _first_high),
    ("v_ffbl_b32", "u32 u32", _first_low),
    ("v_ffbh_i32", "u32 i32", lambda a: _first_high((a ^ a >> np.int32(31)).view(np.uint32))),
    ("v_and_b32", "u32 u32 u32", np.bitwise_and),
    ("v_or_b32", "u32 u32 u32", np.bitwise_or),
    ("v_xor_b32", "u32 u32 u32", np.bitwise_xor),
    ("v_xnor_b32", "u32 u32 u32", lambda a, b: ~(a ^ b)),
    ("v_lshlrev_b32", "u32 u32 u32", lambda s, a: a << _shift(s, 32)),
    ("v_lshrrev_b32", "u32 u32 u32", lambda s, a: a >> _shift(s, 32)),
    ("v_ashrrev_i32", "i32 i32 i32", lambda s, a: a >> _shift(s, 32)),
    ("v_lshlrev_b64", "u64 u32 u64", lambda s, a: a << _shift(s, 64).astype(np.uint64)),
    ("v_lshrrev_b64", "u64 u32 u64", lambda s, a: a >> _shift(s, 64).astype(np.uint64)),
    ("v_ashrrev_i64", "i64 u32 i64", lambda s, a: a >> _shift(s, 64).astype(np.int64)),
    ("v_lshlrev_b16", "u16 u16 u16", lambda s, a: a << _shift(s, 16)),
    ("v_lshrrev_b16", "u16 u16 u16", lambda s, a: a >> _shift(s, 16)),
    ("v_ashrrev_i16", "i16 i16 i16", lambda s, a: a >> _shift(s, 16)),
    ("v_lshl_or_b32", "u32 u32 u32 u32", lambda a, s, c: a << _shift(s, 32) | c),
    ("v_and_or_b32", "u32 u32 u32 u32", lambda a, b, c: a & b | c),
    ("v_or3_b32", "u32 u32 u32 u32", lambda a, b, c: a | b | c),
    ("v_bfe_u32", "u32 u32 u32 u32", _bfe),
    ("v_bfe_i32", "i32 i32 u32 u32", _bfe),
    ("v_bfi_b32", "u32 u32 u32 u32", lambda m, a, b: m & a | ~m & b),
    ("v_bfm_b32", "u32 u32 u32", lambda n, s: ((np.uint32(1) << _shift(n, 32)) - np.uint32(1)) << _shift(s, 32)),
    ("v_alignbit_b32", "u32 u32 u32 u32", _align(1)),
    ("v_alignbyte_b32", "u32 u32 u32 u32", _align(8)),
    ("v_perm_b32", "u32 u32 u32 u32", _perm),
    ("v_bcnt_u32_b32", "u32 u32 u32", lambda a, b: np.bitwise_count(a).astype(np.uint32) + b),
    # integers
    ("v_add_T", "T T T", np.add, "u32 i32 u16 i16"),
    ("v_sub_T", "T T T", np.subtract, "u32 i32 u16 i16"),
    ("v_subrev_T", "T T T", lambda a, b: b - a, "u32 u16"),
    ("v_mul_lo_T", "T T T", np.multiply, "u32 u16"),
    ("v_mul_hi_u32", "u32 u32 u32", _high(np.uint64)),
    ("v_mul_hi_i32", "u32 i32 i32", _high(np.int64)),
    ("v_mul_u32_u24", "u32 u32 u32", lambda a, b: _unsigned24(a) * _unsigned24(b)),
    ("v_mul_i32_i24", "i32 i32 i32", lambda a, b: _signed24(a) * _signed24(b)),
    ("v_mul_hi_u32_u24", "u32 u32 u32", lambda a, b: _high(np.uint64)(_unsigned24(a), _unsigned24(b))),
    ("v_mul_hi_i32_i24", "u32 i32 i32", lambda a, b: _high(np.int64)(_signed24(a), _signed24(b))),
    ("v_mad_u32_u24", "u32 u32 u32 u32", lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c),
    ("v_mad_i32_i24", "i32 i32 i32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c),
    ("v_mad_T v_mad_legacy_T", "T T T T", lambda a, b, c: a * b + c, "u16 i16"),
    ("v_lshl_add_u32", "u32 u32 u32 u32", lambda a, s, c: (a << _shift(s, 32)) + c),
    ("v_add_lshl_u32", "u32 u32 u32 u32", lambda a, b, s: a + b << _shift(s, 32)),
    ("v_xad_u32", "u32 u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    ("v_add3_u32", "u32 u32 u32 u32", lambda a, b, c: a + b + c),
    ("v_lshl_add_u64", "u64 u64 u32 u64", lambda a, s, c: (a << _shift(s, 8).astype(np.uint64)) + c),
    ("v_sad_u8", "u32 u32 u32 u32", _sad),
    ("v_sad_u32", "u32 u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    ("v_min_T", "T T T", np.minimum, _INTEGERS),
    ("v_max_T", "T T T", np.maximum, _INTEGERS),
    ("v_min3_T", "T T T T", lambda a, b, c: np.minimum(np.minimum(a, b), c), _INTEGERS),
    ("v_max3_T", "T T T T", lambda a, b, c: np.maximum(np.maximum(a, b), c), _INTEGERS),
    ("v_med3_T", "T T T T", median3, _INTEGERS),
)
# VOP3 instructions of 16 bits, whose op_sel picks the half of the register that is written; the other one stays.
_MERGES = re.compile(r"v_(min3|max3|med3|div_fixup|fma|mad|mad_legacy)_[fui]16|v_(add|sub)_i16")
ROWS: dict[str, Row] = {}
for _names, _types, _f, *_variants in _TABLE:
    for _type in (_variants or ["T"])[0].split():
        _result, *_sources = _types.replace("T", _type).split()
        for _name in _names.replace("T", _type).split():
            ROWS[_name] = Row(_result, tuple(_sources), _f, _MERGES.fullmatch(_name) is not None)
