# SPDX-License-Identifier: MIT
"""From executed counts to a time: what a kernel's instructions and bytes take at least, at a GPU's peak rates.

This is a *model*, not a measurement. Each part of the GPU is charged with the work that the executed code really gave
it, spread evenly over the compute units that the grid can reach; the slowest part is the prediction. Nothing is
charged for latencies, for caches that miss twice or for a clock below its peak, so a real run takes longer.
Source: rates of instructions, :mod:`cdna.costs`; bandwidth and clock, the vendor's data sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdna.costs import Costs, mfma_cycles, valu_cycles
from cdna.predict.limits import ModelTime
from cdna.predict.specs import GpuSpec, HardwareError, gpu
from cdna.run.counters import LINE
from cdna.run.session import Result

__all__ = ["ExecutedTime", "model_time"]


@dataclass(frozen=True)
class ExecutedTime(ModelTime):
    """Least microseconds of one launch that was executed, by part of the GPU, in a model.

    Attributes:
        units: compute units that share the work.
    """

    units: int


def model_time(result: Result, spec: GpuSpec | None = None) -> ExecutedTime:
    """Model what the launch behind ``result`` takes at least on ``spec`` (an MI300X by default), in a model.

    Raises:
        HardwareError: the launch was executed with ``count=False``, or ``spec`` is no GPU of gfx942.
    """
    spec = spec or gpu("MI300X")
    if spec.arch != "gfx942":
        raise HardwareError(f"{spec.name} is {spec.arch}: what was executed is code for gfx942; give gpu('MI300X')")
    counters, machine = result.counters, result.machine
    if not counters.enabled:
        raise HardwareError("the launch was executed with count=False, so its bytes are not known: leave that out")
    units = min(spec.units, machine.total)
    _, mhz = spec.flops["fp32"]
    code = [(o, n) for o, n in zip(machine.code, machine.counts, strict=True) if n]
    cycles = {
        "matrix cores": sum(n * mfma_cycles(o.op) for o, n in code if o.kind == "mfma") / spec.simds,
        "vector ALU": sum(n * valu_cycles(o.op) for o, n in code if o.kind == "valu") / spec.simds,
        "LDS": counters.lds_cycles,
        "vector L1": counters.lines * Costs().line_cycles,
    }
    parts = {name: total / units / mhz for name, total in cycles.items()}
    parts["HBM"] = counters.distinct_lines * LINE / spec.bandwidth_tb_s / 1e6
    return ExecutedTime(parts, units)
