# SPDX-License-Identifier: MIT
"""A bounded reader of msgpack, the format of a code object's metadata note.

Every length is checked against the bytes that are left, nesting and item count are limited, and text, numbers, lists,
maps, booleans and nil are all that it accepts: memory stays proportional to the input whatever the input is.
Introduced in notebook 16 (ir_and_isa). Source: "MessagePack specification", https://github.com/msgpack/msgpack.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["MsgpackError", "decode_msgpack"]

_MAX_DEPTH = 16
_MAX_ITEMS = 1_000_000


class MsgpackError(ValueError):
    """The bytes are not msgpack, are cut short, or nest too deeply."""


_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
# Type byte -> what it is and the format of its length.
_SIZED = {
    0xC4: ("bin", ">B"),
    0xC5: ("bin", ">H"),
    0xC6: ("bin", ">I"),
    0xD9: ("str", ">B"),
    0xDA: ("str", ">H"),
    0xDB: ("str", ">I"),
    0xDC: ("list", ">H"),
    0xDD: ("list", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.items = 0

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise MsgpackError(f"cut short: {n} bytes wanted at byte {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, fmt: str) -> Any:
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def head(self) -> tuple[str, int]:
        """Kind of the next value and its length, for values that have one; otherwise the kind and the type byte."""
        byte = self.take(1)[0]
        if byte < 0x80 or byte >= 0xE0:
            return "fixint", byte
        if byte < 0x90:
            return "map", byte & 15
        if byte < 0xA0:
            return "list", byte & 15
        if byte < 0xC0:
            return "str", byte & 31
        if byte in _SIZED:
            kind, fmt = _SIZED[byte]
            return kind, self.number(fmt)
        return "scalar", byte

    def value(self, depth: int) -> Any:
        self.items += 1
        if depth > _MAX_DEPTH or self.items > _MAX_ITEMS:
            raise MsgpackError(f"nested deeper than {_MAX_DEPTH} or more than {_MAX_ITEMS} items")
        kind, n = self.head()
        if kind == "fixint":
            return n if n < 0x80 else n - 256
        if kind == "str":
            return self.take(n).decode("utf-8", "replace")
        if kind == "bin":
            return self.take(n)
        if kind == "list":
            if n > len(self.data) - self.at:  # each item takes a byte at least
                raise MsgpackError(f"a list of {n} items in {len(self.data) - self.at} bytes")
            return [self.value(depth + 1) for _ in range(n)]
        if kind == "map":
            if 2 * n > len(self.data) - self.at:
                raise MsgpackError(f"a map of {n} entries in {len(self.data) - self.at} bytes")
            return self.entries(n, depth)
        if n in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[n]
        if n not in _FIXED:
            raise MsgpackError(f"type byte {n:#04x} has no place in a metadata note")
        return self.number(_FIXED[n])

    def entries(self, n: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(n):
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):
                raise MsgpackError("a list or a map as key")
            found[key] = self.value(depth + 1)
        return found


def decode_msgpack(data: bytes) -> Any:
    """Decode one msgpack value; bytes after it are ignored (notes are padded).

    Raises:
        MsgpackError: cut short, nested deeper than 16, or a type that metadata does not use.

    >>> decode_msgpack(bytes([0x81, 0xA1, 0x61, 0x93, 0x01, 0xFF, 0xC3]))
    {'a': [1, -1, True]}
    """
    return _Decoder(data).value(0)
