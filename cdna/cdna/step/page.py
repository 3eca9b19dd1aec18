# SPDX-License-Identifier: MIT
"""The stepping page: one self-contained HTML file that plays a recording forwards and backwards.

The states travel as deltas, packed with zlib: a header of 8 bytes (length of the JSON, 0), the JSON, and 32-bit words
for the vector registers. The page asks for nothing from outside.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from cdna.step.state import Loading, Recording, StateChange, StepError
from cdna.step.timeline import Timeline, timeline

__all__ = ["MAX_BYTES", "inline", "pack", "page"]

#: A page is kept below this by leaving lanes out.
MAX_BYTES = 3_000_000
_LOW = (1 << 32) - 1


def _pair(mask: int) -> list[int]:
    return [mask & _LOW, mask >> 32]


def _words(r: int, values: Any, valid: int, lanes: Any) -> Any:
    # What was never written is zero, which packs well; the page shows the mask, not the poison.
    bits = np.unpackbits(np.frombuffer(valid.to_bytes(8, "little"), np.uint8), bitorder="little")
    kept = np.where(bits[lanes], values[lanes], 0)
    return np.concatenate([np.array([r, valid & _LOW, valid >> 32], np.uint32), kept.astype(np.uint32)])


def _ranges(addresses: Any, size: int) -> list[list[int]]:
    """Return words of LDS as runs: first word, number of words."""
    spread = np.arange(max(1, size // 4))
    words = np.unique((addresses[:, None] >> 2) + spread)
    breaks = np.flatnonzero(np.diff(words) != 1) + 1
    return [[int(run[0]), len(run)] for run in np.split(words, breaks) if len(run)]


def _loading(items: tuple[Loading, ...]) -> list[list[Any]]:
    return [[x.line, x.op, x.counter, list(x.registers), x.lanes] for x in items]


class _Pool:
    """Things that repeat, each kept once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.numbers: dict[str, int] = {}

    def add(self, item: Any) -> int:
        key = json.dumps(item)
        if key not in self.numbers:
            self.numbers[key] = len(self.items)
            self.items.append(item)
        return self.numbers[key]


def _step(s: StateChange, loadings: _Pool, lds: _Pool) -> list[Any]:
    accesses = [[int(write), _ranges(at, size)] for at, size, write in s.lds if len(at)]
    return [
        s.index,
        len(s.vectors),
        [[n, x] for n, x in s.scalars.items()] or 0,
        0 if s.exec is None else _pair(s.exec),
        -1 if s.scc is None else int(s.scc),
        -1 if s.loading is None else loadings.add(_loading(s.loading)),
        lds.add(accesses) if accesses else -1,
    ]


def _model(t: Timeline) -> str:
    c = t.costs
    return (
        f"Model: {t.cycles:,} cycles, {t.exposed:,} without any work in the compute unit, {t.conflicts:,} lost to "
        f"LDS bank conflicts. It charges {c.issue} cycles an instruction of a wave, {c.memory_latency} for a load "
        f"from memory, {c.l1_latency} for a line that was touched before, {c.lds_latency} for the LDS (assumed "
        "latencies), and the passes of each matrix instruction."
    )


def _timeline(t: Timeline) -> dict[str, Any]:
    kinds, whys = _Pool(), _Pool()
    spans = [[s.wave, s.index, kinds.add(s.kind), s.asked, s.start, s.end, whys.add(s.why)] for s in t.spans]
    return {"waves": t.waves, "cycles": t.cycles, "spans": spans, "kinds": kinds.items, "whys": whys.items}


def pack(recording: Recording, model: Timeline, lanes: list[int]) -> bytes:
    """Pack a recording as the page reads it, compressed; of the 64 lanes those in ``lanes``."""
    loadings, lds, places = _Pool(), _Pool(), _Pool()
    chosen = np.array(lanes)
    start = recording.start
    words = [_words(r, v, start.valid[r], chosen) for r, v in start.vectors.items()]
    words += [_words(r, v, m, chosen) for s in recording.steps for r, (v, m) in s.vectors.items()]
    steps = [_step(s, loadings, lds) for s in recording.steps]
    code = []
    for o in recording.code:
        place = o.source.rpartition(":")[0]
        code.append([o.line, o.text, places.add([place, recording.sources.get(place, "")]) if place else -1])
    head = {
        "name": recording.name,
        "group": recording.group,
        "wave": recording.wave,
        "waves": len(recording.events),
        "lanes": lanes,
        "registers": list(start.vectors),
        "lds_bytes": recording.lds,
        "code": code,
        "places": places.items,
        "steps": steps,
        "loadings": loadings.items,
        "lds": lds.items,
        "start": {
            "n": len(start.vectors),
            "s": start.scalars,
            "exec": _pair(start.exec),
            "scc": int(start.scc),
            "loading": _loading(start.loading),
        },
        "timeline": _timeline(model),
        "model": _model(model),
        "error": recording.error or (f"The recording stops here: {recording.cut}." if recording.cut else ""),
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    body = np.concatenate(words).astype("<u4").tobytes() if words else b""
    return zlib.compress(struct.pack("<II", len(text), 0) + text + bytes(-len(text) % 4) + body, 9)


def page(recording: Recording, model: Timeline | None = None, *, height: str = "60vh") -> str:
    """Render the whole page. Of a long run with many registers only some lanes are kept, so that it stays below 3 MB.

    Raises:
        StepError: even four lanes are too much; record fewer steps.
    """
    model = model or timeline(recording)
    template = resources.files("cdna").joinpath("step", "step.html").read_text(encoding="utf-8")
    title = escape(f"{recording.name}: inside a wave")
    for every in (1, 2, 4, 8, 16):
        data = base64.b64encode(pack(recording, model, list(range(0, 64, every)))).decode()
        if len(data) + len(template) <= MAX_BYTES:
            parts = (("@TITLE@", title), ("@HEIGHT@", height), ("@DATA@", data))
            for name, text in parts:
                template = template.replace(name, text)
            return template
    raise StepError(f"{len(recording.steps):,} steps do not fit a page of {MAX_BYTES:,} bytes: record fewer (limit=)")


def inline(recording: Recording, height: int = 640) -> str:
    """Return the page in a frame, for the output of a notebook's cell; ``height`` in pixels."""
    text = escape(page(recording, height=f"{max(120, height - 330)}px"), quote=True)
    return (
        f'<iframe srcdoc="{text}" sandbox="allow-scripts" width="100%" height="{height}" '
        f'style="border:1px solid #8888" title="{escape(recording.name)}, stepped"></iframe>'
    )
