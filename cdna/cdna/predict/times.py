# SPDX-License-Identifier: MIT
"""Models of time: how long each part of a GPU is busy in a launch that was executed, and in a turn of a loop.

These are *models*, not measurements: the part that is busy longest sets the limit. A launch charges each part with the
work that the executed code really gave it, spread evenly over the compute units that the grid can reach; a loop counts
the instructions of the text at the rates of :mod:`cdna.costs`, and bytes at the data sheet's bandwidth. Nothing is
charged for latencies, for caches that miss twice or for a clock below its peak, so these are bounds and a real run
takes longer: :mod:`cdna.predict.achieved` says how long it likely takes. With enough waves or loads in flight latencies
hide; :mod:`cdna.step.timeline` shows whether they do.
Source: rates of instructions, :mod:`cdna.costs`; bandwidth and clock, the vendor's data sheet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdna.compile import Compiled
from cdna.costs import Costs, mfma_cycles, valu_cycles
from cdna.isa.body import Instruction, Loop
from cdna.isa.kernel import Kernel
from cdna.isa.mnemonics import matrix_shape
from cdna.predict.specs import GpuSpec, HardwareError, gpu
from cdna.run.counters import LINE
from cdna.run.session import Result

__all__ = ["LEFT_OUT", "BusyParts", "ExecutedTime", "LoopBudget", "ModelTime", "loop_budget", "loop_rate", "model_time"]

#: What a bound does not charge, in words for those who read one, by the model that makes it: ``launch``
#: (:func:`model_time`), ``rung`` (:func:`cdna.predict.gemm_prediction.predict_product`), ``product``
#: (:func:`cdna.predict.achieved.product_time`), ``attention`` and ``bytes`` (:mod:`cdna.predict.published`).
LEFT_OUT: Mapping[str, str] = {
    "launch": "latencies, issue slots, the L2, lines fetched twice, atomics and a clock below its peak",
    "rung": "a kernel's start and end, compute units in each other's way, the L2's rate, lines fetched twice, a launch "
    "and a clock below its peak",
    "product": "the code of the library's loop, latencies, LDS, caches, lines fetched twice, the sums of a split K, a "
    "launch and a clock below its peak",
    "attention": "compute units in each other's way, the L2, lines fetched twice, a launch and a clock below its peak",
    "bytes": "everything but the memory's bytes: issue, latencies, caches, lines fetched twice and a launch",
}


@dataclass(frozen=True)
class BusyParts:
    """Time for which each part of a GPU is busy, in a model; the class that inherits says in which unit.

    Attributes:
        parts: the time of each part, by its name.

    >>> BusyParts({"HBM": 3.0, "LDS": 5.0}).limit
    'LDS'
    """

    parts: dict[str, float]

    @property
    def limit(self) -> str:
        """The part that is busy longest."""
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def longest(self) -> float:
        """The time of that part."""
        return self.parts[self.limit]


@dataclass(frozen=True)
class ModelTime(BusyParts):
    """Microseconds for which each part is busy in one launch, in a model.

    Attributes:
        matrix: of them, those for which the matrix cores multiply at their peak rate; they set the clock of a
            likely time (:func:`cdna.predict.achieved.likely`).
    """

    matrix: float = field(default=0.0, kw_only=True)

    @property
    def microseconds(self) -> float:
        """The bound: no launch can take less, by this model."""
        return self.longest


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
    return ExecutedTime(parts, units, matrix=parts["matrix cores"])


_LANES, _LDS_BYTES = 64, 128  # lanes of a wave; bytes that the LDS of a compute unit moves in a cycle


@dataclass(frozen=True)
class LoopBudget(BusyParts):
    """One turn of a loop by all waves of a compute unit, in a model.

    Attributes:
        parts: cycles for which each unit is busy.
        waves: waves on each SIMD.
        flops: operations of the matrix cores.
        loaded: bytes of global memory that are asked for.
        counts: instructions of one wave by kind.
    """

    waves: float
    flops: int
    loaded: int
    counts: dict[str, int]

    @property
    def cycles(self) -> float:
        """Cycles of one turn at least."""
        return self.longest

    @property
    def kind(self) -> str:
        """Compute-bound or memory-bound: memory counts what is fetched from HBM and what passes the vector L1."""
        return "memory-bound" if self.limit in ("HBM", "vector L1") else "compute-bound"

    def __str__(self) -> str:
        rows = [
            f"model: {self.kind}, {self.limit} is the limit, {self.cycles:,.0f} cycles a turn "
            f"({self.waves:g} waves on each SIMD)"
        ]
        rows += [
            f"  {part:<18} {cycles:>8,.0f} cycles  {cycles / self.cycles:>5.0%}"
            for part, cycles in sorted(self.parts.items(), key=lambda x: -x[1])
        ]
        return "\n".join(rows)


def _bytes(body: list[Instruction], kind: str) -> int:
    return sum(_LANES * i.bits // 8 for i in body if i.kind == kind and i.access)


def loop_budget(
    kernel: Compiled | Kernel,
    *,
    waves: float = 1,
    reuse: float = 1,
    lds_cycles: float | None = None,
    loop: Loop | None = None,
    spec: GpuSpec | None = None,
) -> LoopBudget:
    """Compute what one turn of a loop asks of a compute unit.

    Args:
        kernel: compiled or parsed.
        waves: waves on each SIMD (``report.occupancy.waves_per_simd``); all of them make one turn.
        reuse: how many compute units use a byte that is fetched from HBM once, through the caches; 1 counts every load.
        lds_cycles: cycles of the LDS in one turn of one wave, if they were executed and counted with their conflicts;
            by default bytes / 128.
        loop: the innermost one with most instructions by default.
        spec: an MI300X by default.

    Raises:
        HardwareError: the kernel has no loop, or ``waves`` or ``reuse`` make no sense.
    """
    kernel = kernel if isinstance(kernel, Kernel) else kernel.parsed
    spec = spec or gpu("MI300X")
    if not kernel.loops:
        raise HardwareError(f"{kernel.name} has no loop to budget")
    if not (0 < waves <= spec.max_waves) or not reuse >= 1:
        raise HardwareError(
            f"waves={waves!r}, reuse={reuse!r}: more than 0 and at most {spec.max_waves} waves; reuse 1 or more"
        )
    loop = loop or max(kernel.loops, key=lambda x: (x.depth, x.instructions))
    body = [i for i in kernel.instructions if loop.first_line <= i.line <= loop.last_line]
    everyone = waves * spec.simds
    costs = Costs()
    counts = Counter(i.kind for i in body if i.kind not in ("waitcnt", "other"))
    # A wave issues once in `issue` cycles at most; a SIMD issues one instruction of each kind in that time.
    issue = costs.issue * max(sum(counts.values()), waves * max(counts.values(), default=0))
    loaded = _bytes(body, "global")
    _, mhz = spec.flops["fp32"]
    lds = _bytes(body, "lds") / _LDS_BYTES if lds_cycles is None else lds_cycles
    parts: dict[str, float] = {
        "matrix cores": waves * sum(mfma_cycles(i.op) for i in body if i.kind == "mfma"),
        "vector ALU": waves * sum(valu_cycles(i.op) for i in body if i.kind == "valu"),
        "issue": issue,
        "LDS": everyone * (lds + sum(2 for i in body if i.kind == "permute")),
        "vector L1": everyone * loaded / LINE * costs.line_cycles,
        "HBM": everyone * loaded / reuse / (spec.bandwidth_tb_s * 1e6 / mhz / spec.units),
    }
    flops = sum(s.flops for i in body if i.kind == "mfma" and (s := matrix_shape(i.op)))
    return LoopBudget(parts, waves, int(everyone * flops), int(everyone * loaded), dict(counts))


def loop_rate(budget: LoopBudget, spec: GpuSpec | None = None) -> float:
    """Return TFLOPS of the whole GPU if every compute unit turned the loop in ``budget.cycles``, in the model."""
    spec = spec or gpu("MI300X")
    _, mhz = spec.flops["fp32"]
    return budget.flops / budget.cycles * mhz * spec.units / 1e6
