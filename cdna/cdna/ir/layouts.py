# SPDX-License-Identifier: MIT
"""Layouts of Triton's GPU dialect: which lane, wave or LDS address holds which element.

Old dumps write ``#triton_gpu.blocked``, current ones ``#ttg.blocked``; both are read.
Source: Triton, "TritonGPU dialect attributes", https://triton-lang.org/main/dialects/TritonGPUDialect.html.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Layout", "wave_bits"]

_MAX_NEST = 12
_KINDS = {
    "blocked": "blocked",
    "amd_mfma": "mma",
    "mfma": "mma",
    "amd_wmma": "mma",
    "nvidia_mma": "mma",
    "mma": "mma",
    "dot_op": "dot_op",
    "slice": "slice",
    "linear": "linear",
    "generic_linear": "linear",
    "shared": "shared",
    "swizzled_shared": "shared",
    "padded_shared": "shared",
    "amd_rotating_shared": "shared",
    "nvmma_shared": "shared",
    "shared_linear": "shared",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: its name in the dump (``#blocked1``, empty when written in place), kind and parameters.

    ``kind`` is blocked, mma, dot_op, slice, linear, shared or unknown; ``spelling`` is the dialect's own word, such as
    ``swizzled_shared``; ``parent`` is set for slice and dot_op.
    """

    name: str
    kind: str
    spelling: str
    params: dict[str, str] = field(default_factory=dict)
    parent: Layout | None = None

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return an integer list parameter, for example ``numbers("warpsPerCTA")``; empty when it is not there."""
        return tuple(int(n) for n in re.findall(r"-?\d{1,9}", self.params.get(key, "")))

    def describe(self) -> str:
        """Say in one line for a reader what the layout does with the data."""
        n = self.numbers
        if self.kind == "blocked":
            tile = "x".join(map(str, n("sizePerThread")))
            lanes, waves = "x".join(map(str, n("threadsPerWarp"))), "x".join(map(str, n("warpsPerCTA")))
            return f"blocked: each lane holds {tile}, lanes {lanes}, waves {waves}"
        if self.kind == "mma":
            return f"matrix core {'x'.join(map(str, n('instrShape')))}, waves {'x'.join(map(str, n('warpsPerCTA')))}"
        if self.kind == "dot_op":
            side = "AB"[n("opIdx")[0]] if n("opIdx") in ((0,), (1,)) else "?"
            return f"operand {side} of the matrix core, {self.params.get('kWidth', '?')} values in a row per lane"
        if self.kind == "slice":
            inner = self.parent.describe() if self.parent else "?"
            return f"one dimension taken out ({self.params.get('dim', '?')}) of {inner}"
        if self.kind == "shared":
            how = {"padded_shared": "padded", "amd_rotating_shared": "rotated"}.get(self.spelling, "swizzled")
            vec = f", {self.params['vec']} value(s) stay together" if "vec" in self.params else ""
            return f"LDS, {how}{vec}"
        return f"{self.spelling}"


def _split(text: str) -> list[str]:
    """Split at commas outside every bracket."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "<([{":
            depth += 1
        elif c in ">)]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


_HEAD = re.compile(r"#(?:triton_gpu|ttg|triton_nvidia_gpu|ttng|amdg|tlx)\.(\w+)\s*<(.*)>\s*$", re.DOTALL)


def parse_layout(text: str, known: dict[str, Layout] | None = None, name: str = "", nest: int = 0) -> Layout:
    """Parse a layout attribute or look up its alias.

    >>> text = "#ttg.slice<{dim = 1, parent = #triton_gpu.blocked<{sizePerThread = [1, 8], warpsPerCTA = [4, 1]}>}>"
    >>> layout = parse_layout(text)
    >>> layout.kind, layout.parent.numbers("sizePerThread")
    ('slice', (1, 8))
    """
    text = text.strip()
    known = known or {}
    if text in known:
        return known[text]
    m = _HEAD.match(text)
    if m is None or nest > _MAX_NEST:
        return Layout(text if text.startswith("#") else name, "unknown", text[:40])
    spelling, body = m[1], m[2].strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    params: dict[str, str] = {}
    parent = None
    for part in _split(body):
        key, eq, value = part.partition("=")
        if not eq:
            continue
        if key.strip() == "parent":
            parent = parse_layout(value, known, "", nest + 1)
        else:
            params[key.strip()] = value.strip()
    return Layout(name, _KINDS.get(spelling, "unknown"), spelling, params, parent)


def _blocked_bits(
    layout: Layout, shape: tuple[int, ...], tile: tuple[int, ...], order: tuple[int, ...]
) -> list[tuple[int, int] | None]:
    """Return the wave bits of a layout in which waves tile the tensor: bit -> (dimension, index bit), None where it
    repeats.
    """
    bits: list[tuple[int, int] | None] = []
    waves = layout.numbers("warpsPerCTA")
    for dim in order:
        for b in range(waves[dim].bit_length() - 1):
            position = (tile[dim] << b).bit_length() - 1
            bits.append((dim, position) if (1 << position) < shape[dim] else None)
    return bits


def wave_bits(layout: Layout, shape: tuple[int, ...]) -> list[tuple[tuple[int, int], ...] | None] | None:
    """Return for each bit of the wave's number: the index bits ``(dimension, bit)`` whose XOR gives it.

    None in the list: waves that differ in this bit hold the same elements. None as result: not known for this layout.
    Two layouts with the same wave bits keep every element in its wave, so that no LDS is needed to convert them.

    >>> a = parse_layout("#ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [16, 4], warpsPerCTA = [4, 1], "
    ...                  "order = [1, 0]}>")
    >>> wave_bits(a, (64, 8))
    [((0, 4),), ((0, 5),)]
    """
    rank = len(shape)
    if any(s < 1 or s & (s - 1) for s in shape):
        return None
    if layout.kind == "blocked":
        per, lanes, waves = (layout.numbers(k) for k in ("sizePerThread", "threadsPerWarp", "warpsPerCTA"))
        order = layout.numbers("order")
        if not len(per) == len(lanes) == len(waves) == rank or sorted(order) != list(range(rank)):
            return None
        if any(n < 1 or n & (n - 1) for n in (*per, *lanes, *waves)):
            return None
        tile = tuple(p * n for p, n in zip(per, lanes, strict=True))
        return [(b,) if b else None for b in _blocked_bits(layout, shape, tile, order)]
    if layout.kind == "mma" and layout.spelling.endswith("mfma"):
        tile, waves = layout.numbers("instrShape")[:2], layout.numbers("warpsPerCTA")
        plain = not layout.numbers("tilesPerWarp") or set(layout.numbers("tilesPerWarp")) == {1}
        if rank != 2 or len(tile) != 2 or len(waves) != 2 or not plain:
            return None
        if any(n < 1 or n & (n - 1) for n in (*tile, *waves)):
            return None
        return [(b,) if b else None for b in _blocked_bits(layout, shape, tile, (1, 0))]
    if layout.kind == "dot_op" and layout.parent is not None and layout.numbers("opIdx") in ((0,), (1,)):
        return _operand_bits(layout.parent, layout.numbers("opIdx")[0], shape)
    if layout.kind == "slice" and layout.parent is not None and len(layout.numbers("dim")) == 1:
        dim = layout.numbers("dim")[0]
        if not 0 <= dim <= rank:
            return None
        inner = wave_bits(layout.parent, (*shape[:dim], 1, *shape[dim:]))
        if inner is None:
            return None
        return [tuple((d - (d > dim), b) for d, b in bit) if bit else None for bit in inner]
    if layout.kind == "linear":
        return _linear_bits(layout, rank)
    return None


def _operand_bits(mma: Layout, side: int, shape: tuple[int, ...]) -> list[tuple[tuple[int, int], ...] | None] | None:
    """Return the wave bits of an operand: A is split between waves along its rows only, operand B along its columns;
    the other waves repeat it.
    """
    if len(shape) != 2:
        return None
    # What the result would be if the operand's long side were the result's: the inner dimension is never split.
    return wave_bits(mma, (shape[0], 1) if side == 0 else (1, shape[1]))


def _linear_bits(layout: Layout, rank: int) -> list[tuple[tuple[int, int], ...] | None] | None:
    groups = re.findall(r"\[([-\d,\s]*)\]", layout.params.get("warp", ""))
    bases = [tuple(int(n) for n in re.findall(r"\d{1,9}", g)) for g in groups]
    if not bases or any(len(base) != rank for base in bases):
        return None
    bits: list[tuple[tuple[int, int], ...] | None] = []
    for base in bases:
        set_dims = [(d, n.bit_length() - 1) for d, n in enumerate(base) if n]
        if len(set_dims) > 1 or any(n & (n - 1) for n in base):
            return None
        bits.append(tuple(set_dims) or None)
    return bits
