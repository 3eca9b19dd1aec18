# SPDX-License-Identifier: MIT
"""The HTML form of an inspection: one self-contained page, figures inline, the user's code annotated line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from cdna.inspection import Inspection

__all__ = ["render_page"]

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ddd}h3{font-size:1rem}
table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child,td.t,th.t{text-align:left}code,pre,td.c{font:13px/1.45 ui-monospace,monospace}
pre{overflow-x:auto;background:#f7f7f7;padding:.6rem}pre.asm b{background:#ffe9b8;font-weight:normal;display:block}
.figures{display:flex;flex-wrap:wrap;gap:1rem}.figures svg{max-width:100%;height:auto}
.warning{color:#a04000}.error{color:#b00020;font-weight:600}.note{color:#555}
table.code td:first-child{font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap}
table.text td{text-align:left}li{margin:.5rem 0}tr.hot td{background:#fff6e0}
"""


class SourceLine:
    """One line of the user's code: its instructions by kind, narrowest global access, whether in a loop."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.kinds: Counter[str] = Counter()
        self.bits: set[int] = set()
        self.depth = 0
        self.suggestions: list[int] = []


def annotate_source(one: Inspection) -> list[SourceLine]:
    """Annotate every line of the user's code that left instructions, in order of file and line; empty
    without debug lines.
    """
    lines: dict[str, SourceLine] = {}
    for i in one.kernel.instructions if one.kernel else ():
        place = i.source.rpartition(":")[0]
        if not place:
            continue
        line = lines.setdefault(place, SourceLine(place))
        line.kinds[i.kind] += 1
        line.depth = max(line.depth, i.depth)
        if i.kind == "global" and i.bits:
            line.bits.add(i.bits)
    for n, s in enumerate(one.suggestions, 1):
        for place in dict.fromkeys(e.source.rpartition(":")[0] for e in s.evidence):
            if place in lines:
                lines[place].suggestions.append(n)

    def key(line: SourceLine) -> tuple[str, int]:
        name, _, number = line.place.rpartition(":")
        return name, int(number) if number.isdigit() else 0

    return sorted(lines.values(), key=key)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]], hot: Sequence[bool] = (), style: str = "") -> str:
    out = [f'<table class="{style}"><tr>', *(f"<th>{escape(h)}</th>" for h in head), "</tr>"]
    for n, row in enumerate(rows):
        mark = ' class="hot"' if n < len(hot) and hot[n] else ""
        out += [f"<tr{mark}>", *(f"<td>{escape(str(c))}</td>" for c in row), "</tr>"]
    return "".join([*out, "</table>"])


def _resources(one: Inspection) -> str:
    r, o = one.resources, one.occupancy
    rows: list[tuple[str, object]] = [
        ("threads per workgroup", one.threads or "?"),
        ("LDS (bytes)", f"{one.lds or 0:,}"),
    ]
    if r is not None:
        rows += [
            ("VGPRs used", r.vgprs),
            ("of them accumulation", r.agprs or 0),
            ("VGPRs allocated", r.vgprs_allocated),
            ("SGPRs used", r.sgprs),
            ("VGPRs spilled", r.vgpr_spills or 0),
            ("scratch (bytes per lane)", r.scratch or 0),
        ]
    if o is not None:
        rows += [
            ("waves per SIMD", f"{o.waves_per_simd:g}"),
            ("workgroups per CU", o.workgroups_per_cu),
            ("limited by", " and ".join(o.limited_by)),
        ]
    return _table(("resource", "amount"), rows)


def _code(one: Inspection, code: Mapping[str, str]) -> str:
    lines = annotate_source(one)
    if not lines:
        return ""
    rows, hot = [], []
    for line in lines:
        k = line.kinds
        bits = ", ".join(map(str, sorted(line.bits)))
        notes = ", ".join(f"#{n}" for n in line.suggestions)
        where = (code.get(line.place, ""), line.place, line.depth, sum(k.values()))
        rows.append((*where, k["valu"], k["mfma"], k["global"], bits, k["lds"], k["waitcnt"], notes))
        hot.append(bool(line.suggestions))
    head = ("code", "line", "loop depth", "instructions", "VALU", "matrix", "global", "bits", "LDS", "waits", "see")
    return "<h3>Your code, line by line</h3>" + _table(head, rows, hot, "code")


def _suggestions(one: Inspection, code: Mapping[str, str]) -> str:
    out = ["<h3>Suggestions</h3><ol>"]
    for s in one.suggestions:
        places = dict.fromkeys(e.source.rpartition(":")[0] for e in s.evidence)
        items = "".join(f"<br><code>{escape(p)}: {escape(code[p])}</code>" for p in places if p in code)
        items += "".join(
            f"<br><code>{escape(e.text)} {e.line}: {escape(e.code)}</code> <span class='note'>{escape(e.source)}</span>"
            for e in s.evidence
        )
        out.append(f"<li><b>{escape(s.found)}</b><br>Try: {escape(s.fix)}{items}</li>")
    out.append("</ol>" if one.suggestions else "</ol><p>None.</p>")
    out += [f'<p class="{f.level}">{f.level}: {escape(f.evidence)}. Try: {escape(f.fix)}</p>' for f in one.findings]
    return "".join(out)


def _lds(one: Inspection) -> str:
    if one.program is None:
        return ""
    rows = [
        (
            " + ".join(u.reasons),
            f"{u.bytes:,}",
            u.buffers,
            u.depth,
            ", ".join(str(op.line) for op in u.stores),
            ", ".join(str(op.line) for op in u.loads),
            u.source,
        )
        for u in one.program.lds_uses
    ]
    layouts = [(n, x.describe()) for n, x in one.program.layouts.items() if x.kind != "unknown"]
    head = ("trip through LDS", "bytes", "buffers", "loop depth", "stored (TTGIR line)", "loaded", "source")
    trips = _table(head, rows) if rows else "<p>No trip through LDS.</p>"
    return f"<h3>LDS and layouts</h3>{trips}{_table(('layout', 'meaning'), layouts, style='text')}"


def _loop(one: Inspection) -> str:
    """Return the largest loop's assembly, evidence lines marked."""
    if one.kernel is None or not one.kernel.loops or not one.assembly:
        return ""
    loop = max(one.kernel.loops, key=lambda x: x.instructions)
    marked = {e.line for s in one.suggestions for e in s.evidence if e.text == "assembly"}
    wanted = {i.line for i in one.kernel.instructions if loop.first_line <= i.line <= loop.last_line}
    text = one.assembly.split("\n")
    out = []
    for n in sorted(wanted)[:400]:
        line = escape(f"{n:>6}  {text[n - 1].strip()}")
        out.append(f"<b>{line}</b>" if n in marked else f"{line}\n")
    more = f"\n… {len(wanted) - 400} more" if len(wanted) > 400 else ""
    title = f"The largest loop: lines {loop.first_line} to {loop.last_line}, {loop.instructions} instructions"
    return f"<h3>{title}</h3><pre class='asm'>{''.join(out)}{more}</pre>"


def render_page(
    found: Sequence[Inspection], figures: Sequence[Sequence[str]], code: Sequence[Mapping[str, str]], version: str = ""
) -> str:
    """Render one HTML page for several kernels.

    Args:
        found: the inspections.
        figures: for each, SVG texts to put inline.
        code: for each, the user's code by ``file:line``.
        version: written at the foot of the page.

    >>> page = render_page([Inspection("k<1>", "gfx942", "assembly")], [[]], [{}])
    >>> "k&lt;1&gt;" in page, "<script" in page
    (True, False)
    """
    parts = []
    for one, svgs, lines in zip(found, figures, code, strict=True):
        grid = f", grid {' x '.join(map(str, one.grid))}" if one.grid else ""
        made = f", triton {one.triton}" if one.triton else ""
        options = " ".join(f"{k}={v}" for k, v in one.options.items())
        parts.append(
            f"<h2>{escape(one.name)} for {escape(one.arch)} ({escape(one.origin)}{escape(made)}{grid})</h2>"
            f"<p><code>{escape(options)}</code></p><div class='figures'>{''.join(svgs)}</div>{_resources(one)}"
            f"{_suggestions(one, lines)}{_code(one, lines)}{_lds(one)}{_loop(one)}"
        )
    note = "Computed by compiling for the architecture; nothing was run on a GPU. "
    title = f"cdna inspect: {', '.join(dict.fromkeys(one.name for one in found))}"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p class='note'>{note}{escape(version)}</p>"
        f"{''.join(parts)}</body></html>\n"
    )
