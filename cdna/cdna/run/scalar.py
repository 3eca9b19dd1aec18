# SPDX-License-Identifier: MIT
"""The scalar unit: arithmetic, bit fields, comparisons, EXEC masks, scalar loads. Values are Python integers.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "SOP2", "SOPK", "SOP1", "SOPC", "Scalar Memory
Operations".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.access import Access
from cdna.run.errors import RunError
from cdna.run.in_flight import issue_scalar
from cdna.run.memory import gather
from cdna.run.state import Flight, Run, Wave

__all__ = []

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1


def _signed(x: int, bits: int = 32) -> int:
    """Return the value of ``bits`` bits in two's complement.

    >>> _signed(0xFFFFFFFE), _signed(3)
    (-2, 3)
    """
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def _overflow(a: int, b: int, r: int) -> int:
    return int(not -(1 << 31) <= r < 1 << 31)


def _add_i(a: int, b: int) -> tuple[int, int]:
    r = _signed(a) + _signed(b)
    return r & _M32, _overflow(a, b, r)


def _sub_i(a: int, b: int) -> tuple[int, int]:
    r = _signed(a) - _signed(b)
    return r & _M32, _overflow(a, b, r)


def _shift_add(n: int) -> Callable[[int, int], tuple[int, int]]:
    return lambda a, b: (((a << n) + b) & _M32, (a << n) + b >> 32 != 0)


def _nonzero(f: Callable[[int, int], int], mask: int = _M32) -> Callable[[int, int], tuple[int, int]]:
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


# Results with SCC: name -> (bits of sources and result, function to (result, SCC or None)). 6432: the second source has
# 32 bits, the rest 64; 3264: the result has 64 bits, its sources 32.
_TWO: dict[str, tuple[int, Callable[[int, int], tuple[int, int | None]]]] = {
    "s_add_u32": (32, lambda a, b: ((a + b) & _M32, (a + b) >> 32)),
    "s_sub_u32": (32, lambda a, b: ((a - b) & _M32, int(b > a))),
    "s_add_i32": (32, _add_i),
    "s_sub_i32": (32, _sub_i),
    "s_min_i32": (32, lambda a, b: (a, 1) if _signed(a) < _signed(b) else (b, 0)),
    "s_min_u32": (32, lambda a, b: (a, 1) if a < b else (b, 0)),
    "s_max_i32": (32, lambda a, b: (a, 1) if _signed(a) > _signed(b) else (b, 0)),
    "s_max_u32": (32, lambda a, b: (a, 1) if a > b else (b, 0)),
    "s_mul_i32": (32, lambda a, b: (a * b & _M32, None)),
    "s_mul_hi_u32": (32, lambda a, b: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, lambda a, b: (_signed(a) * _signed(b) >> 32 & _M32, None)),
    "s_bfm_b32": (32, lambda a, b: (((1 << (a & 31)) - 1) << (b & 31) & _M32, None)),
    "s_bfm_b64": (3264, lambda a, b: (((1 << (a & 63)) - 1) << (b & 63) & _M64, None)),
    "s_lshl_b32": (32, _nonzero(lambda a, b: a << (b & 31))),
    "s_lshr_b32": (32, _nonzero(lambda a, b: a >> (b & 31))),
    "s_ashr_i32": (32, _nonzero(lambda a, b: _signed(a) >> (b & 31))),
    "s_lshl_b64": (6432, _nonzero(lambda a, b: a << (b & 63), _M64)),
    "s_lshr_b64": (6432, _nonzero(lambda a, b: a >> (b & 63), _M64)),
    "s_ashr_i64": (6432, _nonzero(lambda a, b: _signed(a, 64) >> (b & 63), _M64)),
    "s_bfe_u32": (32, _bfe(32, False)),
    "s_bfe_i32": (32, _bfe(32, True)),
    "s_bfe_u64": (6432, _bfe(64, False)),
    "s_bfe_i64": (6432, _bfe(64, True)),
    "s_absdiff_i32": (32, _nonzero(lambda a, b: abs(_signed(a) - _signed(b)))),
    "s_pack_ll_b32_b16": (32, lambda a, b: (a & 0xFFFF | (b & 0xFFFF) << 16, None)),
    "s_pack_lh_b32_b16": (32, lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None)),
    "s_pack_hh_b32_b16": (32, lambda a, b: (a >> 16 | b & 0xFFFF0000, None)),
    **{f"s_lshl{n}_add_u32": (32, _shift_add(n)) for n in (1, 2, 3, 4)},
}
_LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _f in _LOGIC.items():
    _TWO[f"s_{_name}_b32"] = (32, _nonzero(_f))
    _TWO[f"s_{_name}_b64"] = (64, _nonzero(_f, _M64))


def _first(x: int, bits: int) -> int:
    return (x & -x).bit_length() - 1 if x else _M32


def _leading(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else _M32


def _same_sign_bits(x: int, bits: int) -> int:
    x = x ^ ((1 << bits) - 1) if x >> (bits - 1) else x
    return bits - x.bit_length() if x else _M32


def _quad(x: int, bits: int) -> int:
    return sum(1 << q for q in range(bits // 4) if x >> 4 * q & 15)


def _wqm(x: int, bits: int) -> int:
    return sum(15 << 4 * q for q in range(bits // 4) if x >> 4 * q & 15)


def _reverse(x: int, bits: int) -> int:
    return int(format(x, f"0{bits}b")[::-1], 2)


def _sign_extended(bits: int) -> Callable[[int, int], int]:
    return lambda x, _: _signed(x & ((1 << bits) - 1), bits) & _M32


# name -> (source bits, result bits, function of (value, source bits), whether SCC = (result != 0)).
_ONE: dict[str, tuple[int, int, Callable[[int, int], int], bool]] = {
    "s_sext_i32_i8": (32, 32, _sign_extended(8), False),
    "s_sext_i32_i16": (32, 32, _sign_extended(16), False),
    "s_abs_i32": (32, 32, lambda x, _: abs(_signed(x)) & _M32, True),
}
for _bits in (32, 64):
    _all = (1 << _bits) - 1
    _ONE |= {
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
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _two(a: Access) -> Run:
    bits, f = _TWO[a.base]
    get_a = a.s64(1) if bits in (64, 6432) else a.s32(1)
    get_b = a.s64(2) if bits == 64 else a.s32(2)
    put = a.sdst32(0) if bits == 32 else a.sdst64(0)

    def run(w: Wave) -> None:
        r, scc = f(get_a(w), get_b(w))
        put(w, r)
        if scc is not None:
            w.scc = int(scc)

    return run


def _one(a: Access) -> Run:
    source, result, f, sets = _ONE[a.base]
    get = a.s64(1) if source == 64 else a.s32(1)
    put = a.sdst64(0) if result == 64 else a.sdst32(0)
    if a.base in ("s_mov_b32", "s_mov_b64"):
        a.copies = True

        def move(w: Wave) -> None:
            put(w, get(w))

        return move

    def run(w: Wave) -> None:
        r = f(get(w), source)
        put(w, r)
        if sets:
            w.scc = int(r != 0)

    return run


def _saveexec(a: Access) -> Run:
    name = a.base[2:].partition("_")[0]
    swap = name in ("andn1", "orn1")
    f = _LOGIC[name.replace("n1", "n2")]
    get = a.s64(1)
    put = a.sdst64(0)
    a.private = False
    keeps = "saveexec" in a.base

    def run(w: Wave) -> None:
        value, before = get(w), w.exec
        # and: value & EXEC; andn2: value & ~EXEC; andn1: ~value & EXEC.
        new = (f(before, value) if swap else f(value, before)) & _M64
        put(w, before if keeps else new)
        w.set_exec(new)
        w.scc = int(new != 0)

    return run


def _carry(a: Access) -> Run:
    get_a, get_b, put = a.s32(1), a.s32(2), a.sdst32(0)
    if a.base == "s_addc_u32":

        def add(w: Wave) -> None:
            r = get_a(w) + get_b(w) + w.scc
            put(w, r & _M32)
            w.scc = r >> 32

        return add

    def sub(w: Wave) -> None:
        r = get_a(w) - get_b(w) - w.scc
        put(w, r & _M32)
        w.scc = int(r < 0)

    return sub


def _select(a: Access) -> Run:
    wide = a.base.endswith("b64")
    get_a, get_b = (a.s64(1), a.s64(2)) if wide else (a.s32(1), a.s32(2))
    put = a.sdst64(0) if wide else a.sdst32(0)
    a.copies = True

    def run(w: Wave) -> None:
        put(w, get_a(w) if w.scc else get_b(w))

    return run


def _compare(a: Access) -> Run:
    _, kind, type_ = a.base.removeprefix("s_").split("_")
    f, wide, sign = _COMPARE[kind], type_ == "u64", type_ == "i32"
    get_a, get_b = (a.s64(0), a.s64(1)) if wide else (a.s32(0), a.s32(1))
    if a.base.startswith("s_cmpk"):
        k = int(a.take(1).value)
        k = _signed(k & 0xFFFF, 16) if sign else k & 0xFFFF
        get_b = lambda w: k & _M32  # noqa: E731

    def run(w: Wave) -> None:
        x, y = get_a(w), get_b(w)
        w.scc = int(f(_signed(x), _signed(y)) if sign else f(x, y))

    return run


def _bit(a: Access) -> Run:
    wide = a.base.endswith("64")
    if a.base.startswith("s_bitcmp"):
        want = int(a.base[8])
        get, which = a.s64(0) if wide else a.s32(0), a.s32(1)

        def test(w: Wave) -> None:
            w.scc = int((get(w) >> (which(w) & (63 if wide else 31)) & 1) == want)

        return test
    one, which = int(a.base[8]), a.s32(1)
    old = a.s64(0) if wide else a.s32(0)
    put = a.sdst64(0) if wide else a.sdst32(0)

    def set_bit(w: Wave) -> None:
        bit = 1 << (which(w) & (63 if wide else 31))
        put(w, old(w) | bit if one else old(w) & ~bit)

    return set_bit


def _constant(a: Access) -> Run:
    """Decode SOPK: a 16-bit constant, sign-extended."""
    k = _signed(int(a.take(1).value) & 0xFFFF, 16)
    put = a.sdst32(0)
    if a.base == "s_movk_i32":
        return lambda w: put(w, k & _M32)
    if a.base == "s_cmovk_i32":
        return lambda w: put(w, k & _M32) if w.scc else None
    old = a.s32(0)
    if a.base == "s_mulk_i32":
        return lambda w: put(w, _signed(old(w)) * k & _M32)

    def run(w: Wave) -> None:
        r, w.scc = _add_i(old(w), k & _M32)
        put(w, r)

    return run


def _cmov(a: Access) -> Run:
    wide = a.base.endswith("b64")
    get, put = (a.s64(1), a.sdst64(0)) if wide else (a.s32(1), a.sdst32(0))
    return lambda w: put(w, get(w)) if w.scc else None


_HWREG = {"mode": 1, "hw_reg_mode": 1, "1": 1}


def _register(a: Access) -> Run | None:
    """Decode ``s_setreg`` and ``s_getreg`` of MODE; other hardware registers are refused."""
    write = a.base.startswith("s_setreg")
    a.private = False
    text = ",".join(a.operands[:-1] if write else a.operands[1:]).replace(" ", "")
    parts = text.removeprefix("hwreg(").removesuffix(")").split(",")
    if parts[0].lower() not in _HWREG or not all(p.isdigit() for p in parts[1:]) or len(parts) not in (1, 3):
        return None
    offset, size = (int(parts[1]), int(parts[2])) if len(parts) == 3 else (0, 32)
    mask = (1 << size) - 1
    if not write:
        put = a.sdst32(0)
        return lambda w: put(w, w.mode >> offset & mask)
    get = a.s32(len(a) - 1)

    def run(w: Wave) -> None:
        w.mode = w.mode & ~(mask << offset) | (get(w) & mask) << offset

    return run


def decode_scalar(a: Access) -> Callable[[Wave], Any] | None:
    """Return the function that executes a scalar ALU instruction, or None if this family does not have it."""
    name = a.base
    if name in _TWO:
        return _two(a)
    if name in _ONE:
        return _one(a)
    if name in ("s_addc_u32", "s_subb_u32"):
        return _carry(a)
    if name in ("s_cselect_b32", "s_cselect_b64"):
        return _select(a)
    if name in ("s_cmov_b32", "s_cmov_b64"):
        return _cmov(a)
    if name in ("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32"):
        return _constant(a)
    head, _, tail = name.rpartition("_")
    if head[2:].removesuffix("_saveexec").removesuffix("_wrexec") in (*_LOGIC, "andn1", "orn1") and tail == "b64":
        return _saveexec(a)
    if name.startswith(("s_bitcmp0", "s_bitcmp1", "s_bitset0", "s_bitset1")) and tail in ("b32", "b64"):
        return _bit(a)
    parts = name.split("_")
    if len(parts) == 4 and parts[1] in ("cmp", "cmpk") and parts[2] in _COMPARE and parts[3] in ("i32", "u32", "u64"):
        return _compare(a)
    if name.startswith(("s_setreg", "s_getreg")):
        return _register(a)
    return None


_LOAD = re.compile(r"s_(?P<b>buffer_)?load_dword(?:x(?P<n>2|4|8|16))?$")


def _deliver(w: Wave, first: int, values: list[int]) -> Callable[[], None]:
    def done() -> None:
        w.s[first : first + len(values)] = values

    return done


def _load(a: Access, m: re.Match[str], line: int) -> Run:
    n, op = int(m["n"] or 1), a.op
    d = a.take(0)
    if d.kind != "s" or d.count != n or d.index >= 108:
        raise a.fail(f"the result is {n} scalar registers")
    a.used |= {"glc"}
    imm = a.number("offset")
    b = a.take(1)
    if b.kind != "s" or b.count != (4 if m["b"] else 2):
        raise a.fail("the base is two scalar registers (four for a buffer)")
    base = a.s64_at(b.index)
    records = a.s64_at(b.index + 2) if m["b"] else None
    o = a.take(2)
    offset: Callable[[Wave], Any] = a.s32(2)
    if o.kind == "int":
        fixed = int(o.value)
        offset = lambda w: fixed  # noqa: E731
    regs = tuple(range(d.index, d.index + n))

    def run(w: Wave) -> None:
        start, at = base(w), offset(w) + imm
        if records is not None:
            start &= (1 << 48) - 1
            limit = records(w) & 0xFFFFFFFF
            size = max(0, min(4 * n, (limit - at) // 4 * 4))
        else:
            size = 4 * n
        address = (start + at) & ~3
        values = [0] * n
        if size:
            memory = w.group.memory
            found = memory.find(address)
            if found is None or address + size > found.base + found.size:
                what = memory.describe(address, size, 0, False).replace("lane 0 reads", "reads")
                raise RunError(what, line, "bounds")
            at_ = np.array([address - found.base])
            if w.group.races is not None:
                w.group.races.read(w.group.number, found, at_, size, line, False)
            raw = gather(found, at_, size).ravel().tolist()
            values[: len(raw)] = raw
        issue_scalar(w, Flight(line, op, "lgkmcnt", regs, 0, _deliver(w, regs[0], values), scalar=True))

    return run


def _time(a: Access, line: int) -> Run:
    """Decode s_memtime and s_memrealtime: here a clock that ticks once for each instruction of the wave."""
    d = a.take(0)
    if d.kind != "s" or d.count != 2:
        raise a.fail("the result is two scalar registers")
    regs, op = (d.index, d.index + 1), a.op

    def run(w: Wave) -> None:
        values = [w.executed & 0xFFFFFFFF, w.executed >> 32]
        issue_scalar(w, Flight(line, op, "lgkmcnt", regs, 0, _deliver(w, regs[0], values), scalar=True))

    return run


def decode_scalar_memory(a: Access, line: int) -> Run | None:
    """Return the function that executes a scalar memory instruction, or None."""
    if m := _LOAD.match(a.base):
        return _load(a, m, line)
    if a.base in ("s_memtime", "s_memrealtime"):
        return _time(a, line)
    if a.base.startswith("s_dcache_"):
        return lambda w: None
    return None
