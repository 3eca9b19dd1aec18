# SPDX-License-Identifier: MIT
"""The scalar ALU: arithmetic, bit fields, comparisons, EXEC masks. Scalar values are Python integers.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "SOP2", "SOPK", "SOP1", "SOPC".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdna.run.scalar.table import COMPARE, LOGIC, M32, M64, ONE, TWO, add_i, signed
from cdna.run.vector.access import Access
from cdna.run.wave import Wave

__all__ = ["decode_scalar"]


def _two(a: Access) -> Callable[[Wave], None]:
    bits, f = TWO[a.base]
    get_a = a.s64(1) if bits in (64, 6432) else a.s32(1)
    get_b = a.s64(2) if bits == 64 else a.s32(2)
    put = a.sdst64(0) if bits in (64, 6432) else a.sdst32(0)

    def run(w: Wave) -> None:
        r, scc = f(get_a(w), get_b(w))
        put(w, r)
        if scc is not None:
            w.scc = int(scc)

    return run


def _one(a: Access) -> Callable[[Wave], None]:
    source, result, f, sets = ONE[a.base]
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


def _saveexec(a: Access) -> Callable[[Wave], None]:
    name = a.base[2:].partition("_")[0]
    swap = name in ("andn1", "orn1")
    f = LOGIC[name.replace("n1", "n2")]
    get = a.s64(1)
    put = a.sdst64(0)
    a.private = False
    keeps = "saveexec" in a.base

    def run(w: Wave) -> None:
        value, before = get(w), w.exec
        # and: value & EXEC; andn2: value & ~EXEC; andn1: ~value & EXEC.
        new = (f(before, value) if swap else f(value, before)) & M64
        put(w, before if keeps else new)
        w.set_exec(new)
        w.scc = int(new != 0)

    return run


def _carry(a: Access) -> Callable[[Wave], None]:
    get_a, get_b, put = a.s32(1), a.s32(2), a.sdst32(0)
    if a.base == "s_addc_u32":

        def add(w: Wave) -> None:
            r = get_a(w) + get_b(w) + w.scc
            put(w, r & M32)
            w.scc = r >> 32

        return add

    def sub(w: Wave) -> None:
        r = get_a(w) - get_b(w) - w.scc
        put(w, r & M32)
        w.scc = int(r < 0)

    return sub


def _select(a: Access) -> Callable[[Wave], None]:
    wide = a.base.endswith("b64")
    get_a, get_b = (a.s64(1), a.s64(2)) if wide else (a.s32(1), a.s32(2))
    put = a.sdst64(0) if wide else a.sdst32(0)
    a.copies = True

    def run(w: Wave) -> None:
        put(w, get_a(w) if w.scc else get_b(w))

    return run


def _compare(a: Access) -> Callable[[Wave], None]:
    _, kind, type_ = a.base.removeprefix("s_").split("_")
    f, wide, sign = COMPARE[kind], type_ == "u64", type_ == "i32"
    get_a, get_b = (a.s64(0), a.s64(1)) if wide else (a.s32(0), a.s32(1))
    if a.base.startswith("s_cmpk"):
        k = int(a.take(1).value)
        k = signed(k & 0xFFFF, 16) if sign else k & 0xFFFF
        get_b = lambda w: k & M32  # noqa: E731

    def run(w: Wave) -> None:
        x, y = get_a(w), get_b(w)
        w.scc = int(f(signed(x), signed(y)) if sign else f(x, y))

    return run


def _bit(a: Access) -> Callable[[Wave], None]:
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


def _constant(a: Access) -> Callable[[Wave], None]:
    """SOPK: a 16-bit constant, sign-extended."""
    k = signed(int(a.take(1).value) & 0xFFFF, 16)
    put = a.sdst32(0)
    if a.base == "s_movk_i32":
        return lambda w: put(w, k & M32)
    if a.base == "s_cmovk_i32":
        return lambda w: put(w, k & M32) if w.scc else None
    old = a.s32(0)
    if a.base == "s_mulk_i32":
        return lambda w: put(w, signed(old(w)) * k & M32)

    def run(w: Wave) -> None:
        r, w.scc = add_i(old(w), k & M32)
        put(w, r)

    return run


def _cmov(a: Access) -> Callable[[Wave], None]:
    wide = a.base.endswith("b64")
    get, put = (a.s64(1), a.sdst64(0)) if wide else (a.s32(1), a.sdst32(0))
    return lambda w: put(w, get(w)) if w.scc else None


_HWREG = {"mode": 1, "hw_reg_mode": 1, "1": 1}


def _register(a: Access) -> Callable[[Wave], None] | None:
    """``s_setreg`` and ``s_getreg`` of MODE; other hardware registers are refused."""
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
        if w.mode & 15:
            raise a.fail("only rounding to nearest even is modelled")

    return run


def decode_scalar(a: Access) -> Callable[[Wave], Any] | None:
    """The function that executes a scalar ALU instruction, or None if this family does not have it."""
    name = a.base
    if name in TWO:
        return _two(a)
    if name in ONE:
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
    if head[2:].removesuffix("_saveexec").removesuffix("_wrexec") in (*LOGIC, "andn1", "orn1") and tail == "b64":
        return _saveexec(a)
    if name.startswith(("s_bitcmp0", "s_bitcmp1", "s_bitset0", "s_bitset1")) and tail in ("b32", "b64"):
        return _bit(a)
    parts = name.split("_")
    if len(parts) == 4 and parts[1] in ("cmp", "cmpk") and parts[2] in COMPARE and parts[3] in ("i32", "u32", "u64"):
        return _compare(a)
    if name.startswith(("s_setreg", "s_getreg")):
        return _register(a)
    return None
