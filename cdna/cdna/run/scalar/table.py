# SPDX-License-Identifier: MIT
"""What the scalar instructions compute, as functions of Python integers.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "SOP2", "SOP1", "SOPC".
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["COMPARE", "LOGIC", "M32", "M64", "ONE", "TWO", "add_i", "signed"]

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x: int, bits: int = 32) -> int:
    """Two's complement.

    >>> signed(0xFFFFFFFE), signed(3)
    (-2, 3)
    """
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def _overflow(a: int, b: int, r: int) -> int:
    return int(not -(1 << 31) <= r < 1 << 31)


def add_i(a: int, b: int) -> tuple[int, int]:
    r = signed(a) + signed(b)
    return r & M32, _overflow(a, b, r)


def _sub_i(a: int, b: int) -> tuple[int, int]:
    r = signed(a) - signed(b)
    return r & M32, _overflow(a, b, r)


def _shift_add(n: int) -> Callable[[int, int], tuple[int, int]]:
    return lambda a, b: (((a << n) + b) & M32, (a << n) + b >> 32 != 0)


def _nonzero(f: Callable[[int, int], int], mask: int = M32) -> Callable[[int, int], tuple[int, int]]:
    def both(a: int, b: int) -> tuple[int, int]:
        r = f(a, b) & mask
        return r, int(r != 0)

    return both


def _bfe(bits: int, sign: bool) -> Callable[[int, int], tuple[int, int]]:
    def field(a: int, b: int) -> tuple[int, int]:
        offset, width = b & (bits - 1), b >> 16 & 0x7F
        r = a >> offset & ((1 << min(width, bits)) - 1)
        if sign and width and width < bits and r >> (width - 1) & 1:
            r = (r - (1 << width)) & ((1 << bits) - 1)
        return r, int(r != 0)

    return field


# Results with SCC: name -> (bits of sources and result, function to (result, SCC or None)).
TWO: dict[str, tuple[int, Callable[[int, int], tuple[int, int | None]]]] = {
    "s_add_u32": (32, lambda a, b: ((a + b) & M32, (a + b) >> 32)),
    "s_sub_u32": (32, lambda a, b: ((a - b) & M32, int(b > a))),
    "s_add_i32": (32, add_i),
    "s_sub_i32": (32, _sub_i),
    "s_min_i32": (32, lambda a, b: (a, 1) if signed(a) < signed(b) else (b, 0)),
    "s_min_u32": (32, lambda a, b: (a, 1) if a < b else (b, 0)),
    "s_max_i32": (32, lambda a, b: (a, 1) if signed(a) > signed(b) else (b, 0)),
    "s_max_u32": (32, lambda a, b: (a, 1) if a > b else (b, 0)),
    "s_mul_i32": (32, lambda a, b: (a * b & M32, None)),
    "s_mul_hi_u32": (32, lambda a, b: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, lambda a, b: (signed(a) * signed(b) >> 32 & M32, None)),
    "s_bfm_b32": (32, lambda a, b: (((1 << (a & 31)) - 1) << (b & 31) & M32, None)),
    "s_bfm_b64": (6432, lambda a, b: (((1 << (a & 63)) - 1) << (b & 63) & M64, None)),
    "s_lshl_b32": (32, _nonzero(lambda a, b: a << (b & 31))),
    "s_lshr_b32": (32, _nonzero(lambda a, b: a >> (b & 31))),
    "s_ashr_i32": (32, _nonzero(lambda a, b: signed(a) >> (b & 31))),
    "s_lshl_b64": (6432, _nonzero(lambda a, b: a << (b & 63), M64)),
    "s_lshr_b64": (6432, _nonzero(lambda a, b: a >> (b & 63), M64)),
    "s_ashr_i64": (6432, _nonzero(lambda a, b: signed(a, 64) >> (b & 63), M64)),
    "s_bfe_u32": (32, _bfe(32, False)),
    "s_bfe_i32": (32, _bfe(32, True)),
    "s_bfe_u64": (6432, _bfe(64, False)),
    "s_bfe_i64": (6432, _bfe(64, True)),
    "s_absdiff_i32": (32, _nonzero(lambda a, b: abs(signed(a) - signed(b)))),
    "s_pack_ll_b32_b16": (32, lambda a, b: (a & 0xFFFF | (b & 0xFFFF) << 16, None)),
    "s_pack_lh_b32_b16": (32, lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None)),
    "s_pack_hh_b32_b16": (32, lambda a, b: (a >> 16 | b & 0xFFFF0000, None)),
    **{f"s_lshl{n}_add_u32": (32, _shift_add(n)) for n in (1, 2, 3, 4)},
}
LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _f in LOGIC.items():
    TWO[f"s_{_name}_b32"] = (32, _nonzero(_f))
    TWO[f"s_{_name}_b64"] = (64, _nonzero(_f, M64))


def _first(x: int, bits: int) -> int:
    return (x & -x).bit_length() - 1 if x else M32


def _leading(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else M32


def _same_sign_bits(x: int, bits: int) -> int:
    x = x ^ ((1 << bits) - 1) if x >> (bits - 1) else x
    return bits - x.bit_length() if x else M32


def _quad(x: int, bits: int) -> int:
    return sum(1 << q for q in range(bits // 4) if x >> 4 * q & 15)


def _wqm(x: int, bits: int) -> int:
    return sum(15 << 4 * q for q in range(bits // 4) if x >> 4 * q & 15)


def _reverse(x: int, bits: int) -> int:
    return int(format(x, f"0{bits}b")[::-1], 2)


def _sign_extended(bits: int) -> Callable[[int, int], int]:
    return lambda x, _: signed(x & ((1 << bits) - 1), bits) & M32


# name -> (source bits, result bits, function of (value, source bits), whether SCC = (result != 0)).
ONE: dict[str, tuple[int, int, Callable[[int, int], int], bool]] = {
    "s_sext_i32_i8": (32, 32, _sign_extended(8), False),
    "s_sext_i32_i16": (32, 32, _sign_extended(16), False),
    "s_abs_i32": (32, 32, lambda x, _: abs(signed(x)) & M32, True),
}
for _bits in (32, 64):
    _all = (1 << _bits) - 1
    ONE |= {
        f"s_mov_b{_bits}": (_bits, _bits, lambda x, _: x, False),
        f"s_not_b{_bits}": (_bits, _bits, lambda x, n: x ^ ((1 << n) - 1), True),
        f"s_wqm_b{_bits}": (_bits, _bits, _wqm, True),
        f"s_quadmask_b{_bits}": (_bits, _bits, _quad, True),
        f"s_brev_b{_bits}": (_bits, _bits, _reverse, False),
        f"s_bcnt0_i32_b{_bits}": (_bits, 32, lambda x, n: n - x.bit_count(), True),
        f"s_bcnt1_i32_b{_bits}": (_bits, 32, lambda x, n: x.bit_count(), True),
        f"s_ff0_i32_b{_bits}": (_bits, 32, lambda x, n: _first(x ^ ((1 << n) - 1), n), False),
        f"s_ff1_i32_b{_bits}": (_bits, 32, _first, False),
        f"s_flbit_i32_b{_bits}": (_bits, 32, _leading, False),
        "s_flbit_i32" + ("_i64" if _bits == 64 else ""): (_bits, 32, _same_sign_bits, False),
    }
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
