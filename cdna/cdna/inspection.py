# SPDX-License-Identifier: MIT
"""One kernel and all that is known about it, from what there is: a launch, assembly, a code object, an IR dump.

This is what ``cdna inspect`` prints, as text, JSON or HTML.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from cdna.arch import find_arch
from cdna.base import InputError
from cdna.compile import Compiled
from cdna.elf import read_code_objects
from cdna.ir.program import Program, parse_ir
from cdna.isa.kernel import IsaError, Kernel, parse_asm
from cdna.limits import Finding, check_limits
from cdna.occupancy import Occupancy, occupancy
from cdna.report import KernelReport
from cdna.resources import Resources
from cdna.suggest import Suggestion, suggest

__all__ = ["Inspection", "inspect_assembly", "inspect_code_object", "inspect_ir", "inspect_launch"]


@dataclass(frozen=True)
class Inspection:
    """A kernel and what could be learnt about it; parts that the input does not hold are None or empty.

    ``origin`` says what was read; ``threads`` and ``lds`` are per workgroup (LDS in bytes, as far as known).
    """

    name: str
    arch: str
    origin: str
    threads: int | None = None
    lds: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None
    triton: str = ""
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    kernel: Kernel | None = field(default=None, repr=False)
    program: Program | None = field(default=None, repr=False)
    assembly: str = field(default="", repr=False)
    findings: tuple[Finding, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; widths are keyed by bits per lane."""
        plain: dict[str, Any] = {
            "name": self.name,
            "arch": self.arch,
            "origin": self.origin,
            "triton": self.triton,
            "threads": self.threads,
            "lds": self.lds,
            "grid": self.grid,
            "options": {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in self.options.items()},
            "resources": asdict(self.resources) if self.resources else None,
            "occupancy": asdict(self.occupancy) if self.occupancy else None,
            "findings": [asdict(f) for f in self.findings],
            "suggestions": [asdict(s) for s in self.suggestions],
        }
        if self.kernel:
            plain["isa"] = _isa(self.kernel)
        if self.program:
            plain["ir"] = _ir(self.program)
        return plain

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=1)


def _isa(kernel: Kernel) -> dict[str, Any]:
    widths = {}
    for kind in ("global", "lds", "scratch"):
        for access in ("load", "store", "atomic"):
            if inside_out := kernel.widths(kind, access):
                widths[f"{kind}_{access}"] = {"all": inside_out, "in_loops": kernel.widths(kind, access, True)}
    return {
        "instructions": len(kernel.instructions),
        "mix": kernel.mix(),
        "mix_in_loops": kernel.mix(in_loops=True),
        "widths": widths,
        "matrix": [
            {"op": u.op, "shape": u.shape.name, "count": u.count, "in_loops": u.in_loops, "flops": u.flops}
            for u in kernel.matrix_uses()
        ],
        "matrix_flops_per_wave_and_iteration": kernel.mfma_flops_per_iteration,
        "loops": [asdict(loop) for loop in kernel.loops],
        "waits": [{"line": w.line, "depth": w.depth, "source": w.source, **w.counts} for w in kernel.waits()],
        "barriers": kernel.barriers,
        "calls": kernel.calls,
    }


def _ir(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "stage": program.stage,
        "waves": program.header.waves,
        "layouts": {name: layout.describe() for name, layout in program.layouts.items() if layout.kind != "unknown"},
        "conversions": [
            {"line": c.operation.line, "source": c.operation.source, "crosses_waves": c.crosses_waves}
            for c in program.conversions
        ],
        "lds_uses": [
            {
                "reasons": u.reasons,
                "bytes": u.bytes,
                "buffers": u.buffers,
                "depth": u.depth,
                "certain": u.certain,
                "source": u.source,
                "stores": [op.line for op in u.stores],
                "loads": [op.line for op in u.loads],
            }
            for u in program.lds_uses
        ],
        "global_accesses": [
            {"line": g.operation.line, "source": g.operation.source, "access": g.access, "lane_bits": g.lane_bits}
            for g in program.global_accesses
        ],
    }


def inspect_launch(report: KernelReport, compiled: Compiled) -> Inspection:
    """Inspect a kernel that :mod:`~cdna.compile` or a dry run compiled."""
    kernel = compiled.parsed
    program = parse_ir(compiled.ttgir)[0]
    return Inspection(
        name=report.kernel,
        arch=report.arch,
        origin="compiled here",
        threads=report.threads,
        lds=report.lds,
        options={**report.options, **report.constants},
        grid=report.grid,
        triton=report.triton,
        resources=report.resources,
        occupancy=report.occupancy,
        kernel=kernel,
        program=program,
        assembly=compiled.assembly,
        findings=tuple(report.findings),
        suggestions=tuple(suggest(kernel, report.occupancy, program, compiled.num_stages)),
    )


def _with_resources(
    name: str, arch: str, origin: str, resources: Resources, kernel: Kernel | None, lds: int | None, waves: int | None
) -> Inspection:
    static = resources.lds_static or 0
    total = static if lds is None else lds
    threads = (waves or 0) * 64 or resources.max_workgroup_size
    if waves is not None and not 0 < waves * 64 <= (resources.max_workgroup_size or 1024):
        most = (resources.max_workgroup_size or 1024) // 64
        raise InputError(f"{name}: {waves} waves per workgroup, and its code is for 1 to {most}; leave --warps out")
    occ, findings = None, []
    if resources.vgprs_allocated and threads and _known(arch):
        row = find_arch(arch)
        per_group = -(-threads // row.wave_size)
        occ = occupancy(
            min(resources.vgprs_allocated, row.vgpr_file),
            total,
            waves_per_workgroup=min(per_group, 64),
            sgprs=min(resources.sgprs_allocated or 0, 112),
            arch=arch,
        )
        findings = check_limits(
            occ,
            threads=threads,
            lds=total,
            vgpr_spills=resources.vgpr_spills or 0,
            sgpr_spills=resources.sgpr_spills or 0,
            scratch=resources.scratch or 0,
        )
    if lds is None and occ is not None and not static:
        text = "0 B of LDS in this file; Triton's LDS is dynamic and not in it, so occupancy may be lower"
        findings.append(Finding("note", "dynamic-lds", text, "give --lds BYTES (kernel.metadata.shared)"))
    return Inspection(
        name=name,
        arch=arch,
        origin=origin,
        threads=threads,
        lds=total,
        resources=resources,
        occupancy=occ,
        kernel=kernel,
        findings=tuple(findings),
        suggestions=tuple(suggest(kernel, occ)) if kernel else (),
    )


def _known(arch: str) -> bool:
    return arch in ("gfx90a", "gfx942", "gfx950")


def inspect_assembly(text: str, *, lds: int | None = None, waves: int | None = None) -> list[Inspection]:
    """Inspect every kernel of an assembly text or disassembly.

    Args:
        text: the file.
        lds: bytes per workgroup, when more than the file states (Triton's dynamic LDS).
        waves: waves per workgroup; otherwise the largest workgroup that the file allows is assumed.

    Raises:
        IsaError: no kernel in it.
    """
    found = []
    for k in parse_asm(text):
        if k.is_entry:
            one = _with_resources(k.name, k.arch, "assembly", k.resources, k, lds, waves)
            found.append(Inspection(**{**one.__dict__, "assembly": text}))
    if not found:
        raise IsaError(
            "the text has none of the functions that it names as its kernels (.amdhsa_kernel); give the whole text"
        )
    return found


def inspect_code_object(data: bytes, *, lds: int | None = None, waves: int | None = None) -> list[Inspection]:
    """Inspect every kernel of a code object or offload bundle: resources only, no instructions.

    Raises:
        ElfError: not a readable code object.
    """
    return [
        _with_resources(k.name, c.arch, "code object", k.resources, None, lds, waves)
        for c in read_code_objects(data)
        for k in c.kernels
    ]


def inspect_ir(text: str) -> list[Inspection]:
    """Inspect a TTIR or TTGIR dump; of a dump of many passes, the last form of each function.

    Raises:
        IrError: no function in it.
    """
    last = {p.name: p for p in parse_ir(text)}
    found = []
    for program in last.values():
        arch = program.header.target.partition("hip:")[2]
        kernel = Kernel(program.name, arch, True, (), (), Resources())
        tips = tuple(s for s in suggest(kernel, None, program) if s.rule == "lds-trip")
        threads = program.header.waves * (program.header.lanes or 64) if program.header.waves else None
        lds = program.header.shared
        found.append(Inspection(program.name, arch, "IR", threads, lds, program=program, suggestions=tips))
    return found
