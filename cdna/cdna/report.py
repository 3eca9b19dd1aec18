# SPDX-License-Identifier: MIT
"""One kernel's report: resources, limits, occupancy and instructions joined, for people (text) and programs (JSON).

``cdna inspect`` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cdna.arch import find_arch
from cdna.compile import Compiled
from cdna.elf import read_code_object
from cdna.isa.kernel import Kernel
from cdna.limits import Finding, check_limits
from cdna.occupancy import Occupancy, WavesPerEuAdvice, occupancy, waves_per_eu_advice
from cdna.resources import Resources

__all__ = ["KernelReport", "kernel_report", "report_table"]


@dataclass(frozen=True)
class IsaSummary:
    """The instructions of a kernel, counted. ``…_loads`` and ``…_stores`` map bits per lane to accesses."""

    instructions: int
    loops: int
    mix: dict[str, int]
    mix_in_loops: dict[str, int]
    global_loads: dict[int, int]
    global_loads_in_loops: dict[int, int]
    global_stores: dict[int, int]
    lds_loads: dict[int, int]
    lds_stores: dict[int, int]
    mfma: dict[str, int]
    waits: int
    barriers: int


@dataclass(frozen=True)
class KernelReport:
    """Everything known about one compiled kernel without running it.

    ``lds`` is what a workgroup needs, Triton's dynamic LDS included; ``resources`` is what the code object states, and
    ``occupancy`` follows from what its descriptor allocates. ``grid`` is None when nothing was launched.
    """

    kernel: str
    arch: str
    gpu: str
    triton: str
    options: dict[str, Any]
    signature: dict[str, str]
    constants: dict[str, Any]
    grid: tuple[int, ...] | None
    threads: int
    lds: int
    resources: Resources
    occupancy: Occupancy
    waves_per_eu: WavesPerEuAdvice
    findings: list[Finding]
    isa: IsaSummary

    @property
    def launches(self) -> bool:
        """Return whether the hardware would accept it."""
        return not any(f.level == "error" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; constants that JSON cannot hold become text."""
        plain = asdict(self)
        kept = (bool, int, float, str, type(None))
        plain["constants"] = {k: v if isinstance(v, kept) else str(v) for k, v in self.constants.items()}
        return {**plain, "launches": self.launches}

    def to_json(self, indent: int | None = 2) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, default=str)

    def __str__(self) -> str:
        r, o = self.resources, self.occupancy
        grid = "" if self.grid is None else f"  grid {' x '.join(map(str, self.grid))}"
        lines = [
            f"{self.kernel} for {self.arch} ({self.gpu}), triton {self.triton}{grid}",
            f"  options    {', '.join(f'{k}={v}' for k, v in self.options.items())}",
            f"  registers  {r.vgprs} VGPRs used ({r.agprs or 0} of them accumulation), {r.vgprs_allocated} allocated; "
            f"{r.sgprs} SGPRs; {r.vgpr_spills or 0} spilled; {r.scratch or 0} B scratch",
            f"  LDS        {self.lds:,} B per workgroup of {self.threads} threads",
            f"  occupancy  {o.waves_per_simd:g} waves per SIMD, {o.workgroups_per_cu} workgroups per CU, limited by "
            f"{' and '.join(o.limited_by)}" + (f"; next step at {o.next_vgprs} VGPRs" if o.next_vgprs else ""),
            f"  matrix     {', '.join(f'{n} x {op}' for op, n in self.isa.mfma.items()) or 'no matrix instruction'}",
            f"  loads      global {self.isa.global_loads} in loops {self.isa.global_loads_in_loops}; "
            f"LDS {self.isa.lds_loads}  (bits per lane: accesses)",
        ]
        return "\n".join([*lines, *(f"  {f.level:<10} {f.evidence}. Try: {f.fix}" for f in self.findings)])


def summarise_isa(kernel: Kernel) -> IsaSummary:
    """Count the instructions of a parsed kernel."""
    return IsaSummary(
        instructions=len(kernel.instructions),
        loops=len(kernel.loops),
        mix=kernel.mix(),
        mix_in_loops=kernel.mix(in_loops=True),
        global_loads=kernel.widths("global", "load"),
        global_loads_in_loops=kernel.widths("global", "load", True),
        global_stores=kernel.widths("global", "store"),
        lds_loads=kernel.widths("lds", "load"),
        lds_stores=kernel.widths("lds", "store"),
        mfma={use.op: use.count for use in kernel.matrix_uses()},
        waits=len(kernel.waits()),
        barriers=kernel.barriers,
    )


def kernel_report(compiled: Compiled, grid: Sequence[int] | None = None) -> KernelReport:
    """Join everything that is known about ``compiled``, launched over ``grid`` if given.

    Registers come from the code object (its descriptor and metadata note), instructions from the assembly, and LDS
    from Triton's metadata, because Triton's LDS is dynamic.

    Raises:
        ElfError, IsaError: the compiler's output could not be read.

    >>> import numpy as np
    >>> from cdna.compile import compile_kernel
    >>> from cdna.examples.tuning import scale_rows
    >>> x = np.empty((4096, 4096), np.float16)
    >>> r = kernel_report(compile_kernel(scale_rows, [x, x, 2.0, 4096], {"BLOCK": 2048}), grid=(128,))
    >>> r.occupancy.waves_per_simd, r.isa.global_loads, [f.rule for f in r.findings]
    (8.0, {128: 1}, ['grid'])
    """
    row = find_arch(compiled.arch)
    resources = next(k for k in read_code_object(compiled.code_object).kernels if k.name == compiled.name).resources
    threads = compiled.num_warps * row.wave_size
    lds = compiled.shared + (resources.lds_static or 0)
    assert resources.vgprs_allocated is not None  # a code object's descriptor always says it
    occ = occupancy(
        resources.vgprs_allocated,
        lds,
        waves_per_workgroup=compiled.num_warps,
        sgprs=resources.sgprs_allocated or 0,
        arch=compiled.arch,
    )
    findings = check_limits(
        occ,
        threads=threads,
        lds=lds,
        vgpr_spills=resources.vgpr_spills or 0,
        sgpr_spills=resources.sgpr_spills or 0,
        scratch=resources.scratch or 0,
        grid=grid,
    )
    return KernelReport(
        kernel=compiled.name,
        arch=compiled.arch,
        gpu=row.gpu,
        triton=compiled.triton,
        options=compiled.options,
        signature=compiled.signature,
        constants=compiled.constants,
        grid=None if grid is None else tuple(grid),
        threads=threads,
        lds=lds,
        resources=resources,
        occupancy=occ,
        waves_per_eu=waves_per_eu_advice(occ, resources.vgprs or 1, sgprs_used=resources.sgprs or 0),
        findings=findings,
        isa=summarise_isa(compiled.parsed),
    )


def report_table(reports: Sequence[KernelReport]) -> str:
    """Format reports as a plain text table, one line each: registers, LDS, spills, occupancy and the worst finding.

    >>> print(report_table([]).strip())
    kernel                           warps  VGPR used/alloc    LDS B  spills  waves/SIMD  limited by  finding
    """
    head = (
        f"{'kernel':<32} {'warps':>5}  {'VGPR used/alloc':>15} {'LDS B':>8} {'spills':>7} {'waves/SIMD':>11}  "
        f"{'limited by':<10}  finding"
    )
    lines = [head]
    for r in reports:
        registers = f"{r.resources.vgprs}/{r.resources.vgprs_allocated}"
        worst = f"{r.findings[0].level}: {r.findings[0].rule}" if r.findings else "-"
        lines.append(
            f"{r.kernel[:32]:<32} {r.occupancy.waves_per_workgroup:>5}  {registers:>15} {r.lds:>8,} "
            f"{r.resources.vgpr_spills or 0:>7} {r.occupancy.waves_per_simd:>11g}  "
            f"{'+'.join(r.occupancy.limited_by):<10}  {worst}"
        )
    return "\n".join(lines)
