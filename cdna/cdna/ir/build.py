# SPDX-License-Identifier: MIT
"""From the lines of a dump to functions with operations, values and data-flow edges."""

from __future__ import annotations

import re

from cdna.ir.layouts import Layout, parse_layout
from cdna.ir.text import (
    Header,
    RawOp,
    TensorType,
    locations,
    parse_op,
    parse_type,
    parse_types,
    resolve_location,
)
from cdna.ir.text import strip_location as _strip
from cdna.ir.values import Draft, Operation, Region, Value, result_types

__all__ = ["IrNestingError"]

_LOOPS = ("scf.for", "scf.while")
_MAX_NEST = 200
_MAX_LINE = 20_000  # a longer line is no operation that this reader knows; the bound keeps hostile input linear


_STORES = ("tt.store", "ttg.local_store", "amdg.buffer_store", "tt.descriptor_store", "ttg.local_alloc")
_FUNC = re.compile(r"(?:tt\.func|func\.func)\b[^@]*@([\w$.\-]+)")
_ARG = re.compile(r"(%[\w$.\-]+): ([^,{()]+(?:<[^>]*>)?)")
_BLOCK_ARG = re.compile(r"(%[\w$.\-]+): ([^\s,()]+)")
_STAGE = re.compile(r"// -----// IR Dump (?:Before|After) (\S+)")
_ATTR = r'"?(?:ttg|triton_gpu|tt)\.{}"?\s*=\s*(\d{{1,9}})'
_TARGET = re.compile(r'(?:ttg|triton_gpu)\.target\s*=\s*"([^"]*)"')


def _header(line: str) -> Header:
    def find(key: str) -> int | None:
        m = re.search(_ATTR.format(key), line)
        return int(m[1]) if m else None

    target = _TARGET.search(line)
    return Header(find("num-warps"), find("threads-per-warp"), find("shared"), target[1] if target else "")


class IrNestingError(ValueError):
    """Regions nest deeper than any dump of Triton; the text is damaged."""


class _Builder:
    def __init__(self, lines: list[str]) -> None:
        self.raw_locations = locations(lines)
        self.drafts: list[Draft] = []
        self.layouts: dict[str, Layout] = {}
        self.layout_cache: dict[str, Layout | None] = {}
        self.type_cache: dict[str, TensorType] = {}
        self.header = Header(None, None, None, "")
        self.stage = ""
        self.draft: Draft | None = None
        self.regions: list[Region] = []

    def source(self, location: str) -> str:
        return self.raw_locations.get(location) or resolve_location(location, {})

    def type_of(self, text: str) -> TensorType:
        if text not in self.type_cache:
            self.type_cache[text] = parse_type(text)
        return self.type_cache[text]

    def layout_of(self, kind: TensorType) -> Layout | None:
        if kind.layout not in self.layout_cache:
            self.layout_cache[kind.layout] = parse_layout(kind.layout, self.layouts) if kind.layout else None
        return self.layout_cache[kind.layout]

    def define(self, name: str, kind: TensorType, line: int, source: str, regions: Region | None = None) -> str:
        assert self.draft is not None
        unique = name if name not in self.draft.values else f"{name}@{line}"
        layout = self.layout_of(kind)
        memory = "scalar"
        if kind.kind == "memdesc" or (layout is not None and layout.kind == "shared"):
            memory = "LDS"
        elif kind.kind == "tensor":
            memory = "registers"
        elif kind.kind == "ptr":
            memory = "pointer"
        self.draft.values[unique] = Value(unique, kind, layout, memory, line, source)
        (regions or self.regions[-1]).names[name] = unique
        return unique

    def lookup(self, name: str) -> str:
        base, _, index = name.partition("#")
        for region in reversed(self.regions):
            if name in region.names:
                return region.names[name]
            if index and f"{base}#0" in region.names:
                return name
        return name

    def function(self, line: int, text: str, name: str) -> None:
        self.draft = Draft(name, self.stage, self.header, dict(self.layouts))
        self.drafts.append(self.draft)
        self.regions = [Region(None)]
        for arg, kind in _ARG.findall(text.partition("attributes")[0]):
            self.define(arg, self.type_of(kind.strip()), line, "")

    def operation(self, number: int, raw: RawOp, source: str) -> Operation:
        assert self.draft is not None
        operands = tuple(self.lookup(n) for n in raw.operands)
        names = [f"{n}#{i}" if c > 1 else n for n, c in raw.results for i in range(min(c, 4096))]
        depth = sum(r.operation is not None and r.operation.name in _LOOPS for r in self.regions)
        kinds = result_types(raw, len(names), self.type_of)
        op = Operation(number, raw.name, (), operands, depth, source, raw.text)
        op.results = tuple(self.define(n, k, number, source) for n, k in zip(names, kinds, strict=True))
        if raw.name in _STORES:
            at = 0 if raw.name in ("ttg.local_store", "ttg.local_alloc", "amdg.buffer_store") else 1
            op.stored = operands[at] if at < len(operands) else ""
        self.draft.operations.append(op)
        if raw.name not in _LOOPS:
            for operand in operands:
                for result in op.results:
                    self.draft.link(operand, result)
                if raw.name == "ttg.local_store" and len(operands) > 1 and operand == op.stored:
                    self.draft.link(operand, operands[1])
        return op

    def open(self, number: int, raw: RawOp, op: Operation) -> None:
        """Begin a region; a loop's arguments take the types of their initial values."""
        assert self.draft is not None
        region = Region(op, raw=raw)
        self.regions.append(region)
        if raw.name not in _LOOPS or not raw.pairs:
            return
        carried = raw.pairs[1:] if raw.name == "scf.for" else raw.pairs
        arguments = []
        if raw.name == "scf.for":
            self.define(raw.pairs[0][0], TensorType("scalar", (), "i32", ""), number, op.source)
        outer = self.regions[:-1]
        for i, (name, initial) in enumerate(carried):
            before, self.regions = self.regions, outer
            start = self.lookup(initial)
            self.regions = before
            known = self.draft.values.get(start)
            kind = known.type if known else TensorType("scalar", (), "", "")
            unique = self.define(name, kind, number, op.source)
            arguments.append(unique)
            self.draft.link(start, unique)
            if i < len(op.results):
                self.draft.link(unique, op.results[i])
        region.arguments = tuple(arguments)

    def close(self, text: str) -> None:
        """End a region; ``}) : (…) -> …`` gives an operation with a body its types."""
        region = self.regions.pop()
        assert self.draft is not None
        op, raw = region.operation, region.raw
        text, location = _strip(text)
        if op is not None and not op.source:
            op.source = self.source(location)
        types = text.replace("->", "→").partition(") : ")[2] or text.replace("->", "→").partition("} : ")[2]
        if op is not None and raw is not None and types and op.results:
            kinds = [self.type_of(t) for t in parse_types(types)[1]]
            for result, kind in zip(op.results, kinds, strict=False):
                value = self.draft.values[result]
                del self.draft.values[result]
                self.define(result.split("@")[0], kind, value.line, value.source)
                if result not in self.draft.values:
                    self.draft.values[result] = value

    def terminator(self, op: Operation) -> None:
        """Handle ``scf.yield``: its operands become the loop's next arguments and the results of the loop or branch."""
        assert self.draft is not None
        region = next((r for r in reversed(self.regions) if r.operation is not None), None)
        if region is None or region.operation is None or not op.name.endswith((".yield", ".condition")):
            return
        for i, operand in enumerate(op.operands):
            if i < len(region.operation.results):
                self.draft.link(operand, region.operation.results[i])
            if i < len(region.arguments):
                self.draft.link(operand, region.arguments[i])

    def line(self, number: int, text: str) -> None:
        if len(self.regions) > _MAX_NEST:
            raise IrNestingError(f"line {number}: more than {_MAX_NEST} open braces, which no Triton dump has")
        if text.startswith("//"):
            if m := _STAGE.match(text):
                self.stage = m[1].rstrip(":")
        elif text.startswith("#"):
            name, eq, value = text.partition(" = ")
            if eq and not name.startswith("#loc"):
                self.layouts[name] = parse_layout(value, self.layouts, name)
                self.layout_cache.clear()
        elif text.startswith("module"):
            self.header, self.draft, self.regions = _header(text), None, []
        elif m := _FUNC.match(text):
            self.function(number, text, m[1])
        elif self.draft is not None and text.startswith("}"):
            if len(self.regions) > 1:
                region = self.regions[-1]
                self.close(text)
                if text.rstrip().endswith("{"):  # } else {  or  } do {
                    self.regions.append(Region(region.operation, raw=region.raw))
            else:
                self.draft = None
        elif text.startswith("^"):
            if self.draft is not None and self.regions:
                for name, kind in _BLOCK_ARG.findall(text):
                    self.define(name, self.type_of(kind), number, "")
        else:
            self.body(number, text)

    def body(self, number: int, text: str) -> None:
        code, location = _strip(text)
        raw = parse_op(code)
        if raw is None or not raw.name.startswith(("tt.", "ttg.", "amdg.", "arith.", "scf.", "math.", "cf.", "ttng.")):
            if self.draft is not None and code.endswith("{"):
                self.regions.append(Region(None))
            return
        if self.draft is None:  # a snippet without a function around it
            self.function(number, "", "snippet")
        op = self.operation(number, raw, self.source(location))
        if code.endswith("{"):
            self.open(number, raw, op)
        else:
            self.terminator(op)


def build_programs(text: str) -> list[Draft]:
    """Build all functions of a dump, in order.

    >>> [d.operations[0].name for d in build_programs("%1 = arith.addi %0, %0 : i32")]
    ['arith.addi']
    """
    lines = text.split("\n")
    builder = _Builder(lines)
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line and len(line) < _MAX_LINE:
            builder.line(number, line)
    return builder.drafts
