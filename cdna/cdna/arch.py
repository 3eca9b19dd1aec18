# SPDX-License-Identifier: MIT
"""The limits of a compute unit (CU) as data, one row per architecture that we compile for.

Everything else in ``mi300x`` takes its numbers from here, so a new architecture is a new row.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdna.base import InputError

__all__ = ["ARCHS", "Arch", "ArchError", "find_arch"]


class ArchError(InputError):
    """An architecture that is not in :data:`ARCHS`."""


@dataclass(frozen=True)
class Arch:
    """Resources of one GPU of this architecture, per SIMD, per CU and in total.

    Registers are counted per lane (one lane = one thread), as the compiler prints them. ``memory_bytes`` is the
    capacity of the HBM, 192 x 2^30 for an MI300X, which data sheets print as 192 GB; ``cdna.predict.specs``
    takes its AMD rows from here.
    ``capability`` is what ``torch.cuda.get_device_capability`` answers on a ROCm build.
    ``vgpr_file`` is unified: ordinary and accumulation registers (VGPR and AGPR) come out of the same 512.

    Source: AMD CDNA 2 / CDNA 3 / CDNA 4 instruction set guides, section "Kernel state", and LLVM's "User Guide for
    AMDGPU Backend" (https://llvm.org/docs/AMDGPUUsage.html, kernel descriptor: granulated register counts).
    """

    name: str
    gpu: str
    cus: int
    xcds: int
    memory_bytes: int
    capability: tuple[int, int]
    simds_per_cu: int = 4
    wave_size: int = 64
    max_waves_per_simd: int = 8
    vgpr_file: int = 512
    vgpr_granule: int = 8
    sgpr_file: int = 800
    sgpr_granule: int = 16
    # ROCm always installs a trap handler, and the hardware then gives every wave 16 more scalar registers for it.
    sgpr_trap: int = 16
    lds_bytes: int = 65_536
    lds_granule: int = 512
    # A workgroup of one wave needs no barrier, so only larger ones are limited by the CU's 16 barrier units.
    max_barriers_per_cu: int = 16
    max_threads_per_workgroup: int = 1_024

    @property
    def max_waves_per_cu(self) -> int:
        """Waves that one CU can hold: 32 on all three architectures."""
        return self.simds_per_cu * self.max_waves_per_simd


ARCHS: dict[str, Arch] = {
    "gfx90a": Arch("gfx90a", "MI250X (one of its two dies)", cus=110, xcds=1, memory_bytes=64 << 30, capability=(9, 0)),
    "gfx942": Arch("gfx942", "MI300X", cus=304, xcds=8, memory_bytes=192 << 30, capability=(9, 4)),
    "gfx950": Arch(
        "gfx950",
        "MI355X",
        cus=256,
        xcds=8,
        memory_bytes=288 << 30,
        capability=(9, 5),
        lds_bytes=163_840,
        lds_granule=1_280,
    ),
}


def find_arch(name: str) -> Arch:
    """Return the row for ``name``, which may carry target features as ROCm prints them (``gfx942:sramecc+:xnack-``).

    Raises:
        ArchError: the architecture is not one that we have checked figures for.

    >>> find_arch("gfx942").cus, find_arch("gfx942:sramecc+:xnack-").max_waves_per_cu
    (304, 32)
    """
    arch = ARCHS.get(str(name).split(":")[0])
    if arch is None:
        raise ArchError(f"arch={name!r}: no limits known for it; use one of {', '.join(ARCHS)}")
    return arch
