# SPDX-License-Identifier: MIT
"""Checks of a solution's code for MI300X against what its puzzle expects: one check for each property.

The code is compiled at the puzzle's true shape and read; and at a small shape it is executed, which shows what it
computes and how it goes about memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cdna.base import InputError
from cdna.checks import Check, Status
from cdna.compile_errors import explain_compile_error, foreign_assembly
from cdna.dry_run.driver import dry_run
from cdna.dry_run.recorder import Launch
from cdna.grade.judge import all_results, compare_all, own_copies
from cdna.grade.limits import SECONDS, attempt, confine, explain_limits, limits
from cdna.grade.puzzle import Expect, GradeError, Puzzle, find_puzzle
from cdna.grade.ways import FLAWS
from cdna.kernel_source import unpack_objects
from cdna.run.errors import RunError
from cdna.run.launches import Executions, executed_on_gfx942

__all__ = ["check_packed", "check_structure"]

_LINE = 128  # bytes


@dataclass(frozen=True)
class _Fixes:
    """What to do about code that is not as expected, in the words of a language.

    Attributes:
        wider, apart: about narrow accesses; and where neighbours lie apart in memory.
        rows: about lines of which a part is used.
        banks: about conflicts in LDS.
        matrix: about code without matrix instructions.
        through, beside: about LDS that is not used, or is for nothing.
    """

    wider: str
    apart: str
    rows: str
    banks: str
    matrix: str
    through: str
    beside: str


_TRITON = _Fixes(
    "more elements for each lane (a larger block, fewer warps), contiguous and aligned",
    "neighbours in the block lie apart in memory: let tl.arange run along the contiguous dimension, without a factor",
    "lanes side by side reach into different rows: a block that is wide along the rows, 64 elements or more",
    "another order of the block's dimensions",
    "tl.dot on fp16 blocks of 16 or more in every dimension",
    "a two-dimensional block, loaded along its rows and stored along its columns",
    "no element needs to change lanes: load, compute and store in one order, and broadcast vectors",
)
_LANE = (
    "a lane moves at once what it holds in a row: size_per_thread along the dimension that is contiguous in memory and "
    "comes first in order; of an MFMA result transposed=True"
)
_GLUON = _Fixes(
    _LANE,
    _LANE,
    "threads_per_warp of the layout: let more lanes stand side by side along the rows",
    "swizzle or pad the block in LDS by what a lane reads",
    "cdna3.mfma, with operands in DotOperandLayout of an AMDMFMALayout",
    "gl.allocate_shared_memory: store the tile in the layout of its load, and load it in the layout of its use",
    "no element needs to change lanes: give load, arithmetic and store one layout",
)


def _main_width(widths: dict[int, int]) -> tuple[int, str]:
    """Return the width that moves most of the bytes, and all of them as text."""
    text = ", ".join(f"{n} of {bits} bits" for bits, n in widths.items())
    return max(widths, key=lambda bits: bits * widths[bits], default=0), text or "none"


def _width_check(name: str, widths: list[dict[int, int]], wanted: int, fix: str) -> Iterator[Check]:
    if not wanted:
        return
    total: dict[int, int] = {}
    for one in widths:
        for bits, n in one.items():
            total[bits] = total.get(bits, 0) + n
    main, text = _main_width(dict(sorted(total.items(), reverse=True)))
    good = main >= wanted
    yield Check("OK" if good else "FAIL", name, text, "" if good else f"{wanted} bits for each lane: {fix}")


def _lines(done: Executions) -> tuple[float, float]:
    """Return the lines of 128 bytes that loads and stores touched, as multiples of those that their bytes fill; 0 where
    they move less than an eighth of all bytes: the sum of a row is four bytes in a line of its own.
    """
    counts = [launch.result.counters for launch in done.launches]
    lines = sum(c.lines - c.lines_stored for c in counts), sum(c.lines_stored for c in counts)
    moved = sum(c.loaded for c in counts), sum(c.stored for c in counts)
    loaded, stored = (n * _LINE / b if 8 * b >= sum(moved) > 0 else 0.0 for n, b in zip(lines, moved, strict=True))
    return loaded, stored


def judge_execution(done: Executions, expect: Expect) -> Iterator[Check]:
    """Check how executed launches went about memory: the lines that they touched, and the banks of LDS."""
    fixes = _GLUON if all(not launch.compiled.ttir for launch in done.launches) else _TRITON
    for name, found, most in zip(
        ("lines read", "lines stored"), _lines(done), (expect.lines_loaded, expect.lines_stored), strict=True
    ):
        if not found:
            continue
        good = found <= most * 1.1  # a view need not begin at a line
        text = f"{found:.1f} times the lines of 128 bytes that the bytes fill"
        yield Check("OK" if good else "FAIL", name, text, "" if good else f"{most:g} times will do: {fixes.rows}")
    ideal = sum(launch.result.counters.lds_ideal for launch in done.launches)
    cycles = sum(launch.result.counters.lds_cycles for launch in done.launches)
    if ideal:
        good = cycles <= expect.conflicts * ideal
        # Where the puzzle is not about LDS, Triton alone decides on its use, for sums and dots, each release otherwise.
        ours, theirs = fixes.banks, "Triton's own layout, which differs by release"
        fix = "" if good else f"lanes that go together meet in one bank: {ours if expect.lds else theirs}"
        status: Status = "OK" if good else "FAIL" if expect.lds else "WARN"
        yield Check(status, "banks", f"{cycles:,} cycles of LDS; without conflicts {ideal:,}", fix)


def judge_launches(launches: list[Launch], expect: Expect, apart: bool = False) -> Iterator[Check]:
    """Check compiled launches against what is expected of them, the gravest first; ``apart`` says that executed loads
    used a part of their lines only.
    """
    reports = [launch.report for launch in launches]
    fixes = _GLUON if all(not launch.compiled.ttir for launch in launches) else _TRITON
    wider = fixes.apart if apart else fixes.wider
    for report in reports:
        for finding in report.findings:
            if finding.level == "error":
                yield Check("FAIL", "launch", f"{report.kernel}: {finding.evidence}", finding.fix)
    spills = sum(r.resources.vgpr_spills or 0 for r in reports)
    yield Check(
        "FAIL" if spills else "OK",
        "registers",
        f"{max(r.resources.vgprs or 0 for r in reports)} VGPRs, {spills} spilled",
        "a smaller block or more warps" if spills else "",
    )
    worst = min(reports, key=lambda r: r.occupancy.waves_per_simd)
    waves = worst.occupancy.waves_per_simd
    text = f"{waves:g} for each SIMD, limited by {' and '.join(worst.occupancy.limited_by)}"
    possible = max(expect.waves, expect.better_waves)
    fix = f"{possible:g} are possible: a smaller block, or more warps for the same block" if waves < possible else ""
    yield Check("FAIL" if waves < expect.waves else "WARN" if fix else "OK", "waves", text, fix)
    loops = [r.isa.global_loads_in_loops if r.isa.global_loads_in_loops else r.isa.global_loads for r in reports]
    yield from _width_check("loads", loops, expect.load_bits, wider)
    yield from _width_check("stores", [r.isa.global_stores for r in reports], expect.store_bits, wider)
    if expect.mfma:
        used = {op: n for r in reports for op, n in r.isa.mfma.items()}
        text = ", ".join(f"{n} x {op}" for op, n in used.items()) or "no matrix instruction"
        fix = "" if used else fixes.matrix
        yield Check("OK" if used else "FAIL", "matrix cores", text, fix)
    if expect.lds is not None:
        size = max(r.lds for r in reports)
        good = (size > 0) is expect.lds
        fix = "" if good else fixes.through if expect.lds else fixes.beside
        yield Check("OK" if good else "FAIL", "LDS", f"{size:,} bytes for each workgroup", fix)
    if expect.workgroups:
        most = max(math.prod(r.grid or (0,)) for r in reports)
        good = most >= expect.workgroups
        fix = "" if good else f"{expect.workgroups} or more keep the 304 compute units busy: split the work further"
        yield Check("OK" if good else "FAIL", "workgroups", f"{most:,}", fix)


def _execute(call: Callable[..., Any], puzzle: Puzzle, seconds: float, files: list[str]) -> tuple[list[Check], float]:
    """Execute the machine code at a small shape: the checks of it, and the lines its loads touched as a multiple of
    those that they need (0 if that is not known).
    """
    given = puzzle.small()
    arguments = own_copies(puzzle, given)
    with limits(seconds), executed_on_gfx942() as done:
        got, error = attempt(lambda: call(*arguments))
    if isinstance(error, RunError):
        if error.rule in FLAWS:
            return [Check("FAIL", "executed", str(error), FLAWS[error.rule])], 0.0
        return [Check("WARN", "executed", f"not executed: {error}")], 0.0
    if error:
        said = explain_limits(error, files)
        slow = "still running" in said or "no end" in said
        return [
            Check("WARN" if slow else "FAIL", "executed", f"not executed to its end: {said}" if slow else said)
        ], 0.0
    if said := compare_all(puzzle, given, all_results(puzzle, arguments, got)):
        fix = "right in the interpreter and wrong as machine code: sums in fp16, or code that asks where it runs"
        return [Check("FAIL", "executed", said, fix)], 0.0
    text = f"the same result from {sum(x.result.executed for x in done.launches):,} instructions of gfx942"
    return [Check("OK", "executed", text), *judge_execution(done, puzzle.expect)], _lines(done)[0]


def check_structure(
    call: Callable[..., Any], puzzle: Puzzle, arch: str, seconds: float = SECONDS, files: list[str] | None = None
) -> list[Check]:
    """Compile what ``call`` launches at the puzzle's true shape and check it; then execute it at a small one.

    Every error of the compiler becomes a check that names the reader's line.
    """
    try:
        with limits(seconds), dry_run(arch, device="meta") as run:
            call(*puzzle.shape("cuda"))
    except GradeError as e:
        return [Check("FAIL", "compiles", explain_limits(e, files or []))]
    except InputError as e:
        return [Check("FAIL", "compiles", explain_limits(e, files or []) if "still running" in str(e) else str(e))]
    except Exception as e:  # noqa: BLE001  whatever a reader's code raises
        fix = "the interpreter takes Python that the compiler does not: sizes of blocks are tl.constexpr, powers of two"
        said = explain_compile_error(call, e)
        if isinstance(e, MemoryError) or "allocate memory" in said:
            said, fix = explain_limits(e, files or []), ""
        return [Check("FAIL", "compiles", said, fix)]
    if not run.launches:
        return [Check("FAIL", "compiles", "no Triton kernel was launched", "launch your kernel: kernel[grid](…)")]
    for launch in run.launches:
        if said := foreign_assembly(call, launch.compiled.ttir or launch.compiled.ttgir):
            return [Check("FAIL", "compiles", said)]
    executed, lines = _execute(call, puzzle, seconds, files or []) if arch == "gfx942" else ([], 0.0)
    return [*judge_launches(run.launches, puzzle.expect, lines > 1.9), *executed]


def check_packed(packed: dict[str, Any], place: str, name: str, arch: str, seconds: float, beat: str) -> list[Check]:
    """Call :func:`check_structure` for a function that :func:`cdna.kernel_source.pack_objects` took apart."""
    puzzle, files = find_puzzle(place, name), list(packed["lines"])
    confine()
    with limits(seconds):
        calls, error = attempt(lambda: unpack_objects(packed))
    if error:
        return [
            Check("FAIL", "compiles", explain_limits(error, files), "restart the kernel and run the cells in order")
        ]
    return check_structure(calls[0], puzzle, arch, seconds, files)
