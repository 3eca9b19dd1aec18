# SPDX-License-Identifier: MIT
"""A register chosen at run time: ``v_mov_b32`` between ``s_set_gpr_idx_on`` and ``s_set_gpr_idx_off``.

Compilers write it where code indexes an array that they keep in registers. M0 holds the index, which is added to the
number of the source, of the result, or of both.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "VGPR Indexing", S_SET_GPR_IDX_ON; spelling: LLVM,
"Syntax of AMDGPU Instruction Operands", https://llvm.org/docs/AMDGPUOperandSyntax.html.
"""

from __future__ import annotations

import re

import numpy as np

from cdna.run.access import Access
from cdna.run.errors import RunError
from cdna.run.in_flight import register_name
from cdna.run.state import M0, Program, Run, Wave

__all__ = []

_ON, _OFF = "s_set_gpr_idx_on", "s_set_gpr_idx_off"
_NAMES = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": 8}


def _flags(text: str) -> int | None:
    """Return the operands that the index is added to, as bits, from ``gpr_idx(SRC0,DST)`` or a number."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]|\d{1,2}", text):
        return int(text, 0)
    m = re.fullmatch(r"gpr_idx\(([A-Z0-9, ]*)\)", text)
    words = [w.strip() for w in m[1].split(",") if w.strip()] if m else ["?"]
    return None if any(w not in _NAMES for w in words) else sum(_NAMES[w] for w in words)


def index_flags(p: Program, i: int) -> int:
    """Return to which operands of instruction ``i`` an index is added, 0 for none; see :func:`decode_index_on`."""
    for raw in reversed(p.body[max(0, i - 64) : i]):
        if raw.op == _ON:
            return _flags(raw.args.partition(",")[2].strip()) or 0
        if not raw.op.startswith("v_mov_b32"):
            return 0
    return 0


def decode_index_on(p: Program, i: int, a: Access) -> Run:
    """Return the function that writes the index to M0; what follows up to the end of this mode must be moves."""
    flags = _flags(a.operands[1]) if len(a) == 2 else None
    if flags is None or flags & ~9:
        raise a.fail("an index is added to SRC0, to DST, or to both")
    for raw in p.body[i + 1 : i + 65]:
        if raw.op == _OFF:
            break
        if raw.op not in ("v_mov_b32", "v_mov_b32_e32"):
            raise a.fail(f"line {raw.line}: {raw.op} with a register chosen by an index is not known, v_mov_b32 is")
    else:
        raise a.fail(f"no {_OFF} follows within 64 instructions")
    get = a.s32(0)
    a.swrites.append(M0)
    a.private = False

    def run(w: Wave) -> None:
        kept = w.s[M0] & 0x0F00 if isinstance(w.s[M0], int) else 0
        w.s[M0] = get(w) & 0xFF | kept | flags << 12

    return run


def decode_indexed_move(a: Access, flags: int, vgprs: int) -> Run:
    """Return the function that executes a move with M0's index added to its source (bit 0) or result (bit 3)."""
    d, s = a.take(0), a.take(1)
    if d.kind != "v" or d.count != 1 or s.count != 1 or max(d.index, s.index) > 255:
        raise a.fail("a move of one vector register")
    other = None if s.kind == "v" else a.src(1, "u32")
    a.sreads.append(M0)
    a.private = False

    def usable(w: Wave, r: int, verb: str) -> int:
        """Refuse a register that the kernel lacks, or that a load is under way to."""
        if r >= vgprs:
            raise RunError(f"{verb} v{r} by its index, and the kernel has v0 to v{vgprs - 1}", rule="bounds")
        f = w.flight.get(r)
        if f is not None and f.lanes & w.exec:
            raise RunError(
                f"{verb} {register_name(r)}, which {f.op} of line {f.line} is still loading; s_waitcnt is missing "
                "or too weak",
                rule="wait",
            )
        return r

    def run(w: Wave) -> None:
        index = w.s[M0] & 0xFF
        to = usable(w, d.index + (index if flags & 8 else 0), "writes")
        if other is not None:
            value, known = other(w), w.exec
        else:
            source = usable(w, s.index + (index if flags & 1 else 0), "reads")
            value, known = w.V[source], w.valid[source]
        np.copyto(w.V[to], value, where=w.mask)
        w.valid[to] = w.valid[to] & ~w.exec | known & w.exec

    return run
