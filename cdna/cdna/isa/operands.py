# SPDX-License-Identifier: MIT
"""The registers that one AMDGCN instruction names, writes, and forms its address from.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, sections "MUBUF", "FLAT, GLOBAL and SCRATCH" and "DS".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cdna.isa.mnemonics import meaning

__all__ = ["address_of", "span_of", "written_registers"]

_REGISTER = re.compile(r"\b([vas])(?:(\d{1,3})\b|\[(\d{1,3}):(\d{1,3})\])")
_SPAN = re.compile(r"([vas])(?:(\d{1,3})|\[(\d{1,3}):(\d{1,3})\])$")
# Vector instructions whose second operand is a result too: a carry or a scale flag, or the other side of a swap.
_TWO_RESULTS = re.compile(r"v_(\w+_co_u32|div_scale|mad_[ui]64|swap)")
_OFFSET = re.compile(r"\boffset:(-?\d{1,6})\b")
_NO_RESULT = re.compile(r"s_(cmp_|bitcmp|setreg|set_gpr|store|scratch_store|buffer_store|dcache)|v_nop|ds_(gws|nop)")


def span_of(operand: str) -> tuple[str, int, int] | None:
    """Return ``("v", first, last)`` of one operand such as ``v3`` or ``s[4:5]``; None for anything else.

    >>> span_of("s[4:5]"), span_of("v3"), span_of("vcc")
    (('s', 4, 5), ('v', 3, 3), None)
    """
    m = _SPAN.match(operand)
    if m is None:
        return None
    first = int(m[2] or m[3])
    return m[1], first, int(m[4] or first)


def registers_of(text: str, kinds: str = "vas") -> list[str]:
    """Return the registers named in a text of operands, in order; ``kinds`` keeps vector (v), accumulation (a) or
    scalar (s) ones.

    >>> registers_of("v[2:3], a0, s[4:5], v9 offset:16")
    ['v2', 'v3', 'a0', 's4', 's5', 'v9']
    >>> registers_of("v[2:3], s[4:7]", "va")
    ['v2', 'v3']
    """
    found: list[str] = []
    for m in _REGISTER.finditer(text):
        if m[1] not in kinds:
            continue
        if m[2]:
            found.append(m[1] + m[2])
        else:
            low, high = int(m[3]), int(m[4])
            found += [f"{m[1]}{n}" for n in range(low, min(high, low + 63) + 1)]
    return found


def _returns(op: str, args: str) -> bool:
    """Return whether the first operand of a memory instruction is its result."""
    what = meaning(op)
    access = what.access if what else ""
    if op.startswith("ds_"):
        return access == "load" or "_rtn" in op
    if access == "atomic":  # the old value comes back with sc0 on gfx942 and glc on gfx90a
        return re.search(r"\b(sc0|glc)\b", args) is not None
    # With lds (global_load_lds_dword, "… offen lds") the data go to LDS and no register.
    return access == "load" and "_lds_" not in op and not re.search(r"\blds\b", args)


def written_registers(op: str, args: str, kinds: str = "vas") -> list[str]:
    """Return the registers that an instruction writes: none for a store, an LDS write, or an atomic that returns
    nothing.

    Args:
        op: the mnemonic.
        args: its operands as they stand in the text.
        kinds: as in :func:`registers_of`.

    >>> written_registers("global_load_dwordx2", "v[4:5], v0, s[2:3]")
    ['v4', 'v5']
    >>> written_registers("ds_write_b32", "v0, v2"), written_registers("global_atomic_add", "v0, v2, s[4:5]")
    ([], [])
    >>> written_registers("ds_add_rtn_u32", "v1, v0, v2"), written_registers("global_atomic_add", "v1, v0, v2, off sc0")
    (['v1'], ['v1'])
    """
    what = meaning(op)
    if what is None or what.kind in ("waitcnt", "barrier", "other") or _NO_RESULT.match(op):
        return []
    if what.kind == "branch" and not op.startswith(("s_swappc", "s_call")):
        return []
    if what.kind in ("global", "lds", "scratch", "smem") and what.access and not _returns(op, args):
        return []
    count = 2 if what.kind == "valu" and _TWO_RESULTS.match(op) else 1
    return registers_of(",".join(args.split(",")[:count]), kinds)


class Address(NamedTuple):
    """Address of a global, flat or buffer access, as operands of the text; "" where there is none.

    ``lanes`` holds an address or offset per lane, ``base`` is added for the whole wave, ``extra`` is a buffer's second
    scalar offset, ``offset`` the number in the instruction itself, in bytes.
    """

    form: str
    lanes: str
    base: str
    extra: str
    offset: int

    @property
    def registers(self) -> set[str]:
        """Every register that the address depends on."""
        return set(registers_of(f"{self.lanes},{self.base},{self.extra}"))


def address_of(op: str, args: str) -> Address | None:
    """Return the address of a global, flat or buffer load, store or atomic; None for every other instruction.

    >>> address_of("global_store_dword", "v2, v9, s[4:5] offset:-8")
    Address(form='global', lanes='v2', base='s[4:5]', extra='', offset=-8)
    >>> address_of("buffer_load_dword", "v9, v2, s[4:7], s8 offen").extra, address_of("ds_read_b32", "v0, v1")
    ('s8', None)
    """
    form = op.partition("_")[0]
    what = meaning(op)
    if what is None or form not in ("global", "flat", "buffer") or not what.access:
        return None
    operands = [o.strip().split(" ")[0] for o in args.split(",")] + [""] * 4
    found = _OFFSET.search(args)
    offset = int(found[1]) if found else 0
    if form == "buffer":
        first = 0 if re.search(r"\blds\b", args) else 1  # in front stand the data, except where they go to LDS
        offen = "offen" in args
        return Address(
            form, operands[first] if offen else "", operands[first + 1], operands[first + 2] if offen else "", offset
        )
    # A store has its address first, what returns a result has that in front; data stand between address and base.
    first = 1 if _returns(op, args) else 0
    base = operands[first + (1 if what.access == "load" else 2)]
    return Address(form, operands[first], base, "", offset)
