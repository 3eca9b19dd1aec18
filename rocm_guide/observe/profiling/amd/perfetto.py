# SPDX-License-Identifier: MIT
"""Read the slices of a Perfetto trace (``.pftrace``), as rocprofv3 writes with ``--output-format pftrace``.

Perfetto's own trace_processor answers any question by SQL, and is a 20 MB download. For "which kernels, how long" the
few message fields below are enough. A protobuf message is a list of (field number, wire type, value); unknown fields
are skipped by their wire type, which is why this reader does not break when the format grows.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rocm_guide.common.base import open_regular
from rocm_guide.observe.profiling.amd.rocprof_csv import Dispatch, RocprofReport, report_of
from rocm_guide.observe.profiling.torch_trace.events import TraceError

__all__ = []

#: The longest packet that is believed; real ones are a few kilobytes.
LONGEST_PACKET = 1 << 28


@dataclass(frozen=True)
class Slice:
    """A named stretch on a track, times in nanoseconds."""

    name: str
    category: str
    track: str
    start_ns: int
    duration_ns: int


@dataclass
class _Sequence:
    """The state of one writer of packets: what it said once and refers to by number from then on."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    default_track: int = 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of one message. Raises ValueError on a message that ends inside a field."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > end:
            raise ValueError("a field longer than its message")
        chunk = data[at : at + size]
        yield number, chunk if kind == 2 else int.from_bytes(chunk, "little")
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a broken number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, at


def _message(value: int | bytes) -> dict[int, list[Any]]:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message belongs")
    found: dict[int, list[Any]] = {}
    for number, item in _fields(value):
        found.setdefault(number, []).append(item)
    return found


def _number(message: dict[int, list[Any]], key: int, default: int = 0) -> int:
    value = message.get(key, [default])[-1]
    if not isinstance(value, int):
        raise ValueError("bytes where a number belongs")
    return value


def _text(message: dict[int, list[Any]], key: int) -> str:
    value = message.get(key, [b""])[-1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _packets(file: BinaryIO, name: str) -> Iterator[dict[int, list[Any]]]:
    """Yield the packets of a trace, one in memory at a time."""
    while True:
        head = file.read(1)
        if not head:
            return
        size = shift = 0
        while True:
            byte = file.read(1)
            if not byte or shift > 35:
                raise TraceError(f"{name}: ends inside a packet; the file is cut short or is not a Perfetto trace")
            size |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
        if head != b"\x0a" or size > LONGEST_PACKET:
            raise TraceError(f"{name}: not a Perfetto trace (a packet begins with {head!r}); pass a .pftrace")
        data = file.read(size)
        if len(data) != size:
            raise TraceError(f"{name}: ends inside a packet; the file is cut short")
        yield _message(data)


def iter_slices(path: str | os.PathLike[str]) -> Iterator[Slice]:
    """Yield every finished slice of a Perfetto trace, in the order in which they end.

    Raises:
        TraceError: missing, cut short, or not a Perfetto trace.

    Source: field numbers from the .proto files under
    https://github.com/google/perfetto/tree/main/protos/perfetto/trace.
    """
    path = Path(path)
    sequences: dict[int, _Sequence] = {}
    tracks: dict[int, str] = {}
    open_slices: dict[int, list[tuple[str, str, int]]] = {}
    try:
        raw = open_regular(path)
        magic = raw.read(2)
        raw.seek(0)
    except OSError as e:
        raise TraceError(f"{path}: cannot be opened ({e.strerror or e}); check the path") from e
    with raw:
        file: Any = gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw
        try:
            for packet in _packets(file, str(path)):
                writer = sequences.setdefault(_number(packet, 10), _Sequence())
                if _number(packet, 13) & 1:  # SEQ_INCREMENTAL_STATE_CLEARED: numbers start anew
                    writer.names.clear()
                    writer.categories.clear()
                for value in packet.get(59, []):
                    for defaults in _message(value).get(11, []):
                        writer.default_track = _number(_message(defaults), 11)
                for value in packet.get(12, []):
                    interned = _message(value)
                    for key, table in ((1, writer.categories), (2, writer.names)):
                        for entry in interned.get(key, []):
                            pair = _message(entry)
                            table[_number(pair, 1)] = _text(pair, 2)
                for value in packet.get(60, []):
                    track = _message(value)
                    tracks[_number(track, 1)] = _text(track, 2)
                for value in packet.get(11, []):
                    event, now = _message(value), _number(packet, 8)
                    kind, track_id = _number(event, 9), _number(event, 11, writer.default_track)
                    stack = open_slices.setdefault(track_id, [])
                    if kind == 1:
                        name = _text(event, 23) or writer.names.get(_number(event, 10), "")
                        category = _text(event, 22) or writer.categories.get(_number(event, 3), "")
                        stack.append((name, category, now))
                    elif kind == 2 and stack:
                        name, category, start = stack.pop()
                        yield Slice(name, category, tracks.get(track_id, ""), start, max(0, now - start))
        except TraceError:
            raise
        except (ValueError, OSError, EOFError, zlib.error) as e:
            raise TraceError(f"{path}: a damaged packet ({e}); copy the file again") from e


def read_pftrace(path: str | os.PathLike[str]) -> RocprofReport:
    """Read the kernel dispatches of a rocprofv3 ``.pftrace``; the API calls when there is no kernel in it.

    Raises:
        TraceError: as :func:`iter_slices`; also when the trace has no slice.

    >>> read_pftrace("missing.pftrace")
    Traceback (most recent call last):
        ...
    rocm_guide.observe.profiling.torch_trace.events.TraceError: missing.pftrace: cannot be opened (No such file or \
directory); check the path
    """
    kernels: list[Dispatch] = []
    others: list[Dispatch] = []
    for found in iter_slices(path):
        into = kernels if found.category == "kernel_dispatch" else others
        into.append(Dispatch(found.name, found.start_ns, found.duration_ns, found.track))
    kind = "kernel trace" if kernels else "api trace"
    return report_of(Path(path).name, kind, "rocprofv3", kernels or others)
