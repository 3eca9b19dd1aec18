# SPDX-License-Identifier: MIT
"""Read the text of a TTIR or TTGIR dump line by line: operations, types, source locations.

MLIR prints one operation per line, which is all that this reader relies on.
Source: "MLIR Language Reference", https://mlir.llvm.org/docs/LangRef/.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = []

_BITS = {"bf16": 16, "index": 64, "tf32": 32}


class TensorType(NamedTuple):
    """A value's type: ``kind`` is tensor, memdesc, ptr or scalar; ``layout`` is the text of its layout."""

    kind: str
    shape: tuple[int, ...]
    element: str
    layout: str

    @property
    def bytes(self) -> int:
        """Size in bytes; a pointer counts eight, anything unknown none."""
        n = 1
        for s in self.shape:
            n *= s
        if "ptr" in self.element:
            return 8 * n
        m = re.match(r"[a-z]+(\d{1,3})", self.element)
        bits = _BITS.get(self.element) or (int(m[1]) if m else 0)
        return n * max(bits, 8) // 8 if bits else 0


class RawOp(NamedTuple):
    """The parts of one operation as written: result names and counts, name, operands, types before and after."""

    results: tuple[tuple[str, int], ...]
    name: str
    operands: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    in_types: tuple[str, ...]
    out_types: tuple[str, ...]
    text: str


class Header(NamedTuple):
    """Options of a module: number of waves, lanes, bytes of LDS when the dump says so, target."""

    waves: int | None
    lanes: int | None
    shared: int | None
    target: str


_OPEN, _CLOSE = "<([{", ">)]}"


def split_top(text: str, separators: str) -> list[str]:
    """Split at single-character separators outside every bracket and string; ``->`` must be written as one character.

    >>> split_top("tensor<4x8xf16, #b>, i32", ",")
    ['tensor<4x8xf16, #b>', ' i32']
    """
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
        elif depth <= 0 and c in separators:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts


_TENSOR = re.compile(r"(?:tensor|vector)<((?:\d{1,9}x)*)(.*)>$", re.DOTALL)
_MEMDESC = re.compile(r"!(?:ttg|triton_gpu|tt)\.memdesc<((?:\d{1,9}x)*)(.*)>$", re.DOTALL)


def parse_type(text: str) -> TensorType:
    """Parse a value's type.

    >>> parse_type("tensor<128x32xf16, #blocked>")
    TensorType(kind='tensor', shape=(128, 32), element='f16', layout='#blocked')
    >>> parse_type("!ttg.memdesc<2x64x8xf16, #shared, #smem, mutable>").bytes
    2048
    """
    text = text.strip()
    for kind, pattern in (("tensor", _TENSOR), ("memdesc", _MEMDESC)):
        if m := pattern.match(text):
            parts = [p.strip() for p in split_top(m[2], ",")]
            shape = tuple(int(n) for n in m[1].split("x") if n)
            return TensorType(kind, shape, parts[0], parts[1] if len(parts) > 1 else "")
    return TensorType("ptr" if text.startswith("!tt.ptr") else "scalar", (), text[:80], "")


_RESULTS = re.compile(r"(%[\w$.\-]+(?::\d{1,4})?(?:\s*,\s*%[\w$.\-]+(?::\d{1,4})?)*)\s*=\s*")
_NAME = re.compile(r'"?([A-Za-z_]\w*(?:\.[\w$]+)+|module|func|return)"?')
_VALUE = re.compile(r"%[\w$.\-]+(?:#\d{1,4})?")
_BOUND = re.compile(r"%[\w$.\-]+\s*=\s*(?=%)")
_PAIR = re.compile(r"(%[\w$.\-]+)\s*=\s*(%[\w$.\-]+(?:#\d{1,4})?)")


def strip_location(line: str) -> tuple[str, str]:
    """Return the line without its trailing ``loc(…)``, and what was in it."""
    at = line.rfind(" loc(")
    if at >= 0 and line.rstrip().endswith(")"):
        return line[:at].rstrip(), line[at + 5 :].rstrip()[:-1]
    return line.rstrip(), ""


def parse_types(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return types of an operation: ``(A, B) → C``, ``A → C``, ``A to C`` or just a list."""
    text = text.strip().removesuffix("{").rstrip()
    sides = split_top(text, "→")
    if len(sides) == 1 and " to " in text:
        sides = text.split(" to ", 1)
    groups = []
    for side in (sides[0], sides[-1]) if len(sides) > 1 else (text, text):
        side = side.strip()
        if side.startswith("(") and side.endswith(")"):
            side = side[1:-1]
        groups.append(tuple(t.strip() for t in split_top(side, ",*") if t.strip()))
    return groups[0], groups[1] if len(sides) > 1 else ()


def parse_op(line: str) -> RawOp | None:
    """Parse the line of an operation (its location already taken off), or None when it is none.

    >>> op = parse_op("%3 = tt.addptr %1, %2 : tensor<4x!tt.ptr<f16>, #b>, tensor<4xi32, #b>")
    >>> op.name, op.operands, op.in_types[1]
    ('tt.addptr', ('%1', '%2'), 'tensor<4xi32, #b>')
    """
    text = line.strip().replace("->", "→")
    results: list[tuple[str, int]] = []
    if text.startswith("%"):
        m = _RESULTS.match(text)
        if m is None:
            return None
        for part in m[1].split(","):
            name, _, count = part.strip().partition(":")
            results.append((name, int(count or 1)))
        text = text[m.end() :]
    m = _NAME.match(text)
    if m is None:
        return None
    rest = text[m.end() :]
    parts = split_top(rest, ":")
    body, types = parts[0], parts[-1] if len(parts) > 1 else ""
    in_types, out_types = parse_types(types)
    pairs: tuple[tuple[str, str], ...] = ()
    if m[1] in ("scf.for", "scf.while"):
        pairs = tuple((a, b) for a, b in _PAIR.findall(body))
        body = _BOUND.sub("", body)  # names on the left of "=" are defined here, not used
        arrow = split_top(rest, "→")
        if len(arrow) > 1:
            out_types = parse_types(split_top(arrow[-1], ":")[0])[0]
    elif m[1] == "scf.if" and "→" in rest:
        out_types = parse_types(split_top(rest, "→")[-1])[0]
    names = m[1].replace("triton_gpu.", "ttg.").replace("amdgpu.", "amdg.")
    return RawOp(tuple(results), names, tuple(_VALUE.findall(body)), pairs, in_types, out_types, line.strip())


_LOC = re.compile(r"(#loc\d*) = loc\((.*)\)\s*$")
_PLACE = re.compile(r'"([^"]*)":(\d{1,9}):(\d{1,9})')


def locations(lines: list[str]) -> dict[str, str]:
    """Return every ``#loc…`` line of a dump, resolved to ``file.py:line:column`` (outermost call site), or empty."""
    raw = {m[1]: m[2] for line in lines if line.startswith("#loc") and (m := _LOC.match(line))}
    return {name: resolve_location(name, raw) for name in raw}


def resolve_location(text: str, raw: dict[str, str]) -> str:
    """Follow aliases, names and call sites to a place in the user's file.

    >>> resolve_location("#loc2", {"#loc1": '"/a/k.py":7:3', "#loc2": '"x"(#loc1)'})
    'k.py:7:3'
    """
    for _ in range(64):
        text = text.strip()
        if text in raw:
            text = raw[text]
        elif text.startswith("callsite(") and " at " in text:
            text = text[9:].rpartition(" at ")[2].removesuffix(")")
        elif m := _PLACE.match(text):
            return f"{m[1].replace(chr(92), '/').rpartition('/')[2]}:{m[2]}:{m[3]}"
        elif (m := re.match(r'"[^"]*"\((.*)\)$', text)) or (m := re.match(r"fused(?:<.*>)?\[([^,\]]*)", text)):
            text = m[1]
        else:
            return ""
    return ""
