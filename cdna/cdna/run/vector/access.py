# SPDX-License-Identifier: MIT
"""Accessors: functions that read an operand from a wave, or write one, with all modifiers applied.

An instruction is decoded once. :class:`Access` hands out closures for its operands and notes which registers they
touch, so that one place (``Machine``) can refuse registers that are undefined or still under way.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Vector ALU Operations": input and output modifiers,
SDWA, DPP, op_sel.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from cdna.run.operands import Operand
from cdna.run.scalar.access import Read, ScalarAccess, Write
from cdna.run.wave import EXEC, Wave

__all__ = ["Access", "Read", "Write"]

_SELECT = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
           "WORD_1": (16, 16), "DWORD": (0, 32)}  # fmt: skip
_DTYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
           "u64": np.uint64, "i64": np.int64, "f64": np.float64, "h32": np.uint32}  # fmt: skip
_ONE32, _TINY32 = np.float32(1.0), np.float32(2.0**-126)
_OMOD = {"2": np.float32(2), "4": np.float32(4)}


def flush32(x: Any) -> Any:
    """Denormal float32 values become zero of the same sign."""
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


class Access(ScalarAccess):
    """One instruction while it is decoded: accessors for scalar and for vector operands."""

    def rows(self, i: int, count: int, write: bool = False) -> int:
        """First row of a run of ``count`` vector registers, noted as read or written."""
        o = self.take(i)
        if o.kind != "v" or o.count != count:
            raise self.fail(f"operand {i + 1} must be {count} vector register{'s' * (count > 1)}, not {o.text}")
        (self.writes if write else self.reads).extend(range(o.index, o.index + count))
        return o.index

    def _raw(self, o: Operand, type_: str, first: bool) -> Read:
        """The 32 bits of a source in every lane, before types and modifiers."""
        if o.kind == "v":
            n = o.index
            if o.count != 1:
                raise self.fail(f"{o.text} must be one register")
            if self.dpp is not None and first:
                return self.dpp.reader(n)
            self.reads.append(n)
            return lambda w: w.V[n]
        if o.kind == "s":
            n = self._srange(o, 1, o.text)
            if n in (EXEC, EXEC + 1):
                shift = 32 * (n - EXEC)
                return lambda w: np.uint32(w.exec >> shift & 0xFFFFFFFF)
            self.sreads.append(n)
            return lambda w: np.uint32(w.s[n])
        if o.kind == "flag":
            get = self.flag(o)
            return lambda w: np.uint32(get(w))
        if o.kind in ("int", "float"):
            value = np.uint32(o.constant(type_) & 0xFFFFFFFF)
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a vector source")

    def flag(self, o: Operand) -> Read:
        self.private = False
        return (lambda w: w.scc, lambda w: int(w.vcc == 0), lambda w: int(w.exec == 0))[o.index]

    def src(self, i: int, type_: str, half: int = 0) -> Read:
        """Source ``i`` as numpy values of ``type_``; ``half`` picks the upper half for a 16-bit type.

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
            return (lambda w: flush32(w.F[n]) if not w.mode & 0x10 else w.F[n]) if self.flush else (lambda w: w.F[n])
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
        """Where a vector result goes: omod, clamp, denormals, SDWA and op_sel applied, inactive lanes kept.

        A 16-bit result clears the other half of the register unless ``merge``, in which case ``op_sel`` picks the half.
        """
        o = self.take(i)
        wide = type_ in ("u64", "i64", "f64")
        if o.kind != "v" or o.count != 1 + wide:
            raise self.fail(f"{o.text} cannot hold this result")
        n = o.index
        self.writes += [n, n + 1] if wide else [n]
        if wide:
            put: Write = self._put_wide(n)
        elif self.sdwa and self.mods.get("dst_sel", "DWORD") != "DWORD":
            put = self._put_selected(n)
        elif type_ in ("f16", "u16", "i16"):
            put = self._put_half(n, merge)
        else:
            put = _put_row({"f32": "F", "i32": "I"}.get(type_, "V"), n)

        self.used |= {"dst_sel", "dst_unused"}
        return self._finish(put, type_)

    def _finish(self, put: Write, type_: str) -> Write:
        """Output modifiers, from the inside out: omod, clamp, flush."""
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
        zero, one = _DTYPES[type_](0), _DTYPES[type_](1)

        def finish(w: Wave, x: Any) -> None:
            if omod is not None:
                x = x * x.dtype.type(omod)
            if flush and not w.mode & 0x20:
                x = flush32(x)
            if clamp:
                x = np.where(np.isnan(x), zero, np.clip(x, zero, one))
            put(w, x)

        return finish

    @staticmethod
    def _put_wide(n: int) -> Write:
        def put(w: Wave, x: Any) -> None:
            both = np.ascontiguousarray(np.broadcast_to(x, len(w.mask))).view(np.uint32).reshape(-1, 2)
            np.copyto(w.V[n], both[:, 0], where=w.mask)
            np.copyto(w.V[n + 1], both[:, 1], where=w.mask)

        return put

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
