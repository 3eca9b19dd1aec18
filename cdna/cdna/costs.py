# SPDX-License-Identifier: MIT
"""Cycles that the timeline model charges for each instruction, with the source of every number.

These are figures of a *model*: cycles that the published rates imply, and round latencies where AMD publishes none.
Nobody measured them here on an MI300X.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD; "AMD CDNA 3 Architecture", AMD, white paper, 2023;
matrix instructions of several blocks: AMD's table for gfx942 in hipBLASLt (tensilelite, Origami, Hardware.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from cdna.base import InputError
from cdna.isa.mnemonics import matrix_shape

__all__ = ["FLOPS_PER_CYCLE", "SOURCES", "CostError", "Costs", "mfma_cycles", "valu_cycles"]


class CostError(InputError):
    """A cost that makes no sense."""


#: Dense operations of one SIMD's matrix core in a cycle, by input type: a quarter of what a compute unit does in a
#: clock. Source: "AMD CDNA 3 Architecture", AMD, white paper, table of peak rates per compute unit.
FLOPS_PER_CYCLE = {"f64": 64, "f32": 64, "xf32": 256, "f16": 512, "bf16": 512, "i8": 1024, "fp8": 1024, "bf8": 1024}

#: Cycles of the instructions that multiply several blocks, by rows: they do not reach the peak rate (but for f32).
_BLOCKS = {32: 64, 16: 32, 4: 8}
_PASS = 4  # cycles of one pass of the matrix core, and of one vector instruction: 64 lanes on a SIMD of 16
_QUARTER_RATE = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_mul_lo_u32", "v_mul_hi_")


@dataclass(frozen=True)
class Costs:
    """Cycles of the model. A latency counts from the issue of an instruction to the arrival of its result.

    Attributes:
        issue: between two instructions of one wave.
        lds_latency, scalar_latency: of an LDS access without conflicts, and of a scalar load.
        l1_latency, memory_latency: of a vector load whose lines this compute unit has touched before, and of others.
        line_cycles: of the vector memory unit for each line of 128 bytes.
        barrier: from the last wave's arrival until the waves go on.
    """

    issue: int = 4
    lds_latency: int = 64
    scalar_latency: int = 120
    l1_latency: int = 120
    memory_latency: int = 800
    line_cycles: int = 1
    barrier: int = 8

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 100_000:
                raise CostError(f"{f.name}={value!r}: a cost is a whole number of cycles from 1 to 100,000")


_ASSUMED = "an assumption, in round figures: AMD publishes none"
#: Where each number comes from.
SOURCES = {
    "issue": "each cycle the scheduler looks at one of the four SIMDs, so a wave's turn comes every 4 (CDNA3 ISA)",
    "vector ALU": "64 lanes on 16 lanes of hardware: 4 cycles; transcendental and 32-bit multiplies at a quarter (ISA)",
    "matrix core": "operations / peak rate of a SIMD, at least 2 passes (CDNA 3 white paper); blocks: hipBLASLt",
    "LDS": "128 bytes a cycle for the compute unit, 32 banks; conflicts as counted by the executor (CDNA3 ISA)",
    "line_cycles": "the vector L1 gives 128 bytes a cycle, which is a line (CDNA 3 white paper)",
    "lds_latency": _ASSUMED,
    "scalar_latency": _ASSUMED,
    "l1_latency": _ASSUMED,
    "memory_latency": _ASSUMED,
    "barrier": _ASSUMED,
}


def mfma_cycles(op: str) -> int:
    """Return the cycles for which a matrix instruction keeps its SIMD's matrix core busy.

    >>> mfma_cycles("v_mfma_f32_32x32x8_f16"), mfma_cycles("v_mfma_f32_16x16x32_fp8_fp8")
    (32, 16)

    Raises:
        CostError: no matrix instruction.
    """
    shape = matrix_shape(op)
    if shape is None:
        raise CostError(f"{op!r}: no matrix instruction")
    kind = shape.in_type.split("_")[0]
    rate = FLOPS_PER_CYCLE.get(kind)
    if rate is None:
        raise CostError(f"{op!r}: no rate is known for {kind}")
    if shape.blocks > 1 and kind != "f64":
        return _BLOCKS[shape.m]
    passes = shape.flops / (rate * (2 if shape.sparse else 1)) / _PASS
    return _PASS * max(4 if kind == "f64" else 2, int(passes))


def valu_cycles(op: str) -> int:
    """Return the cycles for which a vector instruction keeps its SIMD's vector ALU busy.

    >>> valu_cycles("v_add_f32_e32"), valu_cycles("v_exp_f32_e32")
    (4, 16)
    """
    return 4 * _PASS if op.startswith(_QUARTER_RATE) else _PASS
