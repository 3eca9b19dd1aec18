# SPDX-License-Identifier: MIT
"""Accessors for scalar operands, and what every operand needs: its text, its modifiers, notes of what it touches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.operands import Operand, parse_operand, split_operands
from cdna.run.vector.lanes import Dpp, dpp_control
from cdna.run.wave import EXEC, VCC, Wave, bits_of, lanes_of

__all__ = ["Read", "ScalarAccess", "Write"]

Read = Callable[[Wave], Any]
Write = Callable[[Wave, Any], None]


class ScalarAccess:
    """One instruction while it is decoded: operands as text, modifiers, and what its accessors touch."""

    def __init__(self, op: str, args: str, flush: bool = False) -> None:
        self.op = op
        self.base, self.encoding = op, ""
        for suffix in ("_e32", "_e64", "_dpp", "_sdwa"):
            if op.endswith(suffix):
                self.base, self.encoding = op[: -len(suffix)], suffix[1:]
        self.operands, self.mods = split_operands(args)
        self.flush = flush
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
        """The error for an instruction whose text makes no sense."""
        return RunError(f"{self.op} {', '.join(self.operands)}: {why}", rule="text")

    def take(self, i: int) -> Operand:
        """Operand ``i``, counted from 0."""
        if i >= len(self.operands):
            raise self.fail(f"{len(self.operands)} operands, and operand {i + 1} is needed")
        return parse_operand(self.operands[i])

    def number(self, name: str, default: int = 0) -> int:
        """The value of a modifier such as ``offset:16``."""
        self.used.add(name)
        try:
            return int(self.mods[name], 0) if name in self.mods else default
        except ValueError:
            raise self.fail(f"{name}:{self.mods[name]} is no number") from None

    def bits(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """The value of a modifier such as ``op_sel:[0,1]``, filled up from ``default``."""
        self.used.add(name)
        text = self.mods.get(name)
        if text is None:
            return default
        parts = text.strip("[]").split(",")
        if any(p not in ("0", "1") for p in parts):
            raise self.fail(f"{name}:{text} is no list of 0 and 1")
        return (*map(int, parts), *default[len(parts) :])

    # ---- scalar side

    def _srange(self, o: Operand, need: int, text: str) -> int:
        if o.count != need and not (o.count > need and o.kind == "s"):
            raise self.fail(f"{text} is {o.count} registers wide, {need} are needed")
        return o.index

    def s32(self, i: int, type_: str = "u32") -> Read:
        """A 32-bit scalar operand as a Python int."""
        o = self.take(i)
        if o.kind == "s":
            n = self._srange(o, 1, o.text)
            if n in (EXEC, EXEC + 1):
                shift = 32 * (n - EXEC)
                return lambda w: w.exec >> shift & 0xFFFFFFFF
            self.sreads.append(n)
            return lambda w: w.s[n]
        if o.kind == "flag":
            self.private = False
            return (lambda w: w.scc, lambda w: int(w.vcc == 0), lambda w: int(w.exec == 0))[o.index]
        if o.kind in ("int", "float"):
            value = o.constant(type_) & 0xFFFFFFFF
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a scalar operand")

    def s64(self, i: int, type_: str = "u64") -> Read:
        """A 64-bit scalar operand as a Python int."""
        o = self.take(i)
        if o.kind == "s":
            n = self._srange(o, 2, o.text)
            if n == EXEC:
                return lambda w: w.exec
            self.sreads += [n, n + 1]
            return lambda w: w.s[n] | w.s[n + 1] << 32
        if o.kind in ("int", "float"):
            value = o.constant(type_)
            return lambda w: value
        raise self.fail(f"{o.text} cannot be a scalar operand of 64 bits")

    def s64_at(self, n: int) -> Read:
        """Two scalar registers by number, for descriptors."""
        self.sreads += [n, n + 1]
        return lambda w: w.s[n] | w.s[n + 1] << 32

    def sdst32(self, i: int) -> Callable[[Wave, int], None]:
        """Where a 32-bit scalar result goes."""
        o = self.take(i)
        if o.kind != "s":
            raise self.fail(f"{o.text} cannot hold a scalar result")
        n = self._srange(o, 1, o.text)
        if n in (EXEC, EXEC + 1):
            self.private = False
            keep, shift = (0xFFFFFFFF << 32, 0) if n == EXEC else (0xFFFFFFFF, 32)
            return lambda w, x: w.set_exec(w.exec & keep | x << shift)
        self.swrites.append(n)

        def put(w: Wave, x: int) -> None:
            w.s[n] = x

        return put

    def sdst64(self, i: int, operand: Operand | None = None) -> Callable[[Wave, int], None]:
        """Where a 64-bit scalar result goes."""
        o = operand or self.take(i)
        if o.kind != "s":
            raise self.fail(f"{o.text} cannot hold a scalar result")
        n = self._srange(o, 2, o.text)
        if n == EXEC:
            self.private = False
            return lambda w, x: w.set_exec(x)
        self.swrites += [n, n + 1]

        def put(w: Wave, x: int) -> None:
            w.s[n] = x & 0xFFFFFFFF
            w.s[n + 1] = x >> 32

        return put

    def carry_in(self, i: int | None = None) -> Read:
        """A mask in an SGPR pair (VCC if ``i`` is None) as 64 bits."""
        if i is not None:
            return self.s64(i)
        self.sreads += [VCC, VCC + 1]
        return lambda w: w.s[VCC] | w.s[VCC + 1] << 32

    def mask_in(self, i: int | None = None) -> Read:
        """A mask in an SGPR pair (VCC if ``i`` is None) as booleans, one for each lane."""
        o = Operand("s", VCC, 2) if i is None else self.take(i)
        if o.kind != "s" or o.index == EXEC:
            get = self.s64(i or 0)
            return lambda w: np.resize(lanes_of(get(w)), len(w.mask))  # the same for each of several waves
        n = self._srange(o, 2, o.text)
        self.sreads += [n, n + 1]
        self.own += [n, n + 1]
        return lambda w: w.mask_at(n)

    def mask_out(self, i: int) -> Callable[[Wave, Any], None]:
        """Where a mask goes: booleans, one for each lane; lanes that are off give 0."""
        o = self.take(i)
        if o.kind == "s" and o.index != EXEC:
            n = self._srange(o, 2, o.text)
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
