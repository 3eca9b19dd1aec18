# SPDX-License-Identifier: MIT
"""A launch on the compute units of an MI300X, and a prediction of its time. Nothing here was measured."""

from __future__ import annotations

from dataclasses import dataclass

from cdna.occupancy import occupancy
from cdna.predict.achieved import WAIT_US, LikelyTime, likely
from cdna.predict.specs import gpu
from rocm_guide.tune.ck.instance import BYTES, GemmInstance, Problem
from rocm_guide.tune.ck.pipeline import traffic
from rocm_guide.tune.ck.rules import MAX_REGISTERS

__all__ = ["LEFT_OUT", "Launch", "Prediction", "launch", "predict"]

_PEAK = {"F16": "fp16", "BF16": "bf16", "F32": "fp32-matrix", "F8": "fp8", "I8": "int8"}
#: Assumptions of :func:`predict`: bytes per clock of a compute unit from LDS and from its L1; seconds that a turn of
#: the K loop takes at least (a load from memory and a barrier), and that a kernel takes to start.
LDS_BYTES, L1_BYTES, TURN, START = 128, 64, 0.7e-6, 5e-6
#: What no prediction here charges, in words for those who read one.
LEFT_OUT = "vector ALU, issue slots, LDS bank conflicts, the L2, lines fetched twice, spills and a clock below its peak"


@dataclass(frozen=True)
class Launch:
    """The workgroups of a launch on the compute units.

    Attributes:
        groups: workgroups, one tile of E each.
        resident: of them, how many fit on a compute unit at once.
        units: compute units of the GPU.
        most: workgroups of the busiest unit.
        useful: share of the arithmetic that is not padding.
    """

    groups: int
    resident: int
    units: int
    most: int
    useful: float

    @property
    def busy(self) -> float:
        """Share of the units' time that has a workgroup, if all take the same time."""
        return self.groups / (self.most * self.units)

    def __str__(self) -> str:
        said = f"{self.groups} workgroups on {self.units} units: up to {self.most} each, {self.resident} at once"
        used = f"{self.busy:.0%} of the units' time is used, {self.useful:.0%} of the arithmetic is not padding"
        return f"{said}; {used}"


def estimated_registers(instance: GemmInstance) -> int:
    """Estimate the registers of a lane: accumulators, the loads under way, fragments from LDS, and 20 more.

    For the presets within 45 of what the compiler takes; the assembly has the number. CK's kernel cannot have more than
    ``MAX_REGISTERS``, half of what the chip allows: what is more is spilled.

    >>> estimated_registers(GemmInstance())
    196
    """
    i = instance
    tile = (i.MPerBlock * BYTES[i.ADataType] + i.NPerBlock * BYTES[i.BDataType]) * i.KPerBlock // i.BlockSize
    fragments = i.KPerThread * BYTES[i.compute_type] * (1 + i.NXdlPerWave64)
    return min(MAX_REGISTERS, i.accumulators + tile // 4 + fragments // 4 + 20)


def launch(instance: GemmInstance, problem: Problem) -> Launch:
    """Return how the grid fills the 304 compute units of an MI300X, with estimated registers.

    >>> print(launch(GemmInstance(), Problem(3840, 4096, 4096)))  # doctest: +ELLIPSIS
    480 workgroups on 304 units: up to 2 each, 2 at once; 79% of the units' time is used, 100% ... not padding

    Raises:
        CkError: a rule is broken.
    """
    traffic(instance, problem)  # raises what require() raises
    m, n, k = instance.padded(problem)
    groups = m // instance.MPerBlock * (n // instance.NPerBlock)
    units, registers = gpu("MI300X").units, estimated_registers(instance)
    fits = occupancy(registers, instance.lds_bytes, waves_per_workgroup=instance.waves).workgroups_per_cu
    return Launch(groups, max(1, fits), units, -(-groups // units), problem.M * problem.N * problem.K / (m * n * k))


@dataclass(frozen=True)
class Prediction:
    """A predicted time and what it is made of, in seconds; the largest of the first five decides, plus the start.

    Attributes:
        matrix, lds, l1: of the busiest compute unit.
        turns: turns of the K loop that cannot be faster than a load and a barrier.
        memory: all matrices once, at the memory's bandwidth.
    """

    matrix: float
    lds: float
    l1: float
    turns: float
    memory: float

    @property
    def seconds(self) -> float:
        return max(self.matrix, self.lds, self.l1, self.turns, self.memory) + START

    @property
    def likely(self) -> LikelyTime:
        """The likely time in microseconds: the same parts at rates that people measured.

        >>> print(predict(GemmInstance(), Problem(3840, 4096, 4096)).likely)
        bound 124.8 us, likely 231.5 us (matrix cores, 1.22 GHz)
        """
        parts = {"matrix cores": self.matrix, "LDS": self.lds, "vector L1": self.l1, "HBM": self.memory}
        return likely({n: s * 1e6 for n, s in parts.items()} | {"waits": self.turns / TURN * WAIT_US})

    @property
    def limit(self) -> str:
        """Return which of the five decides."""
        return max(("matrix", "lds", "l1", "turns", "memory"), key=lambda n: float(getattr(self, n)))


def predict(instance: GemmInstance, problem: Problem) -> Prediction:
    """Predict the time on an MI300X by a stated model, from the specification, to rank instances; no measurement.

    The busiest unit does its workgroups; matrix cores, LDS and L1 work side by side at their peaks, as far as the
    resident waves cover the four SIMDs. Caches hold what workgroups share.

    >>> p = predict(GemmInstance(), Problem(3840, 4096, 4096))
    >>> p.limit, f"{p.seconds * 1e6:.0f} us"
    ('matrix', '130 us')

    Raises:
        CkError: a rule is broken.
    """
    i, p, spec = instance, problem, gpu("MI300X")
    moved, grid = traffic(i, p), launch(i, p)
    m, n, k = i.padded(p)
    per_clock, mhz = spec.flops[_PEAK[i.compute_type]]
    share = grid.most / grid.groups  # of everything, what the busiest unit has
    together = min(grid.resident, grid.most)
    simds = min(1.0, together * i.waves / spec.simds)
    clock = mhz * 1e6
    turns = k // i.KPerBlock * -(-grid.most // together)
    once = p.M * p.K * BYTES[i.ADataType] + p.K * p.N * BYTES[i.BDataType]
    once += p.M * p.N * (BYTES[i.EDataType] + sum(BYTES[d] for d in i.DsDataType))
    return Prediction(
        matrix=2 * m * n * k * share / (per_clock * clock) / simds,
        lds=(moved.lds_reads + moved.lds_writes) * share / (LDS_BYTES * clock),
        l1=(moved.global_loads + moved.global_stores) * share / (L1_BYTES * clock),
        turns=turns * TURN,
        memory=once / (spec.bandwidth_tb_s * 1e12),
    )
