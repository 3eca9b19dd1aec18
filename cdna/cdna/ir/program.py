# SPDX-License-Identifier: MIT
"""Read TTIR and TTGIR dumps: layouts, where each value lives, conversions, uses of LDS and why, and traces of a value.

Both spellings are read: ``triton_gpu.`` (until Triton 3.1) and ``ttg.`` (since 3.2).
Source: Triton, "TritonGPU dialect", https://triton-lang.org/main/dialects/TritonGPUOps.html.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from cdna.base import InputError
from cdna.ir.build import IrNestingError, build_programs
from cdna.ir.layouts import Layout
from cdna.ir.lds import LdsUse, crosses_waves, find_lds_uses, movement
from cdna.ir.text import Header
from cdna.ir.values import Operation, Value

__all__ = ["GlobalAccess", "IrError", "Program", "parse_ir"]


class IrError(InputError):
    """The text holds no TTIR or TTGIR function, or a value that does not exist is asked for."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """One ``convert_layout``: from which layout to which, and whether data must change waves (None: not known)."""

    operation: Operation
    before: Layout | None
    after: Layout | None
    crosses_waves: bool | None


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """One load or store of global memory: the widest access that the layout lets a lane make, the bits a lane holds."""

    operation: Operation
    access: str
    value: Value | None
    lane_bits: int | None
    held_bits: int | None = None


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One stop on a value's way: the operation, the value it makes (or takes, for a store), where that lives."""

    operation: Operation
    value: Value | None
    memory: str
    move: str


@dataclass(frozen=True)
class Program:
    """One function of a dump. ``stage`` names the compiler pass when the dump says it, ``header`` its options."""

    name: str
    stage: str
    header: Header
    layouts: dict[str, Layout]
    operations: tuple[Operation, ...]
    values: dict[str, Value]
    edges: dict[str, tuple[str, ...]] = field(repr=False, default_factory=dict)

    def move(self, operation: Operation) -> str:
        """Return what the operation moves, such as ``"global -> registers"``; empty when the data stays where it is."""
        return movement(operation, self.values)

    @cached_property
    def lds_uses(self) -> tuple[LdsUse, ...]:
        """Every round trip through LDS, in order of the first store, with its reasons."""
        return find_lds_uses(self.operations, self.values, self.edges)

    @cached_property
    def conversions(self) -> tuple[Conversion, ...]:
        """Every ``convert_layout``."""
        found = []
        for op in self.operations:
            if op.name == "ttg.convert_layout" and op.operands and op.results:
                a, b = self.values.get(op.operands[0]), self.values[op.results[0]]
                found.append(Conversion(op, a.layout if a else None, b.layout, crosses_waves(a, b)))
        return tuple(found)

    @cached_property
    def global_accesses(self) -> tuple[GlobalAccess, ...]:
        """Loads, stores and atomics of global memory."""
        found = []
        for op in self.operations:
            access = next((a for a in ("load", "store", "atomic") if a in op.name.rpartition(".")[2]), "")
            if not access or "global" not in self.move(op):
                continue
            name = op.results[0] if op.results else op.stored
            value = self.values.get(name) if name else None
            found.append(GlobalAccess(op, access, value, _lane_bits(value), _held_bits(value)))
        return tuple(found)

    def tensors(self, memory: str = "") -> list[Value]:
        """Return the tensor values, all or those that live in ``"registers"`` or ``"LDS"``."""
        kinds = ("registers", "LDS")
        return [v for v in self.values.values() if v.memory in kinds and (not memory or v.memory == memory)]

    def forward(self, value: str) -> list[FlowStep]:
        """Return all that is computed from ``value``, in program order: where the data goes.

        Raises:
            IrError: no such value.
        """
        return self._steps(self._reach(value, self.edges), backward=False)

    def backward(self, value: str) -> list[FlowStep]:
        """Return all that ``value`` is computed from, in program order, the value itself included: where the data came
        from.

        Raises:
            IrError: no such value.
        """
        return self._steps(self._reach(value, self._reverse), backward=True)

    def path(self, start: str, end: str) -> list[FlowStep]:
        """Return the shortest way of data from ``start`` to ``end``; empty when there is none.

        Raises:
            IrError: no such value.
        """
        self._reach(end, {})
        came: dict[str, str] = {}
        seen, queue = {start}, [start]
        self._reach(start, {})
        for name in queue:
            for target in self.edges.get(name, ()):
                if target not in seen:
                    seen.add(target)
                    came[target] = name
                    queue.append(target)
        if end not in seen:
            return []
        chain = [end]
        while chain[-1] != start:
            chain.append(came[chain[-1]])
        by_name = {r: op for op in self.operations for r in op.results}
        steps = [by_name[n] for n in reversed(chain) if n in by_name]
        return [self._step(op) for op in dict.fromkeys(steps)]

    @cached_property
    def _reverse(self) -> dict[str, tuple[str, ...]]:
        back: dict[str, list[str]] = {}
        for name, targets in self.edges.items():
            for target in targets:
                back.setdefault(target, []).append(name)
        return {name: tuple(sources) for name, sources in back.items()}

    def _reach(self, value: str, edges: dict[str, tuple[str, ...]]) -> set[str]:
        if value not in self.values:
            near = [n for n in self.values if n.startswith(value[:3])][:4]
            raise IrError(f"value={value}: not in {self.name}; give a result name such as {', '.join(near) or '%0'}")
        seen, queue = {value}, [value]
        for name in queue:
            fresh = [t for t in edges.get(name, ()) if t not in seen]
            seen.update(fresh)
            queue.extend(fresh)
        return seen

    def _steps(self, names: set[str], backward: bool) -> list[FlowStep]:
        found = []
        for op in self.operations:
            made = any(r in names for r in op.results)
            # A store makes no value: it ends a forward trace when it takes one of the values.
            ends = not backward and not op.results and any(o in names for o in op.operands)
            if made or (ends and self.move(op)):
                found.append(self._step(op))
        return found

    def _step(self, op: Operation) -> FlowStep:
        name = op.results[0] if op.results else op.stored
        value = self.values.get(name) if name else None
        move = self.move(op)
        memory = move.rpartition("-> ")[2] if move else value.memory if value else ""
        return FlowStep(op, value, memory, move)


def _lane_bits(value: Value | None) -> int | None:
    layout = value.layout if value else None
    if value is None or layout is None or not value.type.shape:
        return None
    if layout.kind == "mma":
        # A matrix instruction leaves four numbers of a column in a lane, of a row where its operands were exchanged.
        across = 4 if layout.params.get("isTransposed") == "true" else 1
        return min(128, across * _element_bits(value))
    if layout.kind != "blocked":
        return None
    per, order = layout.numbers("sizePerThread"), layout.numbers("order")
    if len(per) != len(value.type.shape) or not order or not 0 <= order[0] < len(per):
        return None
    return min(128, per[order[0]] * _element_bits(value))


def _element_bits(value: Value) -> int:
    bits = max(value.type.bytes, 1) * 8
    for size in value.type.shape:
        bits //= max(size, 1)
    return bits


def _held_bits(value: Value | None) -> int | None:
    """Return the bits of a tensor that one lane holds in a blocked layout; None where the dump does not say."""
    layout = value.layout if value else None
    if value is None or layout is None or layout.kind != "blocked" or not value.type.shape:
        return None
    per, lanes, waves = (layout.numbers(n) for n in ("sizePerThread", "threadsPerWarp", "warpsPerCTA"))
    if not len(per) == len(lanes) == len(waves) == len(value.type.shape):
        return None
    held = _element_bits(value)
    for size, *tile in zip(value.type.shape, per, lanes, waves, strict=True):
        held *= tile[0] * max(1, -(-size // math.prod(tile)))
    return held


def parse_ir(text: str) -> list[Program]:
    """Parse a TTIR or TTGIR text, or a dump of many passes (``MLIR_ENABLE_DUMP=1``), into its functions in order.

    Raises:
        IrError: no function with a Triton operation in it.

    >>> text = '''
    ... #b = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [64], warpsPerCTA = [4], order = [0]}>
    ... module attributes {"ttg.num-warps" = 4 : i32} {
    ...   tt.func public @copy(%p: !tt.ptr<f32>) {
    ...     %o = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32, #b>
    ...     %s = tt.splat %p : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>, #b>
    ...     %a = tt.addptr %s, %o : tensor<1024x!tt.ptr<f32>, #b>, tensor<1024xi32, #b>
    ...     %x = tt.load %a : tensor<1024x!tt.ptr<f32>, #b>
    ...     tt.store %a, %x : tensor<1024x!tt.ptr<f32>, #b>
    ...     tt.return
    ...   }
    ... }
    ... '''
    >>> program = parse_ir(text)[0]
    >>> program.name, program.header.waves, program.values["%x"].memory, len(program.lds_uses)
    ('copy', 4, 'registers', 0)
    >>> [step.move for step in program.forward("%x")]
    ['global -> registers', 'registers -> global']
    >>> program.global_accesses[0].lane_bits
    128
    """
    try:
        drafts = build_programs(text)
    except IrNestingError as e:
        raise IrError(f"not a readable dump: {e}; give the text as Triton printed it") from e
    programs = [
        Program(p.name, p.stage, p.header, p.layouts, tuple(p.operations), p.values, p.frozen_edges())
        for p in drafts
        if p.operations
    ]
    if not programs:
        raise IrError("no TTIR or TTGIR function in this text; give kernel.asm['ttgir'] or an MLIR_ENABLE_DUMP=1 dump")
    return programs
