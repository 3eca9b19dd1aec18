# SPDX-License-Identifier: MIT
"""Which operations of a TTGIR program go through LDS, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdna.ir.layouts import wave_bits
from cdna.ir.values import Operation, Value

__all__ = []


@dataclass(frozen=True, slots=True)
class LdsUse:
    """One round trip: registers (or global memory) to LDS and back.

    ``reasons`` holds any of: transpose, dot operand, layout change, pipelining, async copy, reduction, scan, gather.
    ``bytes`` is the size of the data (before padding), ``buffers`` the number of copies kept for pipelining, ``depth``
    the loop depth of the deepest store or load, ``certain`` False when the compiler may still avoid LDS.
    """

    reasons: tuple[str, ...]
    stores: tuple[Operation, ...]
    loads: tuple[Operation, ...]
    bytes: int
    buffers: int
    depth: int
    certain: bool = True
    values: tuple[str, ...] = field(default=())

    @property
    def line(self) -> int:
        """Line of the first operation in the dump."""
        return min(op.line for op in (*self.stores, *self.loads))

    @property
    def source(self) -> str:
        """Place in the user's file of the first operation that names one."""
        ops = sorted((*self.stores, *self.loads), key=lambda op: op.line)
        return next((op.source for op in ops if op.source), "")


def crosses_waves(before: Value | None, after: Value | None) -> bool | None:
    """Return whether converting between two register layouts moves elements to another wave; None when not known."""
    if before is None or after is None or before.layout is None or after.layout is None:
        return None
    old, new = wave_bits(before.layout, before.type.shape), wave_bits(after.layout, after.type.shape)
    if old is None or new is None or len(old) != len(new):
        return None
    # A wave bit in which the old layout repeats the data is free: every wave has what it needs whatever that bit is.
    return any(a is not None and (b is None or set(a) != set(b)) for a, b in zip(old, new, strict=True))


_MOVES = {
    "tt.load": "global -> registers",
    "tt.descriptor_load": "global -> registers",
    "amdg.buffer_load": "global -> registers",
    "tt.store": "registers -> global",
    "tt.descriptor_store": "registers -> global",
    "amdg.buffer_store": "registers -> global",
    "tt.atomic_rmw": "registers -> global",
    "tt.atomic_cas": "registers -> global",
    "amdg.buffer_atomic_rmw": "registers -> global",
    "amdg.buffer_atomic_cas": "registers -> global",
    "ttg.local_store": "registers -> LDS",
    "ttg.local_load": "LDS -> registers",
    "amdg.local_load_packed_tranposed": "LDS -> registers",
    "amdg.local_load_packed_transposed": "LDS -> registers",
    "ttg.async_copy_global_to_local": "global -> LDS",
    "ttg.insert_slice_async": "global -> LDS",
    "amdg.buffer_load_to_local": "global -> LDS",
    "amdg.async_tdm_copy_global_to_local": "global -> LDS",
}
_ACROSS = {"tt.reduce": "reduction", "tt.scan": "scan", "tt.gather": "gather", "tt.histogram": "histogram"}
_AXIS = re.compile(r"axis = (\d{1,2})")


def _reduces_across_waves(op: Operation, values: dict[str, Value]) -> bool | None:
    value = values.get(op.operands[0]) if op.operands else None
    axis = _AXIS.search(op.text)
    if value is None or value.layout is None or axis is None:
        return None
    bits = wave_bits(value.layout, value.type.shape)
    if bits is None:
        return None
    return any(bit is not None and any(dim == int(axis[1]) for dim, _ in bit) for bit in bits)


def _partial_bytes(op: Operation, values: dict[str, Value]) -> int:
    """Return the bytes of partial results that a reduction leaves in LDS: one per wave along the axis; 0 when not
    known.
    """
    value, axis = values.get(op.operands[0]) if op.operands else None, _AXIS.search(op.text)
    bits = wave_bits(value.layout, value.type.shape) if value and value.layout else None
    if op.name != "tt.reduce" or value is None or bits is None or axis is None or int(axis[1]) >= len(value.type.shape):
        return 0
    waves = 1 << sum(bit is not None and any(dim == int(axis[1]) for dim, _ in bit) for bit in bits)
    return value.type.bytes // value.type.shape[int(axis[1])] * waves * len(op.operands)


def movement(op: Operation, values: dict[str, Value]) -> str:
    """Say what an operation moves from where to where; empty when the data stays where it is."""
    if op.name == "ttg.local_alloc":
        return "registers -> LDS" if op.operands else ""
    if op.name == "ttg.convert_layout" and op.operands and op.results:
        before, after = values.get(op.operands[0]), values.get(op.results[0])
        places = (before.memory if before else "registers", after.memory if after else "registers")
        if places != ("registers", "registers"):
            return f"{places[0]} -> {places[1]}" if places[0] != places[1] else ""
        crossing = crosses_waves(before, after)
        if crossing:
            return "registers -> LDS -> registers"
        return "registers -> registers" if crossing is False else "registers -> registers (perhaps by LDS)"
    if op.name in _ACROSS:
        crossing = _reduces_across_waves(op, values)
        if crossing is None:
            return "registers -> registers (perhaps by LDS)"
        return "registers -> LDS -> registers" if crossing else "registers -> registers"
    return _MOVES.get(op.name, "")


def _groups(values: dict[str, Value], edges: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return LDS values that are one buffer: linked by views (trans, index, subslice) or carried round a loop."""
    parent = {name: name for name, v in values.items() if v.memory == "LDS"}

    def find(x: str) -> str:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for name, targets in edges.items():
        for target in targets:
            if name in parent and target in parent:
                parent[find(target)] = find(name)
    groups: dict[str, list[str]] = {}
    for name in parent:
        groups.setdefault(find(name), []).append(name)
    return {name: root for root, names in groups.items() for name in names}


def _reasons(
    stores: list[Operation], loads: list[Operation], views: list[Operation], values: dict[str, Value]
) -> list[str]:
    found = []
    if any(op.name in ("tt.trans", "ttg.memdesc_trans") or "transposed" in op.name for op in (*views, *loads)):
        found.append("transpose")
    outs = [values[r].layout for op in loads for r in op.results]
    if any(layout is not None and layout.kind == "dot_op" for layout in outs):
        found.append("dot operand")
    if any("global ->" in movement(op, values) for op in stores):
        found.append("async copy")
    buffer = any(op.name == "ttg.local_alloc" and not op.operands for op in views)
    if buffer and any(op.depth for op in stores):
        found.append("pipelining")
    return found or ["layout change"]


def find_lds_uses(
    operations: Sequence[Operation], values: dict[str, Value], edges: dict[str, tuple[str, ...]]
) -> tuple[LdsUse, ...]:
    """Find every round trip through LDS of a program; see :class:`LdsUse`."""
    root = _groups(values, edges)
    parts: dict[str, tuple[list[Operation], list[Operation], list[Operation]]] = {}
    uses: list[LdsUse] = []
    for op in operations:
        move = movement(op, values)
        if move.startswith("registers -> LDS -> registers") or "perhaps" in move:
            size = _partial_bytes(op, values) or max(
                (values[o].type.bytes for o in op.operands if o in values), default=0
            )
            reason = _ACROSS.get(op.name, "layout change")
            uses.append(LdsUse((reason,), (op,), (op,), size, 1, op.depth, "perhaps" not in move, op.results))
            continue
        touched = dict.fromkeys(root[n] for n in (*op.operands, *op.results) if n in root)
        for group in touched:
            stores, loads, views = parts.setdefault(group, ([], [], []))
            if move.endswith("-> LDS"):
                stores.append(op)
            elif move.startswith("LDS ->"):
                loads.append(op)
            else:
                views.append(op)
    members: dict[str, list[str]] = {}
    for name, group in root.items():
        members.setdefault(group, []).append(name)
    for group, (stores, loads, views) in parts.items():
        if not stores and not loads:
            continue
        names = tuple(members[group])
        size = max(values[n].type.bytes for n in names)
        allocs = [op for op in views if op.name == "ttg.local_alloc" and not op.operands and op.results]
        shapes = [values[op.results[0]].type.shape for op in allocs]
        buffers = max((s[0] for s in shapes if len(s) > 2), default=1)
        depth = max(op.depth for op in (*stores, *loads))
        reasons = tuple(_reasons(stores, loads, views, values))
        uses.append(LdsUse(reasons, tuple(stores), tuple(loads), size, buffers, depth, True, names))
    return tuple(sorted(uses, key=lambda u: u.line))
