# SPDX-License-Identifier: MIT
"""The terminal form of an inspection: sections of plain lines that read the same when piped into a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from cdna.cli.inspect.python_file import HowTo
from cdna.cli.output import PlainConsole
from cdna.inspection import Inspection
from cdna.isa.text import lines_of_code

__all__ = ["executed_counts", "print_executed", "print_inspection", "print_overview", "source_lines"]


def source_lines(one: Inspection, folder: Path | None) -> dict[str, str]:
    """Return the user's code by ``file:line``, for those files that lie in ``folder``."""
    places = {i.source.rpartition(":")[0] for i in one.kernel.instructions} if one.kernel else set()
    if one.program:
        places |= {op.source.rpartition(":")[0] for op in one.program.operations}
    return lines_of_code(places, folder)


def _head(console: PlainConsole, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def _resources(console: PlainConsole, one: Inspection) -> None:
    r, o = one.resources, one.occupancy
    if r is None:
        return
    _head(console, "Resources")
    if r.vgprs is not None or r.vgprs_allocated is not None:
        vector = f"{r.vgprs} VGPRs used ({r.agprs or 0} of them accumulation), {r.vgprs_allocated} allocated"
        console.print(f"  registers   {vector}; {r.sgprs} SGPRs used, {r.sgprs_allocated} allocated")
        console.print(
            f"  memory      {one.lds or 0:,} B of LDS per workgroup of {one.threads} threads; "
            f"{r.scratch or 0} B of scratch; {r.vgpr_spills or 0} VGPRs spilled"
        )
    if r.code_bytes:
        console.print(f"  code        {r.code_bytes:,} B")
    if o is not None:
        console.print(
            f"  occupancy   {o.waves_per_simd:g} waves per SIMD, {o.workgroups_per_cu} workgroups per CU, "
            f"limited by {' and '.join(o.limited_by)}"
        )
        admits = ", ".join(f"{name} {n}" for name, n in o.workgroups_by.items())
        console.print(f"              workgroups per CU by resource: {admits}")


def _instructions(console: PlainConsole, one: Inspection) -> None:
    k = one.kernel
    if k is None or not k.instructions:
        return
    _head(console, "Instructions")
    inside = k.mix(in_loops=True)
    console.print(f"  {'kind':<10} {'all':>7} {'in loops':>9}")
    for kind, n in k.mix().items():
        console.print(f"  {kind:<10} {n:>7} {inside.get(kind, 0):>9}")
    for use in k.matrix_uses():
        console.print(
            f"  matrix: {use.count} x {use.shape.name}, {use.in_loops} in loops, {use.shape.flops:,} operations each"
        )
    rows = [(kind, access) for kind in ("global", "lds", "scratch") for access in ("load", "store", "atomic")]
    rows = [row for row in rows if k.widths(*row)]
    if rows:
        _head(console, "Width of memory accesses (bits per lane)")
        console.print(f"  {'access':<15} {'bits':>5} {'all':>6} {'in loops':>9}")
    for kind, access in rows:
        looped = k.widths(kind, access, True)
        for bits, n in k.widths(kind, access).items():
            console.print(f"  {kind + ' ' + access:<15} {bits:>5} {n:>6} {looped.get(bits, 0):>9}")
    if k.loops:
        _head(console, "Loops")
        for loop in k.loops:
            waits = [w for w in k.waits() if loop.first_line <= w.line <= loop.last_line]
            waited = Counter(" ".join(f"{n}({v})" for n, v in w.counts.items()) for w in waits)
            text = ", ".join(f"{n} x {w}" for w, n in waited.most_common(6)) or "none"
            console.print(
                f"  depth {loop.depth}, lines {loop.first_line}-{loop.last_line} "
                f"({loop.instructions} instructions) {loop.source}; waits: {text}"
            )


def _ir(console: PlainConsole, one: Inspection) -> None:
    p = one.program
    if p is None:
        return
    if not any(v.layout for v in p.tensors()):
        console.print(
            "\n  This is TTIR: it has no layouts yet. Where data lives is decided in the TTGIR; give that dump."
        )
        return
    _head(console, "Layouts (TTGIR)")
    for name, layout in p.layouts.items():
        if layout.kind != "unknown":
            console.print(f"  {name:<10} {layout.describe()}")
    _head(console, "Trips through LDS (TTGIR)")
    for use in p.lds_uses:
        lines = ", ".join(str(op.line) for op in dict.fromkeys((*use.stores, *use.loads)))
        sure = "" if use.certain else " (the compiler may avoid it)"
        loop = f", loop depth {use.depth}" if use.depth else ""
        console.print(
            f"  {' + '.join(use.reasons):<26} {use.bytes:>7,} B  TTGIR lines {lines}{loop}  {use.source}{sure}"
        )
    if not p.lds_uses:
        console.print("  none")


def _advice(console: PlainConsole, one: Inspection, code: dict[str, str]) -> None:
    if one.findings:
        _head(console, "Limits")
    colours = {"error": "red", "warning": "yellow"}
    for f in one.findings:
        console.print(f"  {f.level}: {f.evidence}. Try: {f.fix}", style=colours.get(f.level))
    _head(console, "Suggestions")
    for n, s in enumerate(one.suggestions, 1):
        console.print(f"  {n}. {s.found}", style="cyan")
        console.print(f"     try: {s.fix}")
        quoted = ""
        for e in s.evidence:
            place = e.source.rpartition(":")[0]
            if code.get(place) and place != quoted:
                console.print(f"     {place}: {code[place]}")
                quoted = place
            console.print(f"       {e.text} {e.line}: {e.code[:88]}" + (f"  <- {e.source}" if e.source else ""))
    if one.kernel is None and one.program is None:
        console.print("  none: a code object is read for its resources; for its instructions give llvm-objdump -d FILE")
    elif not one.suggestions:
        looked = (
            "no narrow access, spill, exposed wait or needless trip through LDS" if one.kernel else "no needless trip"
        )
        console.print(f"  none: {looked} was found")


def print_inspection(console: PlainConsole, one: Inspection, folder: Path | None = None) -> None:
    """Print one inspection; ``folder`` is where the user's file lies, so that its lines can be quoted."""
    grid = f", grid {' x '.join(map(str, one.grid))}" if one.grid else ""
    version = f" with triton {one.triton}" if one.triton else ""
    console.print(f"{one.name} for {one.arch or 'an unknown architecture'} ({one.origin}{version}{grid})", style="bold")
    if one.options:
        console.print("  " + "  ".join(f"{k}={v}" for k, v in one.options.items()))
    _resources(console, one)
    _instructions(console, one)
    _ir(console, one)
    _advice(console, one, source_lines(one, folder))


def print_overview(console: PlainConsole, found: list[Inspection]) -> None:
    """Print one line per kernel, when there are several."""
    head = f"{'kernel':<28} {'waves/WG':>8} {'VGPRs':>9} {'LDS B':>7} {'spills':>6} {'waves/SIMD':>10}  suggestions"
    console.print(head, style="bold")
    for one in found:
        r, o = one.resources, one.occupancy
        registers = f"{r.vgprs}/{r.vgprs_allocated}" if r else "-"
        waves = f"{o.waves_per_workgroup}" if o else "-"
        simd = f"{o.waves_per_simd:g}" if o else "-"
        rules = ", ".join(dict.fromkeys(s.rule for s in one.suggestions)) or "-"
        spills = (r.vgpr_spills or 0) if r else 0
        console.print(
            f"{one.name[:28]:<28} {waves:>8} {registers:>9} {one.lds or 0:>7,} {spills:>6} {simd:>10}  {rules}"
        )
    console.print("")


_WORDS = {
    "workgroups": "workgroups",
    "instructions": "wave instructions",
    "loaded": "bytes loaded from global memory by active lanes",
    "stored": "bytes stored",
    "lines": "lines of 128 bytes touched, each access by itself",
    "lines_floor": "lines that would hold as many bytes without gaps",
    "distinct_lines": "different lines",
    "lds_bytes": "bytes through LDS",
    "lds_conflicts": "cycles of LDS bank conflicts (32-bank model)",
    "mfma_flops": "operations of matrix instructions",
}


def executed_counts(path: Path, kernel: str, how: HowTo, grid: str) -> dict[str, Any]:
    """Execute the first launch of ``kernel`` (of the file, if empty) and count; ``model_us`` are a model's least
    times, ``likely_us`` what an MI300X likely takes, ``caveat`` what stands beside both.

    Raises:
        InputError: no way to launch it is known, or the code does something that an MI300X must not do.
    """
    from cdna.cli.step.launch import find_launch
    from cdna.predict.achieved import likely
    from cdna.predict.published import caveat
    from cdna.predict.times import LEFT_OUT, model_time
    from cdna.run import run

    launch = find_launch(path, kernel, how, grid, "", None)
    result = run(launch.kernel, launch.grid, launch.arguments)
    model = model_time(result)
    return {
        "workgroups": result.machine.total,
        "instructions": result.executed,
        **result.counters.summary(),
        "model_us": {**model.parts, "limit": model.limit},
        "likely_us": likely(model).microseconds,
        "caveat": caveat(LEFT_OUT["launch"]),
    }


def print_executed(console: PlainConsole, counts: dict[str, Any]) -> None:
    """Print the counts as a section of an inspection."""
    console.print("Executed on this machine's CPU (counts of gfx942 code, not times)", style="bold")
    for name, text in _WORDS.items():
        console.print(f"  {counts[name]:>14,}  {text}")
    kinds = [f"{n.removesuffix('_instructions')} {v:,}" for n, v in counts.items() if n.endswith("_instructions")]
    console.print(f"  by kind: {', '.join(kinds)}")
    times = counts["model_us"]
    parts = [f"{name} {us:.3f}" for name, us in times.items() if name != "limit"]
    console.print(
        f"  model: at peak rates an MI300X takes at least {times[times['limit']]:.3f} us ({times['limit']});"
        f" us by part: {', '.join(parts)}"
    )
    console.print(f"  likely {counts['likely_us']:.3f} us, launch included; {counts['caveat']}")
