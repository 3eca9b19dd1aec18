# SPDX-License-Identifier: MIT
"""Accessors: functions that read an operand from a wave, or write one, with all modifiers applied.

An instruction is decoded once. :class:`Access` hands out closures for its operands and notes which registers they
touch, so that one place (``Machine``) can refuse registers that are undefined or still under way.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Vector ALU Operations": input and output modifiers,
SDWA, DPP, op_sel.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

import numpy as np

from cdna.run.arithmetic import to_unit
from cdna.run.errors import RunError
from cdna.run.operands import Dpp, Operand, dpp_control, parse_operand, split_operands
from cdna.run.state import EXEC, M0, VCC, Read, Wave, Write, bits_of, lanes_of

__all__ = []


_SELECT = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
           "WORD_1": (16, 16), "DWORD": (0, 32)}  # fmt: skip
_DTYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
           "u64": np.uint64, "i64": np.int64, "f64": np.float64, "h32": np.uint32}  # fmt: skip
_TWO_RESULTS = re.compile(r"_co_|v_div_scale|v_mad_[iu]64_[iu]32")
_TINY32 = np.float32(2.0**-126)
_OMOD = {"2": np.float32(2), "4": np.float32(4)}


def _flush32(x: Any) -> Any:
    # denormal values become zero of the same sign
    return np.where(np.abs(x) < _TINY32, np.copysign(np.float32(0), x), x)


def _put_row(view: str, n: int) -> Write:
    """Write one row of the vector file, as float32 (``F``), int32 (``I``) or uint32 (``V``)."""
    rows_of = attrgetter(view)

    def put(w: Wave, x: Any) -> None:
        if w.full:
            rows_of(w)[n][:] = x
        else:
            np.copyto(rows_of(w)[n], x, where=w.mask)

    return put


def _put_wide(n: int) -> Write:
    def put(w: Wave, x: Any) -> None:
        both = np.ascontiguousarray(np.broadcast_to(x, len(w.mask))).view(np.uint32).reshape(-1, 2)
        np.copyto(w.V[n], both[:, 0], where=w.mask)
        np.copyto(w.V[n + 1], both[:, 1], where=w.mask)

    return put


class Access:
    """One instruction while it is decoded: operands as text, accessors for them, and what these touch."""

    def __init__(self, op: str, args: str, flush: bool = False, rounds: bool = False) -> None:
        self.op = op
        self.base, self.encoding = op, ""
        for suffix in ("_e32", "_e64", "_dpp", "_sdwa"):
            if op.endswith(suffix):
                self.base, self.encoding = op[: -len(suffix)], suffix[1:]
        self.operands, self.mods = split_operands(args)
        self.flush, self.rounds = flush, rounds
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.sreads: list[int] = []
        self.swrites: list[int] = []
        self.all_lanes = False
        self.copies = False
        self.dpp: Dpp | None = dpp_control(self.mods) if self.encoding == "dpp" else None
        self.sdwa = self.encoding == "sdwa"
        self.sources = 0
        self.lane_reads: list[int] = []
        self.weak: list[int] = []
        self.used: set[str] = set()
        self.private = True  # touches only the wave's registers, and not EXEC
        self.lanewise = False  # may run on the lanes of several waves at once
        self.own: list[int] = []  # scalar registers that a lanewise instruction reads for each wave

    def __len__(self) -> int:
        return len(self.operands)

    def fail(self, why: str) -> RunError:
        """Return the error for an instruction whose text makes no sense."""
        return RunError(f"{self.op} {', '.join(self.operands)}: {why}", rule="text")

    def take(self, i: int) -> Operand:
        """Return operand ``i``, counted from 0."""
        if i >= len(self.operands):
            raise self.fail(f"{len(self.operands)} operands, and operand {i + 1} is needed")
        o = parse_operand(self.operands[i])
        step = 4 if o.kind == "s" and o.count > 3 else 2
        if o.count > 1 and o.kind in ("s", "v") and o.index % step:
            raise self.fail(f"{o.text} begins at an odd place: on gfx942 its first register is a multiple of {step}")
        return o

    def check_constant_bus(self) -> None:
        """Refuse a vector instruction that reads more than one scalar register (or pair) or literal.

        VCC counts, also where it is implied; an inline constant does not.
        Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Vector ALU Operands"; LLVM, GFX9's limit of the
        constant bus.
        """
        results = 2 if _TWO_RESULTS.search(self.base) else 1
        scalars = [(VCC, 2, "vcc")] if self.base.startswith("v_div_fmas") else []
        others = set[str]()
        for text in self.operands[results:]:
            o = parse_operand(text)
            if o.kind == "s" and not (o.index == M0 and self.base == "v_writelane_b32"):
                if not any(n < o.index + o.count and o.index < n + count for n, count, _ in scalars):
                    scalars.append((o.index, o.count, o.text))
            elif o.kind == "flag" or (o.kind in ("int", "float") and not o.is_inline):
                others.add(o.text)
        if len(scalars) + len(others) > 1:
            names = " and ".join([*(name for *_, name in scalars), *sorted(others)])
            raise self.fail(f"reads {names}: a vector instruction of gfx942 has room for one of them")

    def number(self, name: str, default: int = 0) -> int:
        """Return the value of a modifier such as ``offset:16``."""
        self.used.add(name)
        try:
            return int(self.mods[name], 0) if name in self.mods else default
        except ValueError:
            raise self.fail(f"{name}:{self.mods[name]} is no number") from None

    def bits(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return the value of a modifier such as ``op_sel:[0,1]``, filled up from ``default``."""
        self.used.add(name)
        text = self.mods.get(name)
        if text is None:
            return default
        parts = text.strip("[]").split(",")
        if any(p not in ("0", "1") for p in parts):
            raise self.fail(f"{name}:{text} is no list of 0 and 1")
        return (*map(int, parts), *default[len(parts) :])

    # ---- scalar side

    def _srange(self, o: Operand, need: int) -> int:
        if o.count < need:
            raise self.fail(f"{o.text} is {o.count} registers wide, {need} are needed")
        return o.index

    def s32(self, i: int, type_: str = "u32") -> Read:
        """Return a reader of a 32-bit scalar operand as a Python int."""
        o = self.take(i)
        if o.kind == "s":
            n = self._srange(o, 1)
            if n in (EXEC, EXEC + 1):
                shift = 32 * (n - EXEC)
                return lambda w: w.exec >> shift & 0xFFFFFFFF
            self.sreads.append(n)
            return lambda w: w.s[n]
        if o.kind == "flag":
            return self._flag(o)
        if o.kind in ("int", "float"):
            value = o.constant(type_) & 0xFFFFFFFF
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a scalar operand")

    def s64(self, i: int, type_: str = "u64") -> Read:
        """Return a reader of a 64-bit scalar operand as a Python int."""
        o = self.take(i)
        if o.kind == "s":
            n = self._srange(o, 2)
            return (lambda w: w.exec) if n == EXEC else self.s64_at(n)
        if o.kind in ("int", "float"):
            value = o.constant(type_)
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a scalar operand of 64 bits")

    def s64_at(self, n: int) -> Read:
        """Return a reader of two scalar registers by number, for descriptors."""
        self.sreads += [n, n + 1]
        return lambda w: w.s[n] | w.s[n + 1] << 32

    def sdst32(self, i: int) -> Write:
        """Return a writer of a 32-bit scalar result."""
        o = self.take(i)
        if o.kind != "s":
            raise self.fail(f"{o.text} cannot hold a scalar result")
        n = self._srange(o, 1)
        if n in (EXEC, EXEC + 1):
            self.private = False
            keep, shift = (0xFFFFFFFF << 32, 0) if n == EXEC else (0xFFFFFFFF, 32)
            return lambda w, x: w.set_exec(w.exec & keep | x << shift)
        self.swrites.append(n)

        def put(w: Wave, x: int) -> None:
            w.s[n] = x

        return put

    def sdst64(self, i: int) -> Write:
        """Return a writer of a 64-bit scalar result."""
        o = self.take(i)
        if o.kind != "s":
            raise self.fail(f"{o.text} cannot hold a scalar result")
        n = self._srange(o, 2)
        if n == EXEC:
            self.private = False
            return lambda w, x: w.set_exec(x)
        self.swrites += [n, n + 1]

        def put(w: Wave, x: int) -> None:
            w.s[n] = x & 0xFFFFFFFF
            w.s[n + 1] = x >> 32

        return put

    def carry_in(self, i: int | None = None) -> Read:
        """Return a reader of a mask in an SGPR pair (VCC if ``i`` is None) as 64 bits."""
        return self.s64_at(VCC) if i is None else self.s64(i)

    def mask_in(self, i: int | None = None) -> Read:
        """Return a reader of a mask in an SGPR pair (VCC if ``i`` is None) as booleans, one for each lane."""
        o = Operand("s", VCC, 2) if i is None else self.take(i)
        if o.kind != "s" or o.index == EXEC:
            get = self.s64(i or 0)
            return lambda w: np.resize(lanes_of(get(w)), len(w.mask))  # the same for each of several waves
        n = self._srange(o, 2)
        self.sreads += [n, n + 1]
        self.own += [n, n + 1]
        return lambda w: w.mask_at(n)

    def mask_out(self, i: int) -> Write:
        """Return a writer of a mask: booleans, one for each lane; lanes that are off give 0."""
        o = self.take(i)
        if o.kind == "s" and o.index != EXEC:
            n = self._srange(o, 2)
            self.swrites += [n, n + 1]
            return lambda w, x: w.put_mask(n, x)
        put = self.sdst64(i)
        return lambda w, x: put(w, bits_of(x) & w.exec)

    def leftovers(self) -> None:
        """Refuse modifiers that no accessor asked for."""
        known = self.used | ({"row_mask", "bank_mask", "bound_ctrl"} if self.dpp is not None else set())
        for name in self.mods:
            if name not in known and not (self.dpp is not None and name.startswith(("row_", "quad_perm", "wave_"))):
                raise self.fail(f"the modifier {name} is not known for this instruction")

    # ---- vector side

    def rows(self, i: int, count: int, write: bool = False) -> int:
        """Return the first row of ``count`` vector registers, noted as read or written."""
        o = self.take(i)
        if o.kind != "v" or o.count != count:
            raise self.fail(f"operand {i + 1} must be {count} vector register{'s' * (count > 1)}, not {o.text}")
        (self.writes if write else self.reads).extend(range(o.index, o.index + count))
        return o.index

    def loaded(self, i: int, count: int) -> tuple[int, ...]:
        """Return the vector registers that a load writes when it arrives, so decoding notes them as neither read nor
        written.
        """
        first = self.rows(i, count, write=True)
        self.writes.clear()
        return tuple(range(first, first + count))

    def _raw(self, o: Operand, type_: str, first: bool) -> Read:
        """Return a reader of the 32 bits of a source in every lane, before types and modifiers."""
        if o.kind == "v":
            n = o.index
            if o.count != 1:
                raise self.fail(f"{o.text} must be one register")
            if self.dpp is not None and first:
                return self.dpp.reader(n)
            self.reads.append(n)
            return lambda w: w.V[n]
        if o.kind == "s":
            n = self._srange(o, 1)
            if n in (EXEC, EXEC + 1):
                shift = 32 * (n - EXEC)
                return lambda w: np.uint32(w.exec >> shift & 0xFFFFFFFF)
            self.sreads.append(n)
            return lambda w: np.uint32(w.s[n])
        if o.kind == "flag":
            get = self._flag(o)
            return lambda w: np.uint32(get(w))
        if o.kind in ("int", "float"):
            value = np.uint32(o.constant(type_) & 0xFFFFFFFF)
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a vector source")

    def _flag(self, o: Operand) -> Read:
        self.private = False
        return (lambda w: w.scc, lambda w: int(w.vcc == 0), lambda w: int(w.exec == 0))[o.index]

    def src(self, i: int, type_: str, half: int = 0) -> Read:
        """Return a reader of source ``i`` as numpy values of ``type_``; ``half`` picks the upper half for a 16-bit
        type.

        Negation and absolute value belong to float types. ``h32`` gives the raw 32 bits of a packed pair.
        """
        o = self.take(i)
        first = self.sources == 0
        self.sources += 1
        read = self._wide(i, o, type_) if type_ in ("u64", "i64", "f64") else self._narrow(o, type_, first, half)
        if not (o.neg or o.abs):
            return read
        if type_[0] != "f":
            raise self.fail(f"{o.text}: an integer operand has no sign to change")
        if o.neg and o.abs:
            return lambda w: -np.abs(read(w))
        return (lambda w: -read(w)) if o.neg else (lambda w: np.abs(read(w)))

    def _narrow(self, o: Operand, type_: str, first: bool, half: int) -> Read:
        dtype = _DTYPES[type_]
        plain = o.kind == "v" and o.count == 1 and not (self.dpp is not None and first) and not self.sdwa
        n = o.index
        if plain and type_ in ("u32", "h32", "i32"):
            self.reads.append(n)
            return (lambda w: w.I[n]) if type_ == "i32" else (lambda w: w.V[n])
        if plain and type_ == "f32":
            self.reads.append(n)
            return (lambda w: _flush32(w.F[n]) if not w.mode & 0x10 else w.F[n]) if self.flush else (lambda w: w.F[n])
        if plain:
            self.reads.append(n)
            return lambda w: w.H[n][:, half].view(dtype)
        raw = self._raw(o, type_, first)
        if self.sdwa:
            raw = self._selected(raw, "src0_sel" if first else "src1_sel", o.sext)
        if type_ in ("u32", "h32"):
            return raw
        if type_ in ("i32", "f32"):
            return lambda w: raw(w).view(dtype)
        shift = np.uint32(16 * half)
        return lambda w: (raw(w) >> shift).astype(np.uint16).view(dtype)

    def _selected(self, raw: Read, name: str, sext: bool) -> Read:
        sel = self.mods.get(name, "DWORD")
        self.used.add(name)
        if sel not in _SELECT:
            raise self.fail(f"{name}:{sel} is unknown")
        shift, width = _SELECT[sel]
        if width == 32:
            return raw
        left, right = np.uint32(32 - width - shift), np.uint32(32 - width)
        if sext:
            return lambda w: ((raw(w) << left).view(np.int32) >> right.view(np.int32)).view(np.uint32)
        return lambda w: (raw(w) << left) >> right

    def _wide(self, i: int, o: Operand, type_: str) -> Read:
        dtype = _DTYPES[type_]
        if o.kind == "v":
            n = o.index
            if o.count != 2:
                raise self.fail(f"{o.text} must be two registers")
            if self.dpp is not None:
                raise self.fail("DPP of 64 bits is not supported by this interpreter")
            self.reads += [n, n + 1]

            def pair(w: Wave) -> Any:
                both = np.empty((len(w.V[n]), 2), np.uint32)
                both[:, 0] = w.V[n]
                both[:, 1] = w.V[n + 1]
                return both.reshape(-1).view(dtype)

            return pair
        get = self.s64(i, type_)
        return lambda w: np.full(len(w.mask), get(w), np.uint64).view(dtype)

    def dst(self, i: int, type_: str, merge: bool = False) -> Write:
        """Return a writer of a vector result: omod, clamp, denormals, SDWA and op_sel applied, inactive lanes kept.

        A 16-bit result clears the other half of the register unless ``merge``, in which case ``op_sel`` picks the half.
        """
        o = self.take(i)
        wide = type_ in ("u64", "i64", "f64")
        if o.kind != "v" or o.count != 1 + wide:
            raise self.fail(f"{o.text} cannot hold this result")
        n = o.index
        self.writes += [n, n + 1] if wide else [n]
        if wide:
            put = _put_wide(n)
        elif self.sdwa and self.mods.get("dst_sel", "DWORD") != "DWORD":
            put = self._put_selected(n)
        elif type_ in ("f16", "u16", "i16"):
            put = self._put_half(n, merge)
        else:
            put = _put_row({"f32": "F", "i32": "I"}.get(type_, "V"), n)

        self.used |= {"dst_sel", "dst_unused"}
        return self._finish(put, type_)

    def _finish(self, put: Write, type_: str) -> Write:
        """Apply output modifiers, from the inside out: omod, clamp, flush."""
        omod = _OMOD.get(self.mods.get("mul", "")) or (np.float32(0.5) if self.mods.get("div") == "2" else None)
        clamp, flush = "clamp" in self.mods, self.flush and type_ == "f32"
        self.used |= {"mul", "div"}
        if type_[0] != "f":
            if omod is not None:
                raise self.fail("an integer result has no output modifier")
            return put
        self.used.add("clamp")
        if omod is None and not clamp and not flush:
            return put

        def finish(w: Wave, x: Any) -> None:
            if omod is not None:
                x = x * x.dtype.type(omod)
            if flush and not w.mode & 0x20:
                x = _flush32(x)
            if clamp:
                x = to_unit(np.asarray(x))
            put(w, x)

        return finish

    def _put_half(self, n: int, merge: bool) -> Write:
        if merge:
            half = self.bits("op_sel", (0, 0, 0, 0))[len(self.operands) - 1] if "op_sel" in self.mods else 0
            return lambda w, x: np.copyto(w.H[n][:, half], np.asarray(x).view(np.uint16), where=w.mask)

        def put(w: Wave, x: Any) -> None:
            np.copyto(w.V[n], np.asarray(x).view(np.uint16), where=w.mask)

        return put

    def _put_selected(self, n: int) -> Write:
        sel, unused = self.mods["dst_sel"], self.mods.get("dst_unused", "UNUSED_PRESERVE")
        if sel not in _SELECT or unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
            raise self.fail(f"dst_sel:{sel} dst_unused:{unused} is unknown")
        shift, width = _SELECT[sel]
        low = np.uint32((1 << width) - 1)
        outside = np.uint32(0xFFFFFFFF ^ int(low) << shift)

        def put(w: Wave, x: Any) -> None:
            x = np.asarray(x)
            bits = x.view(f"u{x.dtype.itemsize}").astype(np.uint32) & low
            if unused == "UNUSED_SEXT":
                left = np.int32(32 - width)
                rest = (bits.view(np.int32) << left >> left).view(np.uint32) << np.uint32(shift)
            else:
                rest = bits << np.uint32(shift)
            if unused == "UNUSED_PRESERVE":
                rest = rest | w.V[n] & outside
            np.copyto(w.V[n], rest, where=w.mask)

        return put
