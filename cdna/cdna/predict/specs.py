# SPDX-License-Identifier: MIT
"""GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.

Peaks and bandwidths are the vendors' figures for dense arithmetic (no structured sparsity), the ceilings that a
measurement is held against.
Sources: "AMD GPU specifications", ROCm documentation, https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html;
AMD CDNA 2, CDNA 3 and CDNA 4 architecture white papers and the data sheets of the Instinct products;
NVIDIA's architecture white papers (A100, H100, Ada) and the data sheets of A100, H100, H200, L40S and HGX B200.
What an AMD compute unit holds stands in :mod:`cdna.arch`, once.

**Memory.** Vendors write "GB" and mean 2^30 bytes: the MI300X of "192 GB" has 192 GiB, which are 206 x 10^9 bytes.
``memory_gib`` is that figure; ``memory_bytes`` is what the driver lets a program have, a little less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdna.arch import ARCHS
from cdna.base import InputError

__all__ = ["GPUS", "GpuSpec", "HardwareError", "find_gpu", "gpu", "roofline"]


class HardwareError(InputError):
    """Unknown GPU, or a type that it has no arithmetic for."""


@dataclass(frozen=True)
class GpuSpec:
    """One GPU as its vendor specifies it.

    ``flops`` maps a type to (operations per unit per clock, clock in MHz); a unit is a compute unit (CU) or streaming
    multiprocessor (SM) and one multiply-add counts as two. Names: ``fp64``, ``fp32`` are the vector units;
    ``fp64-matrix``, ``fp32-matrix`` and all others the matrix units. Sizes say their unit in the name; ``lanes`` is
    the width of a wave (warp); ``max_waves`` is per SIMD; ``register_kib`` and ``lds_kib`` are per CU. ``devices`` says
    as how many devices PyTorch sees the GPU: an MI250X is two, each with half of everything. ``memory_gib`` is the data
    sheet's capacity (printed there as GB) and ``visible_mib`` what the driver shows of it, both of the whole package.
    ``links`` lead from one package to the other GPUs of a machine, each ``link_gb_s`` fast in one direction (10^9
    bytes); all of them to a switch where ``switched``, else each to another GPU. 0 where the table does not say.
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
    memory_gib: int
    bandwidth_tb_s: float
    flops: Mapping[str, tuple[int, int]]
    source: str
    aliases: tuple[str, ...] = field(default=())
    devices: int = 1
    visible_mib: int = 0
    links: int = 0
    link_gb_s: float = 0.0
    switched: bool = False

    @property
    def memory_bytes(self) -> int:
        """Bytes of the whole package that a program can have: the driver's figure, or the data sheet's without one.

        >>> round(gpu("MI300X").memory_bytes / 1e9, 1), round(gpu("MI300X").memory_bytes / 2**30, 2)
        (206.1, 191.98)
        """
        return self.visible_mib << 20 if self.visible_mib else self.memory_gib << 30

    def peak_tflops(self, dtype: str) -> float:
        """Return the dense peak in TFLOPS (TOPS for int8): units x operations per clock x clock.

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
        """Return the FLOPs per byte of memory traffic above which arithmetic, not memory, is the limit.

        >>> round(gpu("MI300X").ridge("bf16"))
        247
        """
        return self.peak_tflops(dtype) / self.bandwidth_tb_s

    def to_peers_gb_s(self, gpus: int) -> float:
        """Return the GB/s (10^9 bytes) that leave one of ``gpus`` GPUs of a machine for the others, all links at work.

        In a mesh only the links to GPUs that take part count.

        Raises:
            HardwareError: fewer than two GPUs, more than a machine links, or links that the table does not know.

        >>> x = gpu("MI300X")
        >>> x.to_peers_gb_s(8), x.to_peers_gb_s(2), gpu("H100").to_peers_gb_s(2)
        (448.0, 64.0, 450.0)
        """
        if not self.links:
            raise HardwareError(f"{self.name}: its links to other GPUs are not in the table")
        if gpus < 2 or (not self.switched and gpus - 1 > self.links):
            most = "more" if self.switched else f"{self.links + 1}"
            raise HardwareError(f"gpus={gpus}: the links of one machine join 2 to {most} {self.name}")
        return float(self.link_gb_s * (self.links if self.switched else gpus - 1))

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
_CDNA4, _CDNA4_2200 = (
    _rates(
        mhz, fp64=128, fp64_matrix=128, fp32=256, fp32_matrix=256, fp16=4096, bf16=4096, fp8=8192, int8=8192, fp4=16384
    )
    for mhz in (2400, 2200)
)
# The matrix units of an H100 SXM are specified at 1,830 MHz, everything else at 1,980 MHz.
_HOPPER = _rates(1980, fp64=128, fp64_matrix=256, fp32=256) | _rates(
    1830, tf32=2048, fp16=4096, bf16=4096, fp8=8192, int8=8192
)
_AMPERE = _rates(1410, fp64=64, fp64_matrix=128, fp32=128, tf32=1024, fp16=2048, bf16=2048, int8=4096)
# Vector units of a B200 at 1,965 MHz, matrix units at 1,850 MHz: the clocks that give NVIDIA's rounded peaks.
_BLACKWELL = _rates(1965, fp64=128, fp32=256) | _rates(
    1850, tf32=4096, fp16=8192, bf16=8192, fp8=16384, int8=16384, fp4=32768
)
_ADA = _rates(2520, fp32=256, tf32=512, fp16=1024, bf16=1024, fp8=2048, int8=2048)
# A GeForce card adds up 16-bit and FP8 products in fp32 at half of that rate.
_GEFORCE = _rates(2520, fp32=256, tf32=256, fp16=512, bf16=512, fp8=1024, int8=2048)
_SPECS = "ROCm documentation, AMD GPU specifications; AMD Instinct "


def _amd(name: str, arch: str, units: int, dies: int, l1: int, l2: int, l3: int, gib: int, tb_s: float,
         flops: Mapping[str, tuple[int, int]], devices: int = 1, link_gb_s: float = 0) -> GpuSpec:  # fmt: skip
    """Return the row of an AMD GPU, with seven xGMI links where ``link_gb_s`` is given.

    Its driver keeps 16 MiB of each device (amd-smi: 196,592 MiB of an MI300X).
    """
    cu = ARCHS[arch]
    registers = cu.vgpr_file * 4 * cu.wave_size * cu.simds_per_cu // 1024
    limits = (cu.simds_per_cu, cu.wave_size, cu.max_waves_per_simd, registers, cu.lds_bytes // 1024)
    source = f"{_SPECS}{name} data sheet"
    visible = (gib << 10) - 16 * devices
    links = (7 if link_gb_s else 0, link_gb_s)
    return GpuSpec(name, arch, units, dies, *limits, l1, l2, l3, gib, tb_s, flops, source, (), devices, visible, *links)


def _nvidia(name: str, arch: str, units: int, waves: int, lds: int, l1: int, l2: int, gib: int, visible: int,
            tb_s: float, flops: Mapping[str, tuple[int, int]], source: str, aliases: tuple[str, ...] = (),
            links: tuple[int, float] = (0, 0)) -> GpuSpec:  # fmt: skip
    """Return the row of an NVIDIA GPU: 4 partitions with warps of 32 and 64 KiB of registers each."""
    dies = 2 if name == "B200" else 1
    shape = (units, dies, 4, 32, waves, 256, lds, l1, l2, 0)
    # NVLink leads to switches in the machines that these cards are sold in.
    return GpuSpec(name, arch, *shape, gib, tb_s, flops, source, aliases, 1, visible, *links, bool(links[0]))


_X, _MI250X, _MI355X = ARCHS["gfx942"], ARCHS["gfx90a"], ARCHS["gfx950"]

#: The GPUs of common use by name. MiB that the driver shows: H100 and H200 as measured in
#: benchmarks/results/fit_measured.jsonl; the other NVIDIA cards as torch reports their capacity in its own messages.
GPUS: Mapping[str, GpuSpec] = {
    spec.name: spec
    for spec in (
        _amd("MI300X", "gfx942", _X.cus, _X.xcds, 32, 32, 256, _X.memory_bytes >> 30, 5.3, _CDNA3, link_gb_s=64),
        _amd("MI300A", "gfx942", 228, 6, 32, 24, 256, 128, 5.3, _CDNA3),
        _amd("MI325X", "gfx942", _X.cus, _X.xcds, 32, 32, 256, 256, 6.0, _CDNA3, link_gb_s=64),
        _amd("MI250X", "gfx90a", 2 * _MI250X.cus, 2, 16, 16, 0, _MI250X.memory_bytes >> 29, 3.2768, _CDNA2, devices=2),
        _amd("MI250", "gfx90a", 208, 2, 16, 16, 0, 128, 3.2768, _CDNA2, devices=2),
        _amd("MI210", "gfx90a", 104, 1, 16, 8, 0, 64, 1.6384, _CDNA2),
        _amd("MI350X", "gfx950", _MI355X.cus, _MI355X.xcds, 32, 32, 256, 288, 8.0, _CDNA4_2200, link_gb_s=76.8),
        _amd("MI355X", "gfx950", _MI355X.cus, _MI355X.xcds, 32, 32, 256, _MI355X.memory_bytes >> 30, 8.0, _CDNA4,
             link_gb_s=76.8),
        _nvidia("A100-40GB", "sm_80", 108, 16, 164, 192, 40, 40, 40335, 1.555, _AMPERE,
                "NVIDIA A100 Tensor Core GPU data sheet (SXM4)", ("NVIDIA A100-SXM4-40GB",), (12, 25)),
        _nvidia("A100-80GB", "sm_80", 108, 16, 164, 192, 40, 80, 81050, 2.039, _AMPERE,
                "NVIDIA A100 Tensor Core GPU data sheet (SXM4)", ("NVIDIA A100-SXM4-80GB", "A100"), (12, 25)),
        _nvidia("H100", "sm_90", 132, 16, 228, 256, 50, 80, 81079, 3.35, _HOPPER,
                "NVIDIA H100 Tensor Core GPU Architecture (SXM5)", ("NVIDIA H100 80GB HBM3", "H100-80GB"), (18, 25)),
        _nvidia("H200", "sm_90", 132, 16, 228, 256, 50, 141, 143155, 4.8, _HOPPER,
                "NVIDIA H200 Tensor Core GPU data sheet (SXM)", links=(18, 25)),
        _nvidia("B200", "sm_100", 148, 16, 228, 256, 126, 180, 182630, 7.7, _BLACKWELL, "NVIDIA HGX B200 data sheet",
                links=(18, 50)),
        _nvidia("L40S", "sm_89", 142, 12, 100, 128, 96, 48, 45456, 0.864, _ADA, "NVIDIA L40S data sheet"),
        _nvidia("RTX4090", "sm_89", 128, 12, 100, 128, 72, 24, 24207, 1.008, _GEFORCE,
                "NVIDIA Ada GPU Architecture, appendix A", ("NVIDIA GeForce RTX 4090", "RTX 4090", "4090")),
    )
}  # fmt: skip


def gpu(name: str) -> GpuSpec:
    """Return the specification of a GPU by its short name, for example ``"MI300X"``, in any case of letters.

    Raises:
        HardwareError: not one of :data:`GPUS`.

    >>> gpu("MI300X").units, gpu("mi300x").dies, gpu("rtx 4090").memory_gib
    (304, 8, 24)
    """
    wanted = _plain(name)
    for spec in GPUS.values():
        if wanted in map(_plain, (spec.name, *spec.aliases)):
            return spec
    raise HardwareError(f"gpu={name}: not in the table; it has {', '.join(GPUS)}")


def _plain(name: str) -> str:
    return "".join(letter for letter in str(name).upper() if letter.isalnum())


def find_gpu(device_name: str) -> GpuSpec | None:
    """Return the specification for a device's own name (``torch.cuda.get_device_name()``), or None when it is not
    known.

    >>> find_gpu("AMD Instinct MI300X OAM").name, find_gpu("NVIDIA H100 80GB HBM3").memory_gib
    ('MI300X', 80)
    >>> find_gpu("NVIDIA H100 PCIe") is None  # another chip clock and memory than the SXM part in the table
    True
    """
    upper = device_name.upper()
    if "PCIE" in upper or "NVL" in upper:
        return None
    if exact := [spec for spec in GPUS.values() if device_name in spec.aliases]:
        return exact[0]
    words = upper.replace("-", " ").split()
    return next((spec for name, spec in GPUS.items() if name in words), None)


def roofline(spec: GpuSpec, dtype: str, intensity: float) -> float:
    """Return the attainable TFLOPS at ``intensity`` FLOPs per byte of memory traffic: min(peak, intensity x bandwidth).

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
