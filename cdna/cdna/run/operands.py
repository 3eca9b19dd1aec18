# SPDX-License-Identifier: MIT
"""Operands of an instruction: from the text to a register number, a constant, and the modifiers around them.

DPP takes a source operand from another lane of the wave. A lane that EXEC switches off is no source, like one outside
of the row. With ``bound_ctrl`` its reader takes 0, without it the reader is not written. ``row_mask`` and ``bank_mask``
only choose which lanes are written, not which are read. Both spellings, ``bound_ctrl:0`` and ``bound_ctrl:1``, set the
bit.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "Scalar ALU Operands", "Vector ALU Operands",
"Data Parallel Processing (DPP)"; spelling: LLVM, "Syntax of AMDGPU Instruction Operands",
https://llvm.org/docs/AMDGPUOperandSyntax.html; row_newbcast and bound_ctrl: LLVM, "Syntax of AMDGPU Instruction
Modifiers", https://llvm.org/docs/AMDGPUModifierSyntax.html; lanes that are not written: LLVM's GCNDPPCombine.cpp, whose
rules of combining hold only so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cdna.run.errors import RunError
from cdna.run.state import EXEC, M0, SCRATCH, VCC, XNACK, Run, Wave, bits_of

__all__ = []

# Apertures of flat addressing. Their place is the driver's choice; here they are far from every allocation.
SHARED_BASE, PRIVATE_BASE = 0x0001_0000_0000_0000, 0x0002_0000_0000_0000
_PAIRS = {"vcc": VCC, "exec": EXEC, "flat_scratch": SCRATCH, "xnack_mask": XNACK}
_NAMED = {"m0": (M0, 1)}
for _name, _first in _PAIRS.items():
    _NAMED |= {_name: (_first, 2), f"{_name}_lo": (_first, 1), f"{_name}_hi": (_first + 1, 1)}
_CONSTANTS = {
    "src_shared_base": SHARED_BASE,
    "src_shared_limit": SHARED_BASE + 0xFFFF_FFFF,
    "src_private_base": PRIVATE_BASE,
    "src_private_limit": PRIVATE_BASE + 0xFFFF_FFFF,
    "shared_base": SHARED_BASE,
    "private_base": PRIVATE_BASE,
}
_REGISTER = re.compile(r"([vsa])(?:(\d{1,3})|\[(\d{1,3})(?::(\d{1,3}))?\])$")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|\d{1,20})$")
_FLOAT = re.compile(r"-?\d{1,20}\.\d{0,30}(?:[eE][-+]?\d{1,3})?$")


class Operand(NamedTuple):
    """One operand: ``kind`` is ``v`` (row ``index`` of the vector file), ``s``, ``int``, ``float``, ``flag``, ``off``.

    ``flag`` is one of the conditions that can be read as a number (``src_scc``).
    """

    kind: str
    index: int = 0  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    count: int = 1  # type: ignore[assignment]  # hides a method of tuples that nobody calls here
    value: float = 0
    neg: bool = False
    abs: bool = False
    sext: bool = False
    text: str = ""

    @property
    def is_inline(self) -> bool:
        """Return whether a constant is encoded in the instruction itself, so that it takes no place of a literal."""
        if self.kind == "int":
            return -16 <= self.value <= 64
        return abs(self.value) in (0, 0.5, 1, 2, 4) or self.text.startswith("0.15915494")

    def constant(self, type_: str) -> int:
        """Return the bits of a constant for an operand of a type: ``f32``, ``f16``, ``f64``, ``u64``, ``i32``, …

        A float is an inline constant, so its bits depend on the type; integers do not.
        """
        if self.kind == "float":
            inv2pi = self.value == 0.15915494 or self.text.startswith("0.15915494")
            if type_ in ("f16", "u16", "i16", "h32"):
                return 0x3118 if inv2pi else int(np.float16(self.value).view(np.uint16))
            if type_ in ("f64", "u64", "i64"):
                return 0x3FC45F306DC9C882 if inv2pi else struct.unpack("<Q", struct.pack("<d", self.value))[0]
            return 0x3E22F983 if inv2pi else int(np.float32(self.value).view(np.uint32))
        value = int(self.value)
        if type_ == "f64" and not -16 <= value <= 64 and 0 <= value < 1 << 32:
            return value << 32  # a 32-bit literal is the high half of a double
        return value & (0xFFFF_FFFF_FFFF_FFFF if type_ in ("f64", "u64", "i64") else 0xFFFF_FFFF)


@lru_cache(maxsize=16384)
def parse_operand(text: str) -> Operand:
    """Parse one operand of the text.

    >>> parse_operand("-|v3|")[:7], parse_operand("a[4:7]")[:3], parse_operand("exec_lo")[:3]
    (('v', 3, 1, 0, True, True, False), ('v', 260, 4), ('s', 126, 1))
    """
    whole = text
    neg = absolute = sext = False
    for _ in range(4):
        if text.startswith("-") and not _INTEGER.match(text) and not _FLOAT.match(text):
            neg, text = True, text[1:]
        elif text.startswith("|") and text.endswith("|") and len(text) > 2:
            absolute, text = True, text[1:-1]
        elif text.startswith(("neg(", "abs(", "sext(")) and text.endswith(")"):
            word = text.partition("(")[0]
            neg, absolute, sext = neg or word == "neg", absolute or word == "abs", sext or word == "sext"
            text = text[len(word) + 1 : -1]
        else:
            break
    flags: dict[str, Any] = {"neg": neg, "abs": absolute, "sext": sext, "text": whole}
    if m := _REGISTER.match(text):
        first = int(m[2] or m[3])
        count = int(m[4]) - first + 1 if m[4] else 1
        if not 1 <= count <= 32 or first + count > (106 if m[1] == "s" else 256):
            raise RunError(f"{whole!r} is no register of gfx942: v0 to v255, a0 to a255, s0 to s101", rule="text")
        return Operand("s" if m[1] == "s" else "v", first + (256 if m[1] == "a" else 0), count, **flags)
    if text in _NAMED:
        return Operand("s", *_NAMED[text], **flags)
    if text in _CONSTANTS:
        return Operand("int", count=2, value=_CONSTANTS[text], **flags)
    if text in ("src_scc", "scc", "src_vccz", "vccz", "src_execz", "execz"):
        return Operand("flag", text.endswith("vccz") + 2 * text.endswith("execz"), **flags)
    if text == "off":
        return Operand("off", **flags)
    if _INTEGER.match(text):
        value = int(text, 0 if "x" in text.lower() or "b" in text.lower() else 10)
        if not -(1 << 63) <= value < 1 << 64:
            raise RunError(f"{whole!r} does not fit 64 bits", rule="text")
        return Operand("int", value=value, **flags)
    if _FLOAT.match(text):
        return Operand("float", value=float(text), **flags)
    raise RunError(f"{whole[:60]!r} is no operand of gfx942", rule="text")


_SPLIT = re.compile(r",(?![^\[(]*[\])])")
_MODIFIER = re.compile(
    r"(?:\s+|^)((?:offset|offset0|offset1|op_sel|op_sel_hi|neg_lo|neg_hi|mul|div|row_\w+|quad_perm|wave_\w+|bank_mask|bound_ctrl"
    r"|dst_sel|dst_unused|src0_sel|src1_sel|cbsz|abid|blgp|format|dfmt|nfmt)(?::(?:swizzle\([^)]*\)|\[[^\]]*\]|-?\w+))?"
    r"|clamp|offen|idxen|lds|glc|slc|dlc|scc|sc0|sc1|nt|tfe|lwe|addr64|gds|neg:\[[^\]]*\])(?=\s|$)"
)


@lru_cache(maxsize=16384)
def _split(args: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    modifiers: dict[str, str] = {}
    first = len(args)
    for m in _MODIFIER.finditer(args):
        name, _, value = m[1].partition(":")
        modifiers[name] = value
        first = min(first, m.start())
    left = _MODIFIER.sub("", args[first:]).strip()
    if left:
        raise RunError(f"{left[:40]!r} is no modifier of gfx942", rule="text")
    head = args[:first].strip()
    return tuple(part.strip() for part in _SPLIT.split(head)) if head else (), tuple(modifiers.items())


def split_operands(args: str) -> tuple[list[str], dict[str, str]]:
    """Split a text into operands and the modifiers that follow them.

    >>> split_operands("v[0:1], v2, s[4:7], 0 offen offset:16")
    (['v[0:1]', 'v2', 's[4:7]', '0'], {'offen': '', 'offset': '16'})
    >>> split_operands("v0, v1 quad_perm:[3,2,1,0] row_mask:0xf bound_ctrl:1")[1]["quad_perm"]
    '[3,2,1,0]'
    """
    operands, modifiers = _split(args)
    return list(operands), dict(modifiers)


_LANE = np.arange(64)
_ROW, _COLUMN = _LANE & ~15, _LANE & 15
_NO = np.full(64, -1)


def _rows(name: str, n: int) -> Any:
    """Return for each lane the lane that it reads, or -1 for none."""
    if name == "row_shl":
        return np.where(_COLUMN + n < 16, _LANE + n, -1)
    if name == "row_shr":
        return np.where(n <= _COLUMN, _LANE - n, -1)
    if name == "row_ror":
        return _ROW + (_COLUMN - n) % 16
    if name == "row_newbcast" or name == "row_share":
        return _ROW + n
    if name == "row_bcast":
        if n == 15:
            return np.where(_ROW > 0, _ROW - 1, -1)
        return np.where(_LANE >= 32, 31, -1)
    if name == "wave_shl":
        return np.where(_LANE < 63, _LANE + 1, -1)
    if name == "wave_shr":
        return _LANE - 1
    if name == "wave_rol":
        return (_LANE + 1) % 64
    return (_LANE - 1) % 64  # wave_ror


_LIMITS = {
    "row_shl": range(1, 16),
    "row_shr": range(1, 16),
    "row_ror": range(1, 16),
    "row_newbcast": range(16),
    "row_bcast": (15, 31),
    "wave_shl": (1,),
    "wave_shr": (1,),
    "wave_rol": (1,),
    "wave_ror": (1,),
}


class Dpp:
    """One DPP control: which lane each lane reads, and what happens to a lane whose source does not exist or is off."""

    def __init__(self, source: Any, row_mask: int, bank_mask: int, bound: bool) -> None:
        self.inside = source >= 0
        self.source = np.where(self.inside, source, _LANE)
        self.enabled = (row_mask >> (_LANE // 16) & 1 & bank_mask >> (_LANE // 4 % 4)).astype(np.bool_)
        self.bound = bound

    def reader(self, n: int) -> Callable[[Wave], Any]:
        """Return a reader of the permuted 32 bits of row ``n``; lanes without a source give 0."""
        source = self.source

        def read(w: Wave) -> Any:
            ok = w.dpp_ok
            needed = bits_of(_hit(source[ok & w.mask]))
            if needed & ~w.valid[n]:
                raise RunError(
                    f"DPP reads {'v' if n < 256 else 'a'}{n % 256} in lanes where it is undefined or still under way",
                    rule="undefined",
                )
            return np.where(ok, w.V[n][source], np.uint32(0))

        return read

    def around(self, inner: Run, writes: list[int]) -> Run:
        """Run ``inner`` with only the lanes that this control leaves on."""
        targets = tuple(writes)

        def run(w: Wave) -> None:
            before = w.exec
            ok = self.inside & w.mask[self.source]
            lanes = w.mask & self.enabled
            if not self.bound:
                lanes = lanes & ok
            w.dpp_ok = ok
            w.set_exec(bits_of(lanes))
            try:
                inner(w)
                for r in targets:
                    w.valid[r] |= w.exec
            finally:
                w.set_exec(before)

        return run


def _hit(lanes: Any) -> Any:
    found = np.zeros(64, np.bool_)
    found[lanes] = True
    return found


def dpp_control(mods: dict[str, str]) -> Dpp:
    """Return the control that an instruction's modifiers describe.

    >>> dpp_control({"row_shr": "1", "row_mask": "0xf", "bank_mask": "0xf"}).source[:4].tolist()
    [0, 0, 1, 2]
    """
    source = None
    for name, value in mods.items():
        if name == "quad_perm":
            parts = value.strip("[]").split(",")
            if len(parts) == 4 and all(p in ("0", "1", "2", "3") for p in parts):
                source = (_LANE & ~3) + np.array([int(p) for p in parts])[_LANE & 3]
        elif name == "row_mirror":
            source = _ROW + 15 - _COLUMN
        elif name == "row_half_mirror":
            source = (_LANE & ~7) + 7 - (_LANE & 7)
        elif name in _LIMITS and re.fullmatch(r"\d{1,2}", value) and int(value) in _LIMITS[name]:
            source = _rows(name, int(value))
    if source is None:
        raise RunError(f"DPP control {mods}: none that gfx942 has", rule="text")
    try:
        rows, banks = int(mods.get("row_mask", "0xf"), 0), int(mods.get("bank_mask", "0xf"), 0)
    except ValueError:
        raise RunError(f"DPP masks {mods}: no numbers", rule="text") from None
    return Dpp(source, rows, banks, "bound_ctrl" in mods)
