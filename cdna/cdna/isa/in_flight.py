# SPDX-License-Identifier: MIT
"""Loads in flight at each instruction of a loop: what ``s_waitcnt`` lets overlap and what it does not.

Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, section "Manually Inserted Wait States" (s_waitcnt).
"""

from __future__ import annotations

from typing import NamedTuple

from cdna.isa.body import Loop
from cdna.isa.kernel import Kernel
from cdna.isa.mnemonics import wait_counts

__all__ = ["loads_in_flight"]


class InFlight(NamedTuple):
    """At one instruction of a loop: its line, kind, and memory operations issued and not yet waited for."""

    line: int
    kind: str
    vector: int
    lds: int


def loads_in_flight(kernel: Kernel, loop: Loop | None = None) -> list[InFlight]:
    """Return the outstanding operations at each instruction of a loop in its steady state, an upper bound from the
    waits alone.

    ``vector`` counts what ``vmcnt`` counts (global, buffer and scratch accesses), ``lds`` what ``lgkmcnt`` counts
    (LDS and scalar loads). Memory may answer sooner; the code does not rely on it before the wait. The loop is walked
    twice in the order of the text, and the second pass is returned: what the first pass left under way is then there.

    >>> from cdna.isa.kernel import parse_asm
    >>> text = "f:\\nL1:\\n global_load_dword v1, v[2:3], off\\n v_add_f32 v4, v4, v5\\n s_waitcnt vmcnt(0)\\n"
    >>> [x.vector for x in loads_in_flight(parse_asm(text + " s_cbranch_scc1 L1\\n s_endpgm")[0])]
    [1, 1, 0, 0]
    """
    if loop is None:
        if not kernel.loops:
            return []
        loop = max(kernel.loops, key=lambda x: (x.depth, x.instructions))
    body = [i for i in kernel.instructions if loop.first_line <= i.line <= loop.last_line]
    vector = lds = 0
    found: list[InFlight] = []
    for _ in range(2):
        found = []
        for i in body:
            if i.kind in ("global", "scratch") and i.access:
                vector += 1
            elif i.kind in ("lds", "permute", "smem"):
                lds += 1
            elif i.kind == "waitcnt":
                counts = wait_counts(i.args)
                vector = min(vector, counts.get("vmcnt", vector))
                lds = min(lds, counts.get("lgkmcnt", lds))
            found.append(InFlight(i.line, i.kind, vector, lds))
    return found
