# SPDX-License-Identifier: MIT
"""Occupancy against a hardware table written out by hand, over its whole domain, and against LLVM's own figure."""

import math
import re
from importlib.metadata import version

import numpy as np
import pytest

from cdna.arch import ARCHS, ArchError, find_arch
from cdna.compile import triton_release
from cdna.occupancy import (
    OccupancyError,
    allocate,
    max_vgprs_for_waves,
    occupancy,
    vgpr_steps,
    waves_per_eu_advice,
)

# Registers per lane -> waves per SIMD, for a unified file of 512 handed out in eights. Written out, not computed.
VGPR_TABLE = [
    (1, 64, 8),
    (65, 72, 7),
    (73, 80, 6),
    (81, 96, 5),
    (97, 128, 4),
    (129, 168, 3),
    (169, 256, 2),
    (257, 512, 1),
]
# gfx942: bytes of LDS per workgroup -> workgroups in 65,536 bytes handed out in 512s, for 16 workgroups and fewer.
LDS_TABLE = [
    (1, 4_096, 16),
    (4_097, 4_608, 14),
    (4_609, 5_120, 12),
    (5_121, 5_632, 11),
    (5_633, 6_144, 10),
    (6_145, 7_168, 9),
    (7_169, 8_192, 8),
    (8_193, 9_216, 7),
    (9_217, 10_752, 6),
    (10_753, 12_800, 5),
    (12_801, 16_384, 4),
    (16_385, 21_504, 3),
    (21_505, 32_768, 2),
    (32_769, 65_536, 1),
]
WAVES = (1, 2, 4, 8, 16)
LLVM_IS_NEW = tuple(int(n) for n in version("triton").split(".")[:2]) >= (3, 9)


def hardware_table(waves: int) -> np.ndarray:
    """Workgroups per CU for VGPRs 1..512 (rows) and LDS 0..65,536 (columns), from the two tables above."""
    per_simd = np.zeros(513, int)
    for low, high, n in VGPR_TABLE:
        per_simd[low : high + 1] = n
    by_vgpr = per_simd * 4 // waves
    slots = 32 if waves == 1 else min(16, 32 // waves)
    by_lds = np.full(65_537, slots)
    for low, high, n in LDS_TABLE:
        by_lds[low : high + 1] = np.minimum(by_lds[low : high + 1], n)
    if waves == 1:  # up to 32 workgroups: the LDS table above stops at 16, so the small sizes are listed here
        for low, high, n in [(0, 2_048, 32), (2_049, 2_560, 25), (2_561, 3_072, 21), (3_073, 3_584, 18)]:
            by_lds[low : high + 1] = n
        by_lds[3_585:4_097] = 16
    return np.minimum(by_vgpr[1:, None], by_lds[None, :])


@pytest.mark.parametrize("waves", WAVES)
def test_every_vgpr_and_lds_count_equals_the_hardware_table(waves):
    """33.6 million pairs per workgroup size.

    ``occupancy`` depends on its arguments only through their rounded values, which it returns. So it is evaluated for
    every argument alone (which proves the rounding over the whole domain) and for every pair of rounded values, and
    the full table follows by indexing.
    """
    vgprs = np.array([occupancy(v, waves_per_workgroup=waves).vgprs for v in range(1, 513)])
    lds = np.array([occupancy(8, size, waves_per_workgroup=waves).lds for size in range(65_537)])
    steps_v, row = np.unique(vgprs, return_inverse=True)
    steps_l, column = np.unique(lds, return_inverse=True)
    assert len(steps_v) == 64 and len(steps_l) == 129
    groups = np.array(
        [[occupancy(int(v), int(m), waves_per_workgroup=waves).workgroups_per_cu for m in steps_l] for v in steps_v]
    )
    assert np.array_equal(groups[row][:, column], hardware_table(waves))
    # The argument above rests on the rounding being all that matters: check unrounded pairs directly as well.
    rng = np.random.default_rng(waves)
    table = hardware_table(waves)
    for v, m in zip(rng.integers(1, 513, 2000), rng.integers(0, 65_537, 2000), strict=True):
        o = occupancy(int(v), int(m), waves_per_workgroup=waves)
        assert o.workgroups_per_cu == table[v - 1, m], (v, m)
        assert o.waves_per_simd == o.workgroups_per_cu * waves / 4


def test_the_hardware_tables_are_complete():
    assert {v for low, high, _ in VGPR_TABLE for v in range(low, high + 1)} == set(range(1, 513))
    assert {v for low, high, _ in LDS_TABLE for v in range(low, high + 1)} == set(range(1, 65_537))


@pytest.mark.parametrize("waves", WAVES)
def test_next_steps_gain_and_nothing_smaller_does(waves):
    def groups(v, lds):
        return occupancy(v, lds, waves_per_workgroup=waves).workgroups_per_cu

    for v in range(8, 513, 16):
        for lds in (0, 3_000, 9_000, 20_000, 65_536):
            o = occupancy(v, lds, waves_per_workgroup=waves)
            assert o.next_vgprs == max((n for n in range(1, v) if groups(n, lds) > o.workgroups_per_cu), default=None)
            gains = [n for n in range(0, lds, 256) if groups(v, n) > o.workgroups_per_cu]
            assert (o.next_lds is None) == (not gains), (v, lds)
            assert not gains or (max(gains) == o.next_lds // 256 * 256 and o.next_lds < lds)


# ---------------------------------------------------------------- LLVM's own figure


def llvm_assembly(ir: str, arch: str) -> str:
    """Assembly from LLVM IR through the code generator of the installed Triton."""
    compiler = pytest.importorskip("triton.backends.amd.compiler")
    if hasattr(compiler, "compile_amdgpu"):
        return compiler.compile_amdgpu(
            ir,
            compiler.get_amd_codegen_target_triple(arch),
            arch,
            "",
            flags=[],
            enable_fp_fusion=True,
            disable_optimization=False,
            canonicalize_gep=False,
            disabled_passes="",
            dump_ir=False,
            enable_timing=False,
        )
    from triton._C.libtriton import llvm

    llvm.init_targets()
    more = [False] if triton_release() == (3, 8) else []
    return llvm.translate_to_asm(ir, "amdgcn-amd-amdhsa", arch, "", [], True, False, *more)


def ir_kernel(name: str, vgprs: int, lds: int, threads: int, sgprs: int = 0) -> str:
    """A kernel that touches register ``vgprs - 1`` (accumulation registers above 256) and has ``lds`` static bytes."""
    clobber = f"~{{v{vgprs - 1}}}" if vgprs <= 256 else f"~{{v255}},~{{a{vgprs - 257}}}"
    clobber += f",~{{s{sgprs - 1}}}" if sgprs else ""
    array = f"@l{name} = internal addrspace(3) global [{lds} x i8] poison, align 1\n" if lds else ""
    touch = f"store volatile i8 0, ptr addrspace(3) @l{name}\n" if lds else ""
    attribute = f'"amdgpu-flat-work-group-size"="{threads},{threads}"'
    return (
        f"{array}define amdgpu_kernel void @{name}() {attribute} {{\n"
        f'call void asm sideeffect "; touch", "{clobber}"()\n{touch}ret void }}\n'
    )


def figures(text: str, label: str) -> list[int]:
    return [int(n) for n in re.findall(rf"^; {label}: (\d+)", text, re.M)]


@pytest.mark.parametrize("arch", ARCHS)
def test_llvm_agrees_for_every_vgpr_count(arch):
    text = llvm_assembly("".join(ir_kernel(f"k{v}", v, 0, 256) for v in range(1, 513)), arch)
    assert figures(text, "TotalNumVgprs") == list(range(1, 513))
    assert figures(text, "Occupancy") == [occupancy(v, arch=arch).waves_per_simd for v in range(1, 513)]
    assert figures(text, "Occupancy") == [occupancy(v, arch=arch).llvm_figure for v in range(1, 513)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("threads", [64, 128, 256, 512, 1024])
def test_llvm_agrees_for_static_lds(arch, threads):
    granule, total = find_arch(arch).lds_granule, find_arch(arch).lds_bytes
    # LLVM before triton 3.9 did not round LDS up to the granule, so there only whole granules can be compared.
    odd = granule // 3 if LLVM_IS_NEW else 0
    sizes = [size for n in range(granule, total + 1, granule) for size in (n - odd, n)]
    text = llvm_assembly("".join(ir_kernel(f"k{i}", 24, size, threads) for i, size in enumerate(sizes)), arch)
    assert figures(text, "LDSByteSize") == sizes
    ours = [math.ceil(occupancy(24, n, waves_per_workgroup=threads // 64, arch=arch).waves_per_simd) for n in sizes]
    assert figures(text, "Occupancy") == ours


def test_llvm_agrees_for_sgprs():
    if not LLVM_IS_NEW:
        pytest.skip("LLVM before triton 3.9 left out the 16 scalar registers of the trap handler")
    text = llvm_assembly("".join(ir_kernel(f"k{s}", 8, 0, 256, sgprs=s) for s in range(1, 100)), "gfx942")
    counts = figures(text, "TotalNumSgprs")
    assert max(counts) >= 104
    assert figures(text, "Occupancy") == [occupancy(8, sgprs=n).waves_per_simd for n in counts]


# ---------------------------------------------------------------- smaller claims


def test_the_documents_formula():
    """S0's step 6, for workgroups that LDS and registers alone limit (facts.md: LDS 0 must not divide)."""
    per_simd = {v: n for low, high, n in VGPR_TABLE for v in range(low, high + 1)}
    for v in range(8, 513, 8):
        for lds in (4_608, 8_192, 16_384, 32_768, 65_536):
            for waves in (2, 4, 8, 16):
                by_vgpr = per_simd[v] * 4 // waves
                expected = min(by_vgpr, 65_536 // lds) * waves / 4
                assert occupancy(v, lds, waves_per_workgroup=waves).waves_per_simd == expected


def test_the_documents_example_survives_its_wrong_granule():
    assert [occupancy(v).waves_per_simd for v in (164, 168, 170, 172, 64, 66)] == [3, 3, 2, 2, 8, 7]


def test_what_cannot_start_has_zero_workgroups():
    assert occupancy(64, 65_537).workgroups_per_cu == 0 and occupancy(64, 65_537).limited_by == ("lds",)
    assert occupancy(64, 65_537, arch="gfx950").workgroups_per_cu == 2
    many = occupancy(64, waves_per_workgroup=32)
    assert not many.fits and many.limited_by == ("threads",)
    assert occupancy(136, waves_per_workgroup=16).limited_by == ("vgpr",)


def test_limiters_and_steps():
    assert occupancy(32).limited_by == ("waves",)
    assert occupancy(32, waves_per_workgroup=1).workgroups_per_cu == 32
    assert occupancy(200, 40_000).limited_by == ("lds",)
    assert set(occupancy(200, 32_768).limited_by) == {"vgpr", "lds"} and occupancy(200, 32_768).next_vgprs is None
    assert occupancy(300, waves_per_workgroup=8).workgroups_per_cu == 0
    assert vgpr_steps("gfx950") == vgpr_steps("gfx90a") == vgpr_steps()
    assert max_vgprs_for_waves(3) == 168 and allocate(513, 512) == 1024


@pytest.mark.parametrize(
    ("arguments", "part"),
    [((0,), "vgprs=0"), ((513,), "vgprs=513"), ((64, -1), "lds=-1"), ((64.0,), "vgprs=64.0"), ((True,), "vgprs=True")],
)
def test_bad_counts_are_named(arguments, part):
    with pytest.raises(OccupancyError, match=re.escape(part)):
        occupancy(*arguments)
    with pytest.raises(OccupancyError, match="waves_per_workgroup=0"):
        occupancy(8, waves_per_workgroup=0)
    with pytest.raises(OccupancyError, match="waves=9"):
        max_vgprs_for_waves(9)
    with pytest.raises(ArchError, match=r"arch='gfx1100'.*gfx942"):
        occupancy(8, arch="gfx1100")


def test_waves_per_eu_advice():
    assert waves_per_eu_advice(occupancy(170), 170).value == 3
    assert not waves_per_eu_advice(occupancy(200), 200).helps
    lds_bound = waves_per_eu_advice(occupancy(100, 40_000), 100)
    assert not lds_bound.helps and "lds" in lds_bound.reason
    padded = waves_per_eu_advice(occupancy(176), 117)  # waves_per_eu=2 on a kernel that needs 117
    assert padded.helps and padded.value == 4 and "pads" in padded.reason
    assert not waves_per_eu_advice(occupancy(32), 32).helps
