# SPDX-License-Identifier: MIT
"""GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.

Nothing here is measured: these are the vendors' figures for dense arithmetic (no structured sparsity), the ceilings
that a measurement is held against. Introduced in notebook 13 (mi300x_architecture).
Sources: "AMD GPU specifications", ROCm documentation, https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html;
AMD CDNA 2, CDNA 3 and CDNA 4 architecture white papers and the data sheets of the Instinct products;
"NVIDIA H100 Tensor Core GPU Architecture" white paper and the H200 data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocm_guide.base import GuideError

__all__ = ["GPUS", "GpuSpec", "HardwareError", "find_gpu", "gpu", "roofline"]


class HardwareError(GuideError):
    """Unknown GPU, or a type that it has no arithmetic for."""


@dataclass(frozen=True)
class GpuSpec:
    """One GPU as its vendor specifies it.

    ``flops`` maps a type to (operations per unit per clock, clock in MHz); a unit is a compute unit (CU) or streaming
    multiprocessor (SM) and one multiply-add counts as two. Names: ``fp64``, ``fp32`` are the vector units;
    ``fp64-matrix``, ``fp32-matrix`` and all others the matrix units. Sizes say their unit in the name; ``lanes`` is
    the width of a wave (warp); ``max_waves`` is per SIMD; ``register_kib`` and ``lds_kib`` are per CU. ``devices`` says
    as how many devices PyTorch sees the GPU: an MI250X is two, each with half of everything.
    """

    name: str
    arch: str
    units: int
    dies: int
    simds: int
    lanes: int
    max_waves: int
    register_kib: int
    lds_kib: int
    l1_kib: int
    l2_mib: float
    l3_mib: int
    memory_gb: int
    bandwidth_tb_s: float
    flops: Mapping[str, tuple[int, int]]
    source: str
    aliases: tuple[str, ...] = field(default=())
    devices: int = 1

    def peak_tflops(self, dtype: str) -> float:
        """Dense peak in TFLOPS (TOPS for int8): units x operations per clock x clock.

        Raises:
            HardwareError: the GPU has no unit for ``dtype``.

        >>> round(gpu("MI300X").peak_tflops("bf16"), 1)
        1307.4
        """
        if dtype not in self.flops:
            raise HardwareError(f"dtype={dtype}: the {self.name} has no unit for it; it has {', '.join(self.flops)}")
        per_clock, mhz = self.flops[dtype]
        return self.units * per_clock * mhz / 1e6

    def ridge(self, dtype: str) -> float:
        """FLOPs per byte of memory traffic above which arithmetic, not memory, is the limit.

        >>> round(gpu("MI300X").ridge("bf16"))
        247
        """
        return self.peak_tflops(dtype) / self.bandwidth_tb_s

    @property
    def waves(self) -> int:
        """Waves that the whole GPU can hold at once."""
        return self.units * self.simds * self.max_waves

    @property
    def threads(self) -> int:
        """Threads that the whole GPU can hold at once.

        >>> gpu("MI300X").threads
        622592
        """
        return self.waves * self.lanes


def _rates(mhz: int, **per_clock: int) -> dict[str, tuple[int, int]]:
    return {name.replace("_", "-"): (n, mhz) for name, n in per_clock.items()}


_CDNA3 = _rates(
    2100, fp64=128, fp64_matrix=256, fp32=256, fp32_matrix=256, tf32=1024, fp16=2048, bf16=2048, fp8=4096, int8=4096
)
_CDNA2 = _rates(1700, fp64=128, fp64_matrix=256, fp32=128, fp32_matrix=256, fp16=1024, bf16=1024, int8=1024)
_CDNA4 = _rates(
    2400, fp64=128, fp64_matrix=128, fp32=256, fp32_matrix=256, fp16=4096, bf16=4096, fp8=8192, int8=8192, fp4=16384
)
# The matrix units of an H100 SXM are specified at 1,830 MHz, everything else at 1,980 MHz.
_HOPPER = _rates(1980, fp64=128, fp64_matrix=256, fp32=256) | _rates(
    1830, tf32=2048, fp16=4096, bf16=4096, fp8=8192, int8=8192
)
_AMD = {"lanes": 64, "simds": 4, "max_waves": 8, "register_kib": 512}
_NVIDIA = {"lanes": 32, "simds": 4, "max_waves": 16, "register_kib": 256}
_SPECS = "ROCm documentation, AMD GPU specifications; "

#: The GPUs of the course by name.
GPUS: Mapping[str, GpuSpec] = {
    spec.name: spec
    for spec in (
        GpuSpec("MI300X", "gfx942", 304, 8, **_AMD, lds_kib=64, l1_kib=32, l2_mib=32, l3_mib=256, memory_gb=192,
                bandwidth_tb_s=5.3, flops=_CDNA3, source=_SPECS + "AMD Instinct MI300X data sheet"),
        GpuSpec("MI300A", "gfx942", 228, 6, **_AMD, lds_kib=64, l1_kib=32, l2_mib=24, l3_mib=256, memory_gb=128,
                bandwidth_tb_s=5.3, flops=_CDNA3, source=_SPECS + "AMD Instinct MI300A data sheet"),
        GpuSpec("MI325X", "gfx942", 304, 8, **_AMD, lds_kib=64, l1_kib=32, l2_mib=32, l3_mib=256, memory_gb=256,
                bandwidth_tb_s=6.0, flops=_CDNA3, source=_SPECS + "AMD Instinct MI325X data sheet"),
        GpuSpec("MI250X", "gfx90a", 220, 2, **_AMD, lds_kib=64, l1_kib=16, l2_mib=16, l3_mib=0, memory_gb=128,
                bandwidth_tb_s=3.2768, flops=_CDNA2, source=_SPECS + "AMD Instinct MI250X data sheet", devices=2),
        GpuSpec("MI355X", "gfx950", 256, 8, **_AMD, lds_kib=160, l1_kib=32, l2_mib=32, l3_mib=256, memory_gb=288,
                bandwidth_tb_s=8.0, flops=_CDNA4, source=_SPECS + "AMD Instinct MI355X data sheet"),
        GpuSpec("H100", "sm_90", 132, 1, **_NVIDIA, lds_kib=228, l1_kib=256, l2_mib=50, l3_mib=0, memory_gb=80,
                bandwidth_tb_s=3.35, flops=_HOPPER, source="NVIDIA H100 Tensor Core GPU Architecture (SXM5)",
                aliases=("NVIDIA H100 80GB HBM3",)),
        GpuSpec("H200", "sm_90", 132, 1, **_NVIDIA, lds_kib=228, l1_kib=256, l2_mib=50, l3_mib=0, memory_gb=141,
                bandwidth_tb_s=4.8, flops=_HOPPER, source="NVIDIA H200 Tensor Core GPU data sheet (SXM)"),
    )
}  # fmt: skip


def gpu(name: str) -> GpuSpec:
    """The specification of a GPU by its short name, for example ``"MI300X"``.

    Raises:
        HardwareError: not one of :data:`GPUS`.

    >>> gpu("MI300X").units, gpu("MI300X").dies
    (304, 8)
    """
    if name not in GPUS:
        raise HardwareError(f"gpu={name}: not in the table; it has {', '.join(GPUS)}")
    return GPUS[name]


def find_gpu(device_name: str) -> GpuSpec | None:
    """The specification for a device's own name (``torch.cuda.get_device_name()``), or None when it is not known.

    >>> find_gpu("AMD Instinct MI300X OAM").name, find_gpu("NVIDIA H100 80GB HBM3").memory_gb
    ('MI300X', 80)
    >>> find_gpu("NVIDIA H100 PCIe") is None  # another chip clock and memory than the SXM part in the table
    True
    """
    upper = device_name.upper()
    if "PCIE" in upper or "NVL" in upper:
        return None
    return next((spec for name, spec in GPUS.items() if name in upper or device_name in spec.aliases), None)


def roofline(spec: GpuSpec, dtype: str, intensity: float) -> float:
    """Attainable TFLOPS at ``intensity`` FLOPs per byte of memory traffic: min(peak, intensity x bandwidth).

    Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009.

    Raises:
        HardwareError: no unit for ``dtype``, or a negative intensity.

    >>> x = gpu("MI300X")
    >>> roofline(x, "bf16", 1.0), round(roofline(x, "bf16", 1000.0), 1)
    (5.3, 1307.4)
    """
    if not intensity >= 0:
        raise HardwareError(f"intensity={intensity}: FLOPs per byte cannot be negative")
    return min(spec.peak_tflops(dtype), intensity * spec.bandwidth_tb_s)
