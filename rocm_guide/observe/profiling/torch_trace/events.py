# SPDX-License-Identifier: MIT
"""Read a trace of any size, one event at a time, without ever holding the file.

torch.profiler, Perfetto's JSON importer and the old rocprof all use the Trace Event Format: one JSON document whose
``traceEvents`` array holds the events. A 7B model traced for a few steps fills hundreds of megabytes, and
``json.load`` needs about ten times the file in memory. Here a window of the text moves over the file and the
standard decoder takes one event after the other from it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rocm_guide.common.base import GuideError, open_regular

__all__ = ["TraceError", "iter_events"]

#: Characters read at a time. Larger windows are not faster; smaller ones fail to hold an event more often.
WINDOW = 1 << 22

#: No event of a real trace comes near this; more than this without a complete value means the file is damaged.
LONGEST_VALUE = 1 << 26


class TraceError(GuideError):
    """A trace that cannot be read: missing, cut short, or not in the format that its reader expects."""


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """Open a text file that may be gzipped (decided by its first two bytes, not by its name).

    Bytes that are not UTF-8 become U+FFFD: kernel names sometimes contain them, and one bad name must not lose a run.

    Raises:
        TraceError: the file is missing or cannot be opened.
    """
    path = Path(path)
    try:
        raw = open_regular(path)
        magic = raw.read(2)
        raw.seek(0)
    except OSError as e:
        raise TraceError(f"{path}: cannot be opened ({e.strerror or e}); check the path") from e
    binary: Any = gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw
    return io.TextIOWrapper(binary, encoding="utf-8", errors="replace", newline="")


class _Window:
    """The part of the text that is in memory, and how to slide it."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name = stream, name
        self.text, self.at, self.before, self.done = "", 0, 0, False
        self.decode = json.JSONDecoder().raw_decode

    def fail(self, what: str) -> TraceError:
        where = self.before + self.at
        return TraceError(f"{self.name}: {what} at character {where:,}; the file is cut short or is not a JSON trace")

    def slide(self) -> bool:
        """Drop what was used, read on. False at the end of the file."""
        if self.done:
            return False
        try:
            more = self.stream.read(WINDOW)
        except (OSError, EOFError, zlib.error) as e:
            raise TraceError(f"{self.name}: cannot be read to its end ({e}); copy the file again") from e
        self.before += self.at
        self.text = self.text[self.at :] + more
        self.at = 0
        self.done = not more
        return bool(more)

    def peek(self) -> str:
        """Return the next character that is not white space, or "" at the end."""
        while True:
            text, at = self.text, self.at
            end = len(text)
            while at < end and text[at] in " \t\r\n":
                at += 1
            self.at = at
            if at < end:
                return text[at]
            if not self.slide():
                return ""

    def take(self, expected: str) -> None:
        found = self.peek()
        if found != expected:
            raise self.fail(f"expected {expected!r}, found {found!r}")
        self.at += 1

    def value(self) -> Any:
        """Decode the JSON value that starts here; slide on while it is incomplete."""
        self.peek()
        while True:
            try:
                found, end = self.decode(self.text, self.at)
            except RecursionError as e:
                raise self.fail("a value nested too deeply") from e
            except ValueError as e:
                # Incomplete or wrong? Only more text can tell, up to a length that no real value has.
                if len(self.text) - self.at > LONGEST_VALUE or not self.slide():
                    raise self.fail("a broken value") from e
                continue
            # A number at the very end of the window may go on in the next one.
            if end == len(self.text) and not isinstance(found, (dict, list, str)) and self.slide():
                continue
            self.at = end
            return found


def iter_text_events(
    stream: TextIO, name: str = "trace", header: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the events of an open trace in file order.

    Accepts both shapes of the format: ``{"traceEvents": [...], ...}`` and a bare array of events.

    Args:
        stream: open text, as :func:`open_text` returns it.
        name: what to call it in an error.
        header: filled with the other top-level entries (``deviceProperties``, ``baseTimeNanoseconds``, …), those that
            stand behind the events too, so read it after the last event.

    Raises:
        TraceError: cut short, damaged, without a ``traceEvents`` array, or with endless entries beside it.

    >>> import io
    >>> text = '{"schemaVersion": 1, "traceEvents": [{"name": "aten::mm", "ph": "X", "ts": 1.5, "dur": 2}], "z": 3}'
    >>> meta = {}
    >>> [(e["name"], e["dur"]) for e in iter_text_events(io.StringIO(text), header=meta)], meta
    ([('aten::mm', 2)], {'schemaVersion': 1, 'z': 3})
    """
    window = _Window(stream, name)
    seen, beside = False, 0
    if window.peek() == "[":
        yield from _array(window)
        seen = True
    else:
        window.take("{")
        while window.peek() != "}":
            key = window.value()
            if not isinstance(key, str):
                raise window.fail(f"a key that is not a string ({str(key)[:30]!r})")
            window.take(":")
            if key == "traceEvents" and window.peek() == "[":
                seen = True
                yield from _array(window)
            else:
                began = window.before + window.at
                entry = window.value()
                beside += window.before + window.at - began
                if beside > LONGEST_VALUE:
                    raise window.fail(f"more than {LONGEST_VALUE:,} characters beside the events")
                if header is not None:
                    header[key] = entry
            if window.peek() != "}":
                window.take(",")
        window.at += 1
    if window.peek():
        raise window.fail("text behind the end")
    if not seen:
        raise TraceError(f"{name}: no traceEvents array; pass a trace written by torch.profiler's export_chrome_trace")


def _array(window: _Window) -> Iterator[dict[str, Any]]:
    window.take("[")
    if window.peek() == "]":
        window.at += 1
        return
    # The hot loop of a 500 MB file: one decode, two comparisons and a yield per event.
    while True:
        event = window.value()
        if isinstance(event, dict):
            yield event
        else:
            raise window.fail(f"an event that is not an object ({str(event)[:30]!r})")
        if window.text[window.at : window.at + 1] == ",":
            window.at += 1
            continue
        after = window.peek()
        window.at += 1
        if after == "]":
            return
        if after != ",":
            window.at -= 1
            raise window.fail(f"expected ',' or ']', found {after!r}")


def iter_events(path: str | os.PathLike[str], header: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a file, gzipped or not; see :func:`iter_text_events`.

    Raises:
        TraceError: missing, cut short, or not a trace.
    """
    with open_text(path) as stream:
        yield from iter_text_events(stream, str(path), header)
