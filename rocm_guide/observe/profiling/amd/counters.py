# SPDX-License-Identifier: MIT
"""The meaning of an AMD Instinct GPU's hardware counters, and where a kernel lies under the roofline.

A counter is a number without a sentence. The table gives the sentence; :func:`place` turns counters into the three
figures that decide what to try next: FLOPs, bytes of memory traffic, and the share of what the hardware could do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from cdna.predict.specs import gpu as find_spec
from cdna.predict.specs import roofline
from rocm_guide.common.base import GuideError

__all__ = ["COUNTERS", "describe_counter"]


def _counters(table: str) -> dict[str, tuple[str, str]]:
    rows = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
    return {name: (unit, meaning) for name, unit, meaning in rows}


#: Counter -> (unit, meaning). Names end in _sum when the tool added up all instances of a block.
COUNTERS: Mapping[str, tuple[str, str]] = _counters(
    files("rocm_guide").joinpath("data", "counters.tsv").read_text(encoding="utf-8")
)

_TYPES = ("F16", "F32", "F64")
_MATRIX = ("F16", "BF16", "F32", "F64", "F8", "XF32", "I8")


def describe_counter(counter: str) -> str:
    """Return one line about a counter; of a family (``SQ_INSTS_VALU_ADD_F16``) about the family.

    >>> describe_counter("SQ_LDS_BANK_CONFLICT")
    'cycles in which LDS was stalled by bank conflicts: change the layout or pad [cycles]'
    >>> describe_counter("SQ_INSTS_VALU_MFMA_MOPS_BF16")
    'matrix operations on BF16, in units of 512 FLOPs [512 FLOPs]'
    """
    name = counter if counter in COUNTERS or f"{counter}_sum" not in COUNTERS else f"{counter}_sum"
    if name in COUNTERS:
        unit, meaning = COUNTERS[name]
        return f"{meaning} [{unit}]"
    if counter.startswith("SQ_INSTS_VALU_MFMA_MOPS_"):
        return f"matrix operations on {counter.rpartition('_')[2]}, in units of 512 FLOPs [512 FLOPs]"
    if counter.startswith("SQ_INSTS_VALU_"):
        kind = counter.removeprefix("SQ_INSTS_VALU_").replace("_", " ")
        return f"vector instructions: {kind}; 64 lanes each [instructions]"
    return "not in the table; `rocprofv3-avail info --pmc` describes every counter of your GPU"


def _sum(counters: Mapping[str, float], name: str) -> float:
    return counters.get(f"{name}_sum", counters.get(name, 0.0))


def flops(counters: Mapping[str, float]) -> float:
    """Return the FLOPs of a dispatch from its instruction counters.

    64 lanes x (additions + multiplications + transcendentals + 2 x fused multiply-adds) + 512 x matrix operations.
    Lanes that were switched off count too: it is an upper bound in divergent code.

    Raises:
        GuideError: none of the counters is there.

    Source: ROCm Compute Profiler, "Roofline" and "Compute unit",
    https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/conceptual/pipeline-metrics.html.

    >>> flops({"SQ_INSTS_VALU_FMA_F32": 100, "SQ_INSTS_VALU_ADD_F32": 10, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 1000})
    525440.0
    """
    total, seen = 0.0, False
    for kind in _TYPES:
        for operation, each in (("ADD", 1), ("MUL", 1), ("TRANS", 1), ("FMA", 2)):
            name = f"SQ_INSTS_VALU_{operation}_{kind}"
            seen |= name in counters
            total += 64 * each * counters.get(name, 0.0)
    for kind in _MATRIX:
        name = f"SQ_INSTS_VALU_MFMA_MOPS_{kind}"
        seen |= name in counters
        total += 512 * counters.get(name, 0.0)
    if not seen:
        raise GuideError("no SQ_INSTS_VALU_* counter; collect some with rocprofv3 --pmc SQ_INSTS_VALU_MFMA_MOPS_BF16")
    return total


def memory_bytes(counters: Mapping[str, float]) -> float:
    """Return the bytes between L2 and memory: from FETCH_SIZE and WRITE_SIZE, else from the requests by size.

    On MI300X the 256 MiB Infinity Cache lies behind this point, so it is an upper bound of the HBM traffic.

    Raises:
        GuideError: the counters are not there.

    Source: the expressions of FETCH_SIZE and WRITE_SIZE in rocprofiler-sdk's counter definitions
    (https://github.com/ROCm/rocprofiler-sdk/blob/amd-mainline/source/share/rocprofiler-sdk/counter_defs.yaml).

    >>> memory_bytes({"FETCH_SIZE": 2.0, "WRITE_SIZE": 1.0})
    3072.0
    >>> memory_bytes({"TCC_EA0_RDREQ_sum": 10, "TCC_BUBBLE_sum": 4, "TCC_EA0_RDREQ_32B_sum": 2,
    ...               "TCC_EA0_WRREQ_sum": 3, "TCC_EA0_WRREQ_64B_sum": 3})
    1024.0
    """
    if "FETCH_SIZE" in counters and "WRITE_SIZE" in counters:
        return 1024.0 * (counters["FETCH_SIZE"] + counters["WRITE_SIZE"])
    block = next((b for b in ("TCC_EA0", "TCC_EA") if any(c.startswith(f"{b}_RDREQ") for c in counters)), None)
    if block is None:
        fix = "collect them with rocprofv3, each in a run of its own: --pmc FETCH_SIZE, then --pmc WRITE_SIZE"
        raise GuideError(f"no FETCH_SIZE and WRITE_SIZE; {fix}")
    reads, small = _sum(counters, f"{block}_RDREQ"), _sum(counters, f"{block}_RDREQ_32B")
    large = _sum(counters, "TCC_BUBBLE")
    writes, whole = _sum(counters, f"{block}_WRREQ"), _sum(counters, f"{block}_WRREQ_64B")
    return 128.0 * large + 64 * (reads - large - small) + 32 * small + 64 * whole + 32 * (writes - whole)


@dataclass(frozen=True)
class RooflinePoint:
    """The place of a kernel under the roofline of a GPU.

    Attributes:
        intensity: FLOPs per byte.
        tflops: what it reached; ``attainable_tflops`` is the roof above its intensity.
        tb_s: the memory bandwidth it reached.
        bound: "memory" left of the ridge, "compute" right of it.
        share: reached / attainable, 0 to 1.
    """

    name: str
    gpu: str
    intensity: float
    tflops: float
    attainable_tflops: float
    tb_s: float
    bound: str
    share: float


def place(
    name: str, duration_ns: float, counters: Mapping[str, float], *, gpu: str = "MI300X", dtype: str = "bf16"
) -> RooflinePoint:
    """Put a dispatch, its time and counters, under the roofline of a GPU.

    Args:
        gpu: a name of :data:`cdna.predict.specs.GPUS`, in any case of letters; ``dtype`` whose peak is the roof.

    Raises:
        GuideError: unknown GPU or type, counters missing, or a time that is not positive.

    >>> p = place("rms_norm", 10_000, {"SQ_INSTS_VALU_FMA_F32": 156250, "FETCH_SIZE": 16384, "WRITE_SIZE": 16384})
    >>> p.bound, round(p.intensity, 2), round(p.tb_s, 2), round(p.share, 2)
    ('memory', 0.6, 3.36, 0.63)
    """
    spec = find_spec(gpu)
    if not duration_ns > 0:
        raise GuideError(f"duration_ns={duration_ns}: a dispatch takes time; is the timestamp missing?")
    work, moved = flops(counters), memory_bytes(counters)
    intensity = work / moved if moved else float("inf")
    tflops = work / duration_ns / 1e3
    roof = roofline(spec, dtype, intensity)
    bound = "compute" if intensity >= spec.ridge(dtype) else "memory"
    # Left of the ridge the roof is the bandwidth: compare bytes, which also works for a kernel without FLOPs.
    tb_s = moved / duration_ns / 1e3
    share = tflops / roof if bound == "compute" else tb_s / spec.bandwidth_tb_s
    return RooflinePoint(name, spec.name, intensity, tflops, roof, tb_s, bound, share)
