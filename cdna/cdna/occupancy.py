# SPDX-License-Identifier: MIT
"""Occupancy: how many waves of a kernel a compute unit can hold, what stops one more, and what would admit it.

A CU of MI300X has four SIMDs with eight wave slots each. A workgroup starts on a CU only when all of its waves find a
slot, registers and LDS there, so occupancy is counted in whole workgroups and only then turned into waves.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdna.arch import Arch, find_arch
from cdna.base import InputError

__all__ = ["Occupancy", "OccupancyError", "WavesPerEuAdvice", "occupancy", "vgpr_steps", "waves_per_eu_advice"]


class OccupancyError(InputError):
    """A register count, LDS size or workgroup size that no kernel can have."""


@dataclass(frozen=True)
class Occupancy:
    """Workgroups and waves that fit on one CU at once.

    Attributes:
        vgprs: registers per lane after rounding up to the granule (``sgprs``, ``lds`` likewise; LDS in bytes).
        workgroups_per_cu: whole workgroups resident on a CU; 0 means that the kernel cannot start at all.
        waves_per_cu: ``workgroups_per_cu * waves_per_workgroup``.
        waves_per_simd: ``waves_per_cu / 4``, the figure that guides call occupancy. A fraction when a CU's waves do
            not spread evenly over its SIMDs.
        workgroups_by: for each resource, the workgroups per CU that it alone would admit.
        limited_by: the resources that admit the fewest, so the ones to save. ``("waves",)`` alone is full occupancy.
        next_vgprs: the largest VGPR count that admits another workgroup, everything else equal; None if no count does.
        next_lds: the same for LDS bytes per workgroup.
    """

    arch: str
    vgprs: int
    sgprs: int
    lds: int
    waves_per_workgroup: int
    workgroups_per_cu: int
    waves_per_cu: int
    waves_per_simd: float
    workgroups_by: dict[str, int]
    limited_by: tuple[str, ...]
    next_vgprs: int | None
    next_lds: int | None

    @property
    def fits(self) -> bool:
        """Return whether even one workgroup fits."""
        return self.workgroups_per_cu > 0

    @property
    def llvm_figure(self) -> int:
        """Return what LLVM prints as ``; Occupancy`` for these amounts: waves, without the rule of whole workgroups.

        72 VGPRs leave room for 7 waves per SIMD, but workgroups of 8 waves bring 2 to each, so 6 are really there.
        """
        a = find_arch(self.arch)
        registers = min(a.vgpr_file // self.vgprs, a.sgpr_file // (self.sgprs + a.sgpr_trap), a.max_waves_per_simd)
        groups = min(n for name, n in self.workgroups_by.items() if name not in ("vgpr", "sgpr"))
        return min(registers, -(-groups * self.waves_per_workgroup // a.simds_per_cu))


def allocate(amount: int, granule: int) -> int:
    """Return what the hardware hands out when ``amount`` is asked for: the next multiple of ``granule``.

    >>> allocate(170, 8), allocate(168, 8), allocate(1, 512), allocate(0, 512)
    (176, 168, 512, 0)
    """
    return -(-amount // granule) * granule


def max_vgprs_for_waves(waves: int, arch: str = "gfx942") -> int:
    """Return the most VGPRs (ordinary + accumulation) a kernel may have so that ``waves`` waves fit on a SIMD.

    Raises:
        OccupancyError: ``waves`` is outside 1 to the wave slots of a SIMD (8).

    >>> [max_vgprs_for_waves(n) for n in range(1, 9)]
    [512, 256, 168, 128, 96, 80, 72, 64]
    """
    a = find_arch(arch)
    if not 1 <= waves <= a.max_waves_per_simd:
        raise OccupancyError(f"waves={waves}: a SIMD of {a.name} holds 1 to {a.max_waves_per_simd} waves")
    return a.vgpr_file // waves // a.vgpr_granule * a.vgpr_granule


def vgpr_steps(arch: str = "gfx942") -> list[tuple[int, int]]:
    """Return the staircase as ``(most VGPRs, waves per SIMD)``, from full occupancy down to one wave.

    >>> vgpr_steps()
    [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (512, 1)]
    """
    return [(max_vgprs_for_waves(n, arch), n) for n in range(find_arch(arch).max_waves_per_simd, 0, -1)]


def _workgroups(a: Arch, vgprs: int, sgprs: int, lds: int, waves: int) -> dict[str, int]:
    """Return the workgroups per CU that each resource admits, for amounts that are already rounded to granules."""

    def per_cu(waves_per_simd: int) -> int:
        return min(waves_per_simd, a.max_waves_per_simd) * a.simds_per_cu // waves

    admitted = {
        "vgpr": per_cu(a.vgpr_file // vgprs),
        "sgpr": per_cu(a.sgpr_file // (sgprs + a.sgpr_trap)),
        "waves": a.max_waves_per_cu // waves,
    }
    if lds:
        admitted["lds"] = a.lds_bytes // lds
    if waves > 1:
        admitted["barriers"] = a.max_barriers_per_cu
    if waves * a.wave_size > a.max_threads_per_workgroup:
        admitted["threads"] = 0
    return admitted


def occupancy(
    vgprs: int, lds: int = 0, *, waves_per_workgroup: int = 4, sgprs: int = 0, arch: str = "gfx942"
) -> Occupancy:
    """Return the occupancy of a kernel from what it allocates.

    Args:
        vgprs: registers per lane from the kernel descriptor, ordinary and accumulation together: 1 to 512. Take what
            the descriptor *allocates*; with ``waves_per_eu=n`` that is more than the code uses.
        lds: bytes per workgroup, static and dynamic together. Triton's LDS is all dynamic: ``metadata.shared``.
        waves_per_workgroup: Triton's ``num_warps``; for HIP, threads per block / 64 rounded up.
        sgprs: scalar registers per wave, 0 to 112.
        arch: a name in :data:`cdna.arch.ARCHS`.

    Raises:
        OccupancyError: a count outside what the hardware can express. Too much LDS and too many threads are not
            errors here: the answer is then 0 workgroups.

    Source: LLVM's AMDGPU backend (granules, barrier units) and the occupancy section of AMD's "Optimizing Triton
    kernels" (https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html).

    A kernel at 170 registers is rounded up to 176, and three times 176 is more than 512; 168 would do:

    >>> o = occupancy(170, lds=16_384)
    >>> o.vgprs, o.waves_per_simd, o.limited_by, o.next_vgprs
    (176, 2.0, ('vgpr',), 168)
    >>> occupancy(168, lds=16_384).waves_per_simd
    3.0
    """
    a = find_arch(arch)
    for label, value, low, high in (
        ("vgprs", vgprs, 1, a.vgpr_file),
        ("sgprs", sgprs, 0, 112),
        ("lds", lds, 0, 1 << 30),
        ("waves_per_workgroup", waves_per_workgroup, 1, 64),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise OccupancyError(f"{label}={value!r}: give a whole number from {low:,} to {high:,} ({a.name})")
    waves = waves_per_workgroup
    v = allocate(vgprs, a.vgpr_granule)
    s = allocate(max(sgprs, 1), a.sgpr_granule)
    mem = allocate(lds, a.lds_granule)
    by = _workgroups(a, v, s, mem, waves)
    groups = min(by.values())

    next_vgprs = next_lds = None
    if all(n > groups for name, n in by.items() if name != "vgpr"):
        # The first whole number of waves per SIMD at which one more workgroup has room.
        need = -(-(groups + 1) * waves // a.simds_per_cu)
        if need <= a.max_waves_per_simd:
            next_vgprs = max_vgprs_for_waves(need, arch)
    if all(n > groups for name, n in by.items() if name != "lds"):
        next_lds = a.lds_bytes // (groups + 1) // a.lds_granule * a.lds_granule
    return Occupancy(
        arch=a.name,
        vgprs=v,
        sgprs=s,
        lds=mem,
        waves_per_workgroup=waves,
        workgroups_per_cu=groups,
        waves_per_cu=groups * waves,
        waves_per_simd=groups * waves / a.simds_per_cu,
        workgroups_by=by,
        limited_by=("waves",) if groups == by["waves"] else tuple(k for k, n in by.items() if n == groups),
        next_vgprs=next_vgprs,
        next_lds=next_lds,
    )


@dataclass(frozen=True)
class WavesPerEuAdvice:
    """Advice whether to set ``waves_per_eu``, to what, and why (one sentence that names the numbers)."""

    helps: bool
    value: int | None
    reason: str


def waves_per_eu_advice(occ: Occupancy, vgprs_used: int, *, sgprs_used: int = 0, within: int = 16) -> WavesPerEuAdvice:
    """Say whether the ``waves_per_eu`` hint can gain a workgroup for this kernel.

    The hint makes the register allocator aim at ``n`` waves per SIMD. It helps when registers alone limit occupancy
    and only a few are too many; far above the boundary the allocator spills to memory instead. And the hint also caps:
    LLVM pads the allocation so that no more than ``n`` waves fit, which this function recognises.

    Args:
        occ: from :func:`occupancy`, computed with the registers that the descriptor allocates.
        vgprs_used: the registers that the code really uses (``.vgpr_count``, or ``TotalNumVgprs`` in the assembly).
        sgprs_used: the same for scalar registers, which the hint pads as well.
        within: how many registers above the boundary still count as "a few"; two granules unless told otherwise.

    >>> waves_per_eu_advice(occupancy(170), 170).value
    3
    >>> waves_per_eu_advice(occupancy(250), 250).helps
    False
    """
    a = find_arch(occ.arch)
    used = allocate(max(vgprs_used, 1), a.vgpr_granule)
    if used < occ.vgprs:
        free = occupancy(used, occ.lds, waves_per_workgroup=occ.waves_per_workgroup, sgprs=sgprs_used, arch=occ.arch)
        if free.workgroups_per_cu > occ.workgroups_per_cu:
            reason = (
                f"the code uses {vgprs_used} VGPRs but {occ.vgprs} are allocated: waves_per_eu pads them and caps the "
                f"kernel at {occ.waves_per_simd:g} waves per SIMD where {free.waves_per_simd:g} would fit"
            )
            return WavesPerEuAdvice(True, int(free.waves_per_simd) or 1, reason)
    if occ.next_vgprs is None:
        return WavesPerEuAdvice(
            False, None, f"occupancy is limited by {' and '.join(occ.limited_by)}, not by VGPRs alone"
        )
    target = a.vgpr_file // occ.next_vgprs
    excess = vgprs_used - occ.next_vgprs
    text = f"{vgprs_used} VGPRs are {excess} above {occ.next_vgprs}, the most that admit {target} waves per SIMD"
    if excess <= within:
        return WavesPerEuAdvice(True, target, f"{text}: try waves_per_eu={target} and look for spills")
    return WavesPerEuAdvice(False, target, f"{text}: too far for a hint, use a smaller tile or more warps")
