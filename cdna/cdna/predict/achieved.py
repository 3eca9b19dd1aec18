# SPDX-License-Identifier: MIT
"""The *likely* time of a launch on an MI300X, beside its bound: the same parts at the rates that people measured.

A bound (:mod:`cdna.predict.times`) charges every part at its peak rate, so that nothing can take less. A real GPU
reaches none of these peaks: it lowers its clock while its matrix cores work, because it may draw 750 W; its memory
gives four fifths of what is specified; and a launch costs time before and after its waves run. This model knows the six
constants below and nothing else; each names its source. How far it lies from published measurements is computed by
:mod:`cdna.predict.published`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cdna.predict.specs import GpuSpec, HardwareError, gpu
from cdna.predict.times import BusyParts, ModelTime

__all__ = ["CONSTANTS", "LikelyTime", "likely", "product_time"]

_MAF = "AMD, Measuring Max-Achievable FLOPs, part 2, ROCm blogs, 2025-02-28"

#: Clock in GHz while all matrix cores multiply: the mean of 1.115 (fp16), 1.207 (bf16) and 1.230 (fp8).
LOADED_GHZ = 1.184
#: Share of a clock's matrix rate that the best loops reach: 708 of the 751 TFLOPS that bf16 has at 1,207 MHz.
MATRIX_SHARE = 0.94
#: Share of the memory's 5.3 TB/s that a copy reaches: 4,177 GB/s.
HBM_SHARE = 4.177 / 5.3
#: Share of the Infinity Cache's 17.2 TB/s that reads reach: 11.9 TB/s.
CACHE_SHARE = 11.9 / 17.2
#: Microseconds of a launch that has next to nothing to do, beyond its one wait for memory.
LAUNCH_US = 1.5
#: Microseconds of a wait for memory and for the other waves of the workgroup, when nothing else fills the time.
WAIT_US = 0.6

#: Name -> value, unit and source, for tables and tests.
CONSTANTS: Mapping[str, tuple[float, str, str]] = {
    "LOADED_GHZ": (LOADED_GHZ, "GHz", _MAF),
    "MATRIX_SHARE": (MATRIX_SHARE, "", _MAF),
    "HBM_SHARE": (HBM_SHARE, "", "AMD, system acceptance of an MI300X: BabelStream copy"),
    "CACHE_SHARE": (CACHE_SHARE, "", "Chips and Cheese, Testing AMD's Giant MI300X, 2024-06-25"),
    "LAUNCH_US": (
        LAUNCH_US,
        "us",
        "fitted to the shortest kernels in print: 1.9 us (SwiGLU of one row), 3.5 us (AITER)",
    ),
    "WAIT_US": (WAIT_US, "us", "fitted to two products of AITER, with 2 and with 28 turns: 3.5 and 19.1 us"),
}

_SHARES = {"matrix cores": MATRIX_SHARE, "HBM": HBM_SHARE, "Infinity Cache": CACHE_SHARE}
#: Parts that do not go with the clock of the compute units.
_OWN_CLOCK = ("HBM", "Infinity Cache", "waits")


@dataclass(frozen=True)
class LikelyTime(BusyParts):
    """Likely microseconds of a piece of work, by what is busy.

    Attributes:
        parts: microseconds of each part at the rate that it is likely to reach.
        bound: the least microseconds: the longest part at its peak rate, and no launch.
        ghz: mean clock of the compute units.
        launch: microseconds of launches and of first waits, which nothing hides.
    """

    bound: float
    ghz: float
    launch: float

    @property
    def microseconds(self) -> float:
        """The likely time: the part that is busy longest, and the launches."""
        return self.longest + self.launch

    def __str__(self) -> str:
        return f"bound {self.bound:,.1f} us, likely {self.microseconds:,.1f} us ({self.limit}, {self.ghz:.2f} GHz)"


def likely(
    time: ModelTime | Mapping[str, float],
    *,
    matrix: float | None = None,
    launches: int = 1,
    waits: int | None = None,
    spec: GpuSpec | None = None,
) -> LikelyTime:
    """Return what a piece of work likely takes on an MI300X, from the parts of its bound.

    A cycle in which the matrix cores work takes 1 / :data:`LOADED_GHZ`, one in which they rest 1 / 2.1 GHz.

    Args:
        time: a bound, or microseconds at peak rates by part. ``HBM``, ``Infinity Cache`` and ``waits`` keep their own
            clocks; every other part (``compute units``, ``matrix cores``, ``vector ALU``, ``issue``, ``LDS``,
            ``vector L1``, ``L2``) goes with the clock of the compute units.
        matrix: microseconds for which the matrix cores are busy at their peak rate; from ``time`` by default.
        launches: kernels that are launched, one after the other.
        waits: times that a workgroup waits for memory with nothing else to do; one for each launch by default. Those of
            a loop that waits in each turn are the part ``waits``, beside which memory and compute units work.
        spec: an MI300X; nothing is published that would give these constants for another GPU.

    Raises:
        HardwareError: no parts, a negative one, or another GPU.

    >>> print(likely({"HBM": 202.6}))
    bound 202.6 us, likely 259.2 us (HBM, 2.10 GHz)
    >>> print(likely({"matrix cores": 1000.0}))
    bound 1,000.0 us, likely 1,839.6 us (matrix cores, 1.22 GHz)
    """
    spec = spec or gpu("MI300X")
    if spec.name != "MI300X":
        raise HardwareError(f"{spec.name}: likely times are known for an MI300X; give gpu('MI300X')")
    parts = dict(time.parts if isinstance(time, ModelTime) else time)
    if matrix is None:
        matrix = time.matrix if isinstance(time, ModelTime) else parts.get("matrix cores", 0.0)
    if waits is None:
        waits = launches
    if not parts or not all(0 <= us < math.inf for us in (*parts.values(), matrix, launches, waits)):
        raise HardwareError(
            f"parts {parts}, matrix={matrix!r}, launches={launches!r}, waits={waits!r}: one part or more, none below 0"
        )
    peak = spec.flops["fp32"][1] / 1000
    reached = {part: us / _SHARES.get(part, 1) for part, us in parts.items()}
    busy = min(1.0, matrix / max(*reached.values(), matrix)) if matrix else 0.0  # share of the cycles
    slower = 1 - busy + busy * peak / LOADED_GHZ
    found = {part: us if part in _OWN_CLOCK else us * slower for part, us in reached.items()}
    bound = max((us for part, us in parts.items() if part != "waits"), default=0.0)
    return LikelyTime(found, bound, peak / slower, launches * LAUNCH_US + waits * WAIT_US)


_TILES = (16, 32, 64, 128, 192, 256)  # rows or columns of a tile of C, as libraries have them


def product_time(m: int, n: int, k: int, dtype: str, *, out_bytes: int = 2, spec: GpuSpec | None = None) -> ModelTime:
    """Return the bound of a product M x N x K by a good library, of which no code is known.

    The library takes the tile that wastes least in the last round; where there are fewer tiles than compute units, it
    splits K. Memory moves each matrix once.

    Args:
        dtype: of A and B: ``fp16``, ``bf16``, ``fp8`` or ``int8``.
        out_bytes: of a number of C.

    >>> print(likely(product_time(4096, 4864, 32896, "bf16")))  # AMD measured 1,851 us: 708 TFLOPS
    bound 1,002.5 us, likely 1,844.3 us (matrix cores, 1.22 GHz)
    """
    spec = spec or gpu("MI300X")
    size = {"fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}.get(dtype)
    if size is None or min(m, n, k) < 1:
        raise HardwareError(f"{m} x {n} x {k}, dtype={dtype!r}: sizes of 1 or more, of fp16, bf16, fp8 or int8")

    def tiles_of_the_fullest(rows: int, columns: int) -> float:
        tiles = math.ceil(m / rows) * math.ceil(n / columns)
        parts = min(16, k // 256) if tiles < spec.units else 1
        return min(math.ceil(tiles * s / spec.units) / s for s in range(1, max(1, parts) + 1)) * rows * columns

    fullest = min(tiles_of_the_fullest(rows, columns) for rows in _TILES for columns in _TILES)
    matrix = 2 * fullest * k * spec.units / spec.peak_tflops(dtype) / 1e6
    moved = size * (m * k + k * n) + out_bytes * m * n
    return ModelTime({"matrix cores": matrix, "HBM": moved / spec.bandwidth_tb_s / 1e6}, matrix=matrix)
