# SPDX-License-Identifier: MIT
"""Floating-point instructions of the vector ALU, and conversions.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "VOP1", "VOP2", "VOP3A".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.vector.arithmetic import (
    div_fixup,
    fma16,
    fma32,
    fma64,
    max_num,
    median3,
    min_num,
    transcendental,
    two_over_pi,
)
from cdna.run.vector.convert import FLOAT8, round_toward_zero_f16, saturate
from cdna.run.vector.rows import Rows

__all__ = ["add_float_rows"]


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


def add_float_rows(rows: Rows) -> None:
    """Rows of the floating-point instructions and conversions."""
    add = rows.add
    # Floats
    for _t in ("f32", "f16", "f64"):
        add(f"v_add_{_t}", _t, f"{_t} {_t}", np.add)
        add(f"v_sub_{_t}", _t, f"{_t} {_t}", np.subtract)
        add(f"v_subrev_{_t}", _t, f"{_t} {_t}", lambda a, b: b - a)
        add(f"v_mul_{_t}", _t, f"{_t} {_t}", np.multiply)
        add(f"v_min_{_t}", _t, f"{_t} {_t}", min_num)
        add(f"v_max_{_t}", _t, f"{_t} {_t}", max_num)
        add(f"v_min3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: min_num(min_num(a, b), c), _t == "f16")
        add(f"v_max3_{_t}", _t, f"{_t} {_t} {_t}", lambda a, b, c: max_num(max_num(a, b), c), _t == "f16")
        add(f"v_med3_{_t}", _t, f"{_t} {_t} {_t}", median3, _t == "f16")
        add(f"v_trunc_{_t}", _t, _t, np.trunc)
        add(f"v_ceil_{_t}", _t, _t, np.ceil)
        add(f"v_floor_{_t}", _t, _t, np.floor)
        add(f"v_rndne_{_t}", _t, _t, np.rint)
        add(f"v_fract_{_t}", _t, _t, _fract)
        add(f"v_frexp_mant_{_t}", _t, _t, _frexp_mantissa)
        add(f"v_div_fixup_{_t}", _t, f"{_t} {_t} {_t}", div_fixup, _t == "f16")
    add("v_mul_legacy_f32", "f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))
    add("v_fma_f32", "f32", "f32 f32 f32", fma32)
    add("v_fma_f16", "f16", "f16 f16 f16", fma16, True)
    add("v_fma_f64", "f64", "f64 f64 f64", fma64)
    add("v_trig_preop_f64", "f64", "f64 u32", two_over_pi)
    add("v_frexp_exp_i32_f32", "i32", "f32", _frexp_exponent)
    add("v_frexp_exp_i32_f64", "i32", "f64", _frexp_exponent)
    add("v_frexp_exp_i16_f16", "i16", "f16", lambda a: _frexp_exponent(a).astype(np.int16))
    add("v_ldexp_f32", "f32", "f32 i32", _ldexp)
    add("v_ldexp_f16", "f16", "f16 i16", _ldexp)
    add("v_ldexp_f64", "f64", "f64 i32", lambda x, e: np.ldexp(x, np.clip(e, -2200, 2200)))
    _UNARY = {
        "exp": np.exp2,
        "log": np.log2,
        "rcp": lambda x: 1 / x,
        "rsq": lambda x: 1 / np.sqrt(x),
        "sqrt": np.sqrt,
        "sin": lambda x: np.sin(2 * np.pi * (x - np.floor(x))),
        "cos": lambda x: np.cos(2 * np.pi * (x - np.floor(x))),
    }
    for _name, _f in _UNARY.items():
        add(f"v_{_name}_f32", "f32", "f32", lambda x, _f=_f: transcendental(_f, x))
        add(f"v_{_name}_f16", "f16", "f16", lambda x, _f=_f: _f(x.astype(np.float64)).astype(np.float16))
        if _name in ("rcp", "rsq", "sqrt"):
            add(f"v_{_name}_f64", "f64", "f64", _f)
    rows["v_rcp_iflag_f32"] = rows["v_rcp_f32"]
    # Conversions
    add("v_cvt_f32_i32", "f32", "i32", lambda a: a.astype(np.float32))
    add("v_cvt_f32_u32", "f32", "u32", lambda a: a.astype(np.float32))
    add("v_cvt_f32_f16", "f32", "f16", lambda a: a.astype(np.float32))
    add("v_cvt_f16_f32", "f16", "f32", lambda a: a.astype(np.float16))
    add("v_cvt_f32_f64", "f32", "f64", lambda a: a.astype(np.float32))
    add("v_cvt_f64_f32", "f64", "f32", lambda a: np.asarray(a, np.float64))
    add("v_cvt_f64_i32", "f64", "i32", lambda a: np.asarray(a, np.float64))
    add("v_cvt_f64_u32", "f64", "u32", lambda a: np.asarray(a, np.float64))
    add("v_cvt_i32_f32 v_cvt_i32_f64", "i32", "f32", lambda a: saturate(a, np.int32))
    add("v_cvt_u32_f32 v_cvt_u32_f64", "u32", "f32", lambda a: saturate(a, np.uint32))
    rows["v_cvt_i32_f64"] = rows["v_cvt_i32_f32"]._replace(sources=("f64",))
    rows["v_cvt_u32_f64"] = rows["v_cvt_u32_f32"]._replace(sources=("f64",))
    add("v_cvt_rpi_i32_f32", "i32", "f32", lambda a: saturate(np.floor(np.asarray(a, np.float64) + 0.5), np.int32))
    add("v_cvt_flr_i32_f32", "i32", "f32", lambda a: saturate(np.floor(a), np.int32))
    add("v_cvt_f16_u16", "f16", "u16", lambda a: a.astype(np.float16))
    add("v_cvt_f16_i16", "f16", "i16", lambda a: a.astype(np.float16))
    add("v_cvt_u16_f16", "u16", "f16", lambda a: saturate(a, np.uint16))
    add("v_cvt_i16_f16", "i16", "f16", lambda a: saturate(a, np.int16))
    for _i in range(4):
        add(
            f"v_cvt_f32_ubyte{_i}",
            "f32",
            "u32",
            lambda a, _i=_i: (a >> np.uint32(8 * _i) & np.uint32(0xFF)).astype(np.float32),
        )
    for _kind, _table in FLOAT8.items():
        add(f"v_cvt_f32_{_kind}", "f32", "u32", lambda a, _table=_table: _table[a & np.uint32(0xFF)])
    add("v_pack_b32_f16", "u32", "f16 f16", _pair)
    add("v_cvt_pkrtz_f16_f32", "u32", "f32 f32", lambda a, b: _pair(round_toward_zero_f16(a), round_toward_zero_f16(b)))
    add("v_cvt_pknorm_i16_f32", "u32", "f32 f32", lambda a, b: _pair(*map(_norm(32767, np.int16), (a, b))))
    add("v_cvt_pknorm_u16_f32", "u32", "f32 f32", lambda a, b: _pair(*map(_norm(65535, np.uint16), (a, b))))
    add(
        "v_cvt_pk_u16_u32",
        "u32",
        "u32 u32",
        lambda a, b: _pair(*(np.minimum(x, 65535).astype(np.uint16) for x in (a, b))),
    )
    add(
        "v_cvt_pk_i16_i32",
        "u32",
        "i32 i32",
        lambda a, b: _pair(*(np.clip(x, -32768, 32767).astype(np.int16) for x in (a, b))),
    )
