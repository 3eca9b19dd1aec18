# SPDX-License-Identifier: MIT
"""Integer, bit and byte instructions of the vector ALU.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP1", "VOP2", "VOP3A".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.arithmetic import median3
from cdna.run.vector.rows import Rows

__all__ = ["add_integer_rows"]


def _high(dtype: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: (a.astype(dtype) * b.astype(dtype) >> dtype(32)).astype(np.uint32)


def _shift(x: Any, bits: int) -> Any:
    return x & x.dtype.type(bits - 1)


def _perm(a: Any, b: Any, selector: Any) -> Any:
    """V_PERM_B32: each byte of the selector picks one of eight bytes (``a`` holds 4 to 7) or a constant."""
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
    total = c
    for i in range(4):
        x, y = (v >> np.uint32(8 * i) & np.uint32(0xFF) for v in (a, b))
        total = total + (np.maximum(x, y) - np.minimum(x, y))
    return total


def _signed24(x: Any) -> Any:
    return (x << np.int32(8)) >> np.int32(8)


def _unsigned24(x: Any) -> Any:
    return x & np.uint32(0xFFFFFF)


def add_integer_rows(rows: Rows) -> None:
    """Rows of the integer and bit instructions."""
    add = rows.add
    add("v_mov_b32", "u32", "u32", lambda a: a)
    add("v_mov_b64", "u64", "u64", lambda a: a)
    add("v_not_b32", "u32", "u32", lambda a: ~a)
    add("v_bfrev_b32", "u32", "u32", _reverse_bits)
    add("v_ffbh_u32", "u32", "u32", _first_high)
    add("v_ffbl_b32", "u32", "u32", _first_low)
    add("v_ffbh_i32", "u32", "i32", lambda a: _first_high((a ^ a >> np.int32(31)).view(np.uint32)))
    # Integers
    add("v_add_u32", "u32", "u32 u32", np.add)
    add("v_sub_u32", "u32", "u32 u32", np.subtract)
    add("v_subrev_u32", "u32", "u32 u32", lambda a, b: b - a)
    add("v_add_i32", "i32", "i32 i32", np.add)
    add("v_sub_i32", "i32", "i32 i32", np.subtract)
    add("v_mul_lo_u32", "u32", "u32 u32", np.multiply)
    add("v_mul_hi_u32", "u32", "u32 u32", _high(np.uint64))
    add("v_mul_hi_i32", "u32", "i32 i32", _high(np.int64))
    add("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: _unsigned24(a) * _unsigned24(b))
    add("v_mul_i32_i24", "i32", "i32 i32", lambda a, b: _signed24(a) * _signed24(b))
    add("v_mul_hi_u32_u24", "u32", "u32 u32", lambda a, b: _high(np.uint64)(_unsigned24(a), _unsigned24(b)))
    add("v_mul_hi_i32_i24", "u32", "i32 i32", lambda a, b: _high(np.int64)(_signed24(a), _signed24(b)))
    add("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c)
    add("v_mad_i32_i24", "i32", "i32 i32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c)
    add("v_and_b32", "u32", "u32 u32", np.bitwise_and)
    add("v_or_b32", "u32", "u32 u32", np.bitwise_or)
    add("v_xor_b32", "u32", "u32 u32", np.bitwise_xor)
    add("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b))
    add("v_lshlrev_b32", "u32", "u32 u32", lambda s, a: a << _shift(s, 32))
    add("v_lshrrev_b32", "u32", "u32 u32", lambda s, a: a >> _shift(s, 32))
    add("v_ashrrev_i32", "i32", "i32 i32", lambda s, a: a >> _shift(s, 32))
    add("v_lshlrev_b64", "u64", "u32 u64", lambda s, a: a << _shift(s, 64).astype(np.uint64))
    add("v_lshrrev_b64", "u64", "u32 u64", lambda s, a: a >> _shift(s, 64).astype(np.uint64))
    add("v_ashrrev_i64", "i64", "u32 i64", lambda s, a: a >> _shift(s, 64).astype(np.int64))
    add("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, s, c: (a << _shift(s, 32)) + c)
    add("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, s: a + b << _shift(s, 32))
    add("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, s, c: a << _shift(s, 32) | c)
    add("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: a & b | c)
    add("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c)
    add("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c)
    add("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c)
    add("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, s, c: (a << _shift(s, 8).astype(np.uint64)) + c)
    add("v_bfe_u32", "u32", "u32 u32 u32", _bfe)
    add("v_bfe_i32", "i32", "i32 u32 u32", _bfe)
    add("v_bfi_b32", "u32", "u32 u32 u32", lambda m, a, b: m & a | ~m & b)
    add("v_bfm_b32", "u32", "u32 u32", lambda n, s: ((np.uint32(1) << _shift(n, 32)) - np.uint32(1)) << _shift(s, 32))
    add("v_alignbit_b32", "u32", "u32 u32 u32", _align(1))
    add("v_alignbyte_b32", "u32", "u32 u32 u32", _align(8))
    add("v_perm_b32", "u32", "u32 u32 u32", _perm)
    add("v_bcnt_u32_b32", "u32", "u32 u32", lambda a, b: _count(a) + b)
    add("v_sad_u8", "u32", "u32 u32 u32", _sad)
    add("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
    for _t in ("u32", "i32", "u16", "i16"):
        _merge = _t.endswith("16")
        add(f"v_min_{_t}", _t, f"{_t} {_t}", np.minimum)
        add(f"v_max_{_t}", _t, f"{_t} {_t}", np.maximum)
        add(f"v_min3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: np.minimum(np.minimum(a, b), c), _merge)
        add(f"v_max3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: np.maximum(np.maximum(a, b), c), _merge)
        add(f"v_med3_{_t}", _t, f"{_t} {_t} {_t}", median3, _merge)
    add("v_add_u16", "u16", "u16 u16", np.add)
    add("v_sub_u16", "u16", "u16 u16", np.subtract)
    add("v_subrev_u16", "u16", "u16 u16", lambda a, b: b - a)
    add("v_mul_lo_u16", "u16", "u16 u16", np.multiply)
    add("v_add_i16", "i16", "i16 i16", np.add, True)
    add("v_sub_i16", "i16", "i16 i16", np.subtract, True)
    add("v_mad_u16 v_mad_legacy_u16", "u16", "u16 u16 u16", lambda a, b, c: a * b + c, True)
    add("v_mad_i16 v_mad_legacy_i16", "i16", "i16 i16 i16", lambda a, b, c: a * b + c, True)
    add("v_lshlrev_b16", "u16", "u16 u16", lambda s, a: a << _shift(s, 16))
    add("v_lshrrev_b16", "u16", "u16 u16", lambda s, a: a >> _shift(s, 16))
    add("v_ashrrev_i16", "i16", "i16 i16", lambda s, a: a >> _shift(s, 16))
