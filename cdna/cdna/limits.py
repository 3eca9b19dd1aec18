# SPDX-License-Identifier: MIT
"""Limits of the hardware that the compiler does not hold: too many threads, too much LDS, spills, an idle GPU.

Triton compiles all of these without a word; the launch fails, or the kernel is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cdna.arch import find_arch
from cdna.base import InputError
from cdna.occupancy import Occupancy

__all__ = ["ENOUGH_WORKGROUPS", "Finding", "GridError", "check_limits", "grid_fit"]

# AMD's optimisation guide asks for at least this many workgroups on an MI300X: three to four per CU.
ENOUGH_WORKGROUPS = 1_024


class GridError(InputError):
    """A launch grid that is not one to three non-negative whole numbers."""


@dataclass(frozen=True)
class Finding:
    """One thing to know about a kernel.

    Attributes:
        level: ``"error"`` it cannot be launched; ``"warning"`` it runs, but wastes the hardware; ``"note"`` look here.
        rule: a short fixed name to filter by, for example ``"lds"``.
        evidence: the numbers.
        fix: what to try.
    """

    level: str
    rule: str
    evidence: str
    fix: str


@dataclass(frozen=True)
class GridFit:
    """Fit of a grid on the GPU.

    Attributes:
        workgroups: workgroups in the grid.
        resident: how many can run at once (CUs x workgroups per CU).
        rounds: ``workgroups / resident``; 2.1 means that the third round is almost empty.
        busy: the share of the CUs' time that has work, from 0 to 1, for equal workgroups that share a CU's throughput:
            workgroups per CU divided by what the fullest CU has to do.
    """

    workgroups: int
    resident: int
    rounds: float
    busy: float


def grid_fit(grid: Sequence[int], workgroups_per_cu: int, arch: str = "gfx942") -> GridFit:
    """Return how well ``grid`` fills the GPU when ``workgroups_per_cu`` fit on each CU.

    The GPU is done when the fullest CU is, so 305 equal workgroups on 304 CUs take as long as 608. That is the tail
    effect; it fades with more workgroups per CU. Occupancy does not change it, only in how many rounds it happens.

    Raises:
        GridError: the grid is not one to three whole numbers, or ``workgroups_per_cu`` is not positive.

    >>> grid_fit((304,), 2).busy, grid_fit((305,), 2).busy
    (1.0, 0.5016447368421053)
    """
    row = find_arch(arch)
    if not 1 <= len(grid) <= 3 or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in grid):
        raise GridError(f"grid={grid!r}: give one to three whole numbers")
    if workgroups_per_cu < 1:
        raise GridError(f"workgroups_per_cu={workgroups_per_cu}: the kernel fits on no CU, so no grid can fill the GPU")
    total = math.prod(grid)
    resident = row.cus * workgroups_per_cu
    rounds = total / resident
    per_cu = total / row.cus
    return GridFit(total, resident, rounds, per_cu / math.ceil(per_cu) if total else 0.0)


def _grid_findings(grid: Sequence[int], threads: int, workgroups_per_cu: int, arch: str) -> list[Finding]:
    row = find_arch(arch)
    total = math.prod(grid)
    found: list[Finding] = []
    if total == 0:
        return [Finding("warning", "grid", f"grid {tuple(grid)} has no workgroup", "nothing runs: check the shapes")]
    if grid[0] * threads >= 1 << 32 or any(n >= 1 << 32 for n in grid):
        text = f"grid {tuple(grid)} of {threads} threads: one dimension has 2^32 work-items or more"
        found.append(Finding("error", "grid", text, "the launch packet counts in 32 bits: loop inside the kernel"))
    if total < row.cus:
        text = f"{total} workgroup{'s' * (total > 1)} on {row.cus} CUs: {row.cus - total} CUs stay idle"
        found.append(Finding("warning", "grid", text, "smaller tiles; for a matrix product also split-K"))
    elif total < ENOUGH_WORKGROUPS:
        text = f"{total} workgroups; {ENOUGH_WORKGROUPS} or more hide latency better on {row.cus} CUs"
        found.append(Finding("note", "grid", text, "smaller tiles or split-K, if the work allows it"))
    if total >= row.cus and workgroups_per_cu:
        fit = grid_fit(grid, workgroups_per_cu, arch)
        if fit.busy < 0.9:
            most = math.ceil(total / row.cus)
            text = f"{total} workgroups on {row.cus} CUs: some get {most}, some {most - 1}: CUs busy {fit.busy:.0%}"
            fix = f"a grid just below a multiple of {row.cus}, or a persistent kernel"
            found.append(Finding("note", "tail", text, fix))
    return found


def check_limits(
    occ: Occupancy,
    *,
    threads: int,
    lds: int,
    vgpr_spills: int = 0,
    sgpr_spills: int = 0,
    scratch: int = 0,
    grid: Sequence[int] | None = None,
) -> list[Finding]:
    """Return everything that the hardware minds about a kernel, the worst first.

    Args:
        occ: the kernel's occupancy; it names the architecture.
        threads: per workgroup (``num_warps * 64``).
        lds: bytes per workgroup, static and dynamic.
        vgpr_spills, sgpr_spills: registers that the compiler moved to memory.
        scratch: bytes of private memory per thread.
        grid: workgroups in up to three dimensions; without it the grid is not judged.

    A tile of 256 x 256 x 256 in bf16 compiles, with twice the LDS that exists:

    >>> from cdna.occupancy import occupancy
    >>> [(f.level, f.rule) for f in check_limits(occupancy(512, 131_072), threads=256, lds=131_072)]
    [('error', 'lds')]
    """
    row = find_arch(occ.arch)
    found: list[Finding] = []

    def add(level: str, rule: str, evidence: str, fix: str) -> None:
        found.append(Finding(level, rule, evidence, fix))

    if threads > row.max_threads_per_workgroup:
        text = f"{threads:,} threads per workgroup; {row.name} starts {row.max_threads_per_workgroup:,} at most"
        add("error", "threads", text, f"num_warps={row.max_threads_per_workgroup // row.wave_size} or fewer")
    if lds > row.lds_bytes:
        text = f"{lds:,} B of LDS per workgroup; a CU of {row.name} has {row.lds_bytes:,} B"
        add("error", "lds", text, "a smaller BLOCK_K or tile, or num_stages one lower")
    if not occ.fits and not found:
        text = f"{occ.waves_per_workgroup} waves of {occ.vgprs} VGPRs do not fit on a CU together"
        add("error", "registers", text, "fewer warps per workgroup, or a smaller tile")
    if vgpr_spills:
        text = f"{vgpr_spills} VGPRs spilled to memory ({scratch} B per thread)"
        add("warning", "spills", text, "a smaller tile, more warps, or a lower waves_per_eu")
    elif scratch:
        text = f"{scratch} B of scratch memory per thread without a spill"
        add("warning", "scratch", text, "look for an array indexed at run time, or a call that was not inlined")
    if sgpr_spills:
        add("note", "sgpr-spills", f"{sgpr_spills} SGPRs spilled into VGPRs", "fewer scalar arguments live at once")
    if grid is not None:
        found += _grid_findings(grid, threads, occ.workgroups_per_cu, occ.arch)
    order = ("error", "warning", "note")
    return sorted(found, key=lambda f: order.index(f.level))
