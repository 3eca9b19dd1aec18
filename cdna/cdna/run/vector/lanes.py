# SPDX-License-Identifier: MIT
"""DPP: a source operand taken from another lane of the wave.

A lane that EXEC switches off is no source, like one outside of the row. With ``bound_ctrl`` its reader takes 0, without
it the reader is not written. ``row_mask`` and ``bank_mask`` only choose which lanes are written, not which are read.
Both spellings, ``bound_ctrl:0`` and ``bound_ctrl:1``, set the bit.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Data Parallel Processing (DPP)"; row_newbcast and
bound_ctrl: LLVM, "Syntax of AMDGPU Instruction Modifiers", https://llvm.org/docs/AMDGPUModifierSyntax.html; lanes that
are not written: LLVM's GCNDPPCombine.cpp, whose rules of combining hold only so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.wave import Wave, bits_of

__all__ = ["Dpp", "dpp_control"]

_LANE = np.arange(64)
_ROW, _COLUMN = _LANE & ~15, _LANE & 15
_NO = np.full(64, -1)


def _rows(name: str, n: int) -> Any:
    """For each lane the lane that it reads, or -1 for none."""
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
        """The permuted 32 bits of row ``n``; lanes without a source give 0."""
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

    def around(self, inner: Callable[[Wave], None], writes: list[int]) -> Callable[[Wave], None]:
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
    """The control that an instruction's modifiers describe.

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
