# SPDX-License-Identifier: MIT
"""Data moved between lanes by the LDS crossbar: ds_bpermute, ds_permute, ds_swizzle. No LDS memory is used.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "DS Instructions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory.in_flight import launch_load
from cdna.run.memory.results import deliver
from cdna.run.vector.access import Access
from cdna.run.wave import Flight, Wave, lanes_of

__all__ = ["decode_crossbar"]

_LANE = np.arange(64)


def _swizzle(offset: str) -> Any:
    """Source lane of each lane for ds_swizzle: quad mode (bit 15), or bit masks within 32 lanes."""
    if m := re.fullmatch(r"swizzle\((\w+),(.*)\)", offset.replace(" ", "")):
        mode, rest = m[1], m[2]
        if mode == "QUAD_PERM":
            code = 0x8000 | sum(int(x) << 2 * i for i, x in enumerate(rest.split(",")))
        elif mode == "BITMASK_PERM":
            mask = rest.strip('"')
            keep = sum((c in "pi") << (4 - i) for i, c in enumerate(mask))
            ones = sum((c == "1") << (4 - i) for i, c in enumerate(mask))
            flip = sum((c == "i") << (4 - i) for i, c in enumerate(mask))
            code = keep | ones << 5 | flip << 10
        else:
            group, *more = (int(x) for x in rest.split(","))
            one = {
                "BROADCAST": (32 - group, more[0] if more else 0, 0),
                "SWAP": (31, 0, group),
                "REVERSE": (31, 0, group - 1),
            }.get(mode)
            if one is None:
                raise RunError(f"ds_swizzle {offset}: unknown mode", rule="text")
            code = one[0] & 31 | one[1] << 5 | one[2] << 10
    else:
        code = int(offset, 0)
    if code & 0x8000:
        return (_LANE & ~3) + (code >> 2 * (_LANE & 3) & 3)
    keep, ones, flip = code & 31, code >> 5 & 31, code >> 10 & 31
    return (_LANE & 32) + ((_LANE & 31 & keep | ones) ^ flip)


def decode_crossbar(a: Access, line: int) -> Callable[[Wave], None]:
    """ds_bpermute (pull), ds_permute (push), ds_swizzle: data moves between lanes, no LDS memory is used."""
    kind, op = a.base, a.op
    d = a.rows(0, 1, write=True)
    a.writes.clear()
    fixed = None
    if kind == "ds_swizzle_b32":
        a.used.add("offset")
        try:
            fixed = _swizzle(a.mods.get("offset", "0"))
        except (ValueError, IndexError):
            raise a.fail("the pattern makes no sense") from None
        n = address = a.take(1).index
        a.rows(1, 1)
        a.reads.pop()
        a.lane_reads.append(n)
    else:
        address = a.rows(1, 1)
        n = a.rows(2, 1)
        if kind == "ds_bpermute_b32":
            a.reads.pop()
            a.lane_reads.append(n)
    offset = a.number("offset") if fixed is None else 0

    def run(w: Wave) -> None:
        mask = w.mask
        if kind == "ds_permute_b32":
            out, defined = np.zeros(64, np.uint32), np.ones(64, np.bool_)
            target = (w.V[address].astype(np.int64) + offset >> 2) & 63
            out[target[mask]] = w.V[n][mask]
        else:
            source = fixed if fixed is not None else (w.V[address].astype(np.int64) + offset >> 2) & 63
            on = mask[source]
            # A lane that is switched off gives 0.
            out = np.where(on, w.V[n][source], np.uint32(0))
            defined = lanes_of(w.valid[n])[source] | ~on
        if not defined[mask].all():
            lane = int(np.argmax(mask & ~defined))
            raise RunError(f"lane {lane} takes v{n} from a lane where it is undefined", rule="undefined")
        regs = (d,)
        values = out[mask][:, None]
        launch_load(w, Flight(line, op, "lgkmcnt", regs, w.exec, deliver(w, regs, values, w.exec)))

    return run
