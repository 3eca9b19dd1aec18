# SPDX-License-Identifier: MIT
"""The metadata note of a code object, decoded by msgpack within bounds: a damaged file cannot ask for much memory.

Source: "MessagePack specification", https://github.com/msgpack/msgpack.
"""

from __future__ import annotations

from typing import Any

import msgpack

__all__ = ["MsgpackError"]

_MAX_DEPTH = 16
# A list is made at its stated length before its items are read, and lists nest: this bounds what a few bytes can claim.
_MAX_ITEMS = 1 << 16


class MsgpackError(ValueError):
    """The bytes are not msgpack, are cut short, or nest too deeply."""


def _refuse(code: int, data: bytes) -> Any:
    raise MsgpackError(f"extension type {code} has no place in a metadata note")


def decode_msgpack(data: bytes) -> Any:
    """Decode one msgpack value; bytes after it are ignored (notes are padded).

    Raises:
        MsgpackError: cut short, nested deeper than 16, a list or map longer than 65,536 or longer than the bytes that
            are there, or a type that metadata does not use.

    >>> decode_msgpack(bytes([0x81, 0xA1, 0x61, 0x93, 0x01, 0xFF, 0xC3]))
    {'a': [1, -1, True]}
    """
    unpacker = msgpack.Unpacker(
        raw=False,
        unicode_errors="replace",
        strict_map_key=False,
        max_buffer_size=len(data) + 1,
        max_array_len=min(_MAX_ITEMS, len(data)),
        max_map_len=min(_MAX_ITEMS, len(data) // 2),
        max_ext_len=0,
        ext_hook=_refuse,
    )
    unpacker.feed(data)
    try:
        value = unpacker.unpack()
    except msgpack.OutOfData as e:
        raise MsgpackError(f"cut short after {len(data)} bytes") from e
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise MsgpackError(str(e) or f"damaged ({type(e).__name__})") from e
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [x for v in level if isinstance(v, (list, dict)) for x in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return value
    raise MsgpackError(f"nested deeper than {_MAX_DEPTH}")
