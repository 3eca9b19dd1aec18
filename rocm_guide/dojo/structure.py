# SPDX-License-Identifier: MIT
"""Checks of a solution's code for MI300X against what its puzzle expects: one check for each property."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from cdna.compile_errors import explain_compile_error, foreign_assembly
from cdna.dry_run.driver import dry_run
from cdna.dry_run.recorder import Launch
from rocm_guide.common.base import GuideError
from rocm_guide.common.checks import Check
from rocm_guide.dojo.puzzle import Expect, Puzzle

__all__ = ["check_structure"]

_WIDER = "more elements for each lane (a larger block, fewer warps), contiguous and aligned"


def _main_width(widths: dict[int, int]) -> tuple[int, str]:
    """Return the width that moves most of the bytes, and all of them as text."""
    text = ", ".join(f"{n} of {bits} bits" for bits, n in widths.items())
    return max(widths, key=lambda bits: bits * widths[bits], default=0), text or "none"


def _width_check(name: str, widths: list[dict[int, int]], wanted: int) -> Iterator[Check]:
    if not wanted:
        return
    total: dict[int, int] = {}
    for one in widths:
        for bits, n in one.items():
            total[bits] = total.get(bits, 0) + n
    main, text = _main_width(dict(sorted(total.items(), reverse=True)))
    good = main >= wanted
    yield Check("OK" if good else "FAIL", name, text, "" if good else f"{wanted} bits for each lane: {_WIDER}")


def judge_launches(launches: list[Launch], expect: Expect) -> Iterator[Check]:
    """Check compiled launches against what is expected of them, the gravest first."""
    reports = [launch.report for launch in launches]
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
    few = waves < expect.waves
    text = f"{waves:g} for each SIMD, limited by {' and '.join(worst.occupancy.limited_by)}"
    fix = f"{expect.waves:g} are possible: a smaller block, or more warps for the same block" if few else ""
    yield Check("FAIL" if few else "OK", "waves", text, fix)
    loops = [r.isa.global_loads_in_loops if r.isa.global_loads_in_loops else r.isa.global_loads for r in reports]
    yield from _width_check("loads", loops, expect.load_bits)
    yield from _width_check("stores", [r.isa.global_stores for r in reports], expect.store_bits)
    if expect.mfma:
        used = {op: n for r in reports for op, n in r.isa.mfma.items()}
        text = ", ".join(f"{n} x {op}" for op, n in used.items()) or "no matrix instruction"
        fix = "" if used else "tl.dot on fp16 blocks of 16 or more in every dimension"
        yield Check("OK" if used else "FAIL", "matrix cores", text, fix)
    if expect.lds is not None:
        size = max(r.lds for r in reports)
        good = (size > 0) is expect.lds
        through = "a two-dimensional block, loaded along its rows and stored along its columns"
        beside = "no element needs to change lanes: load, compute and store in one order, and broadcast vectors"
        fix = "" if good else through if expect.lds else beside
        yield Check("OK" if good else "FAIL", "LDS", f"{size:,} bytes for each workgroup", fix)
    if expect.workgroups:
        most = max(math.prod(r.grid or (0,)) for r in reports)
        good = most >= expect.workgroups
        fix = "" if good else f"{expect.workgroups} or more keep the 304 compute units busy: split the work further"
        yield Check("OK" if good else "FAIL", "workgroups", f"{most:,}", fix)


def check_structure(call: Callable[..., Any], puzzle: Puzzle, arch: str = "gfx942") -> list[Check]:
    """Compile what ``call`` launches at the puzzle's true shape, and check it; nothing is run.

    Every error of the compiler becomes a check that names the reader's line.
    """
    try:
        with dry_run(arch, device="meta") as run:
            call(*puzzle.shape("cuda"))
    except GuideError as e:
        return [Check("FAIL", "compiles", str(e))]
    except Exception as e:  # noqa: BLE001  whatever a reader's code raises
        fix = "the interpreter takes Python that the compiler does not: sizes of blocks are tl.constexpr, powers of two"
        return [Check("FAIL", "compiles", explain_compile_error(call, e), fix)]
    if not run.launches:
        return [Check("FAIL", "compiles", "no Triton kernel was launched", "launch your kernel: kernel[grid](…)")]
    for launch in run.launches:
        if said := foreign_assembly(call, launch.compiled.ttir):
            return [Check("FAIL", "compiles", said)]
    return list(judge_launches(run.launches, puzzle.expect))
