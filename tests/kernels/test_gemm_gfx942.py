# SPDX-License-Identifier: MIT
"""What the GEMM kernels become on MI300X: limits, spills, widths, matrix instructions, grids, waits before a flag."""

from __future__ import annotations

import importlib
import math

import pytest

from rocm_guide.kernels.gemm_skinny import SHAPES
from rocm_guide.mi300x.dry_run import dry_run

MODULES = ("gemm", "gemm_linear", "gemm_split_k", "gemm_stream_k", "gemm_skinny", "gemm_multiply_reduce")
SHARED = ("gemm_skinny", "gemm_stream_k")  # those that raise a flag for another workgroup


def compiled(name):
    """(label, launch) of every case, each different kernel once."""
    for label, thunk in importlib.import_module(f"rocm_guide.kernels.{name}").gfx942_cases():
        with dry_run("gfx942", device="meta") as run:
            thunk()
        assert run.launches, f"{label} launched nothing"
        for launch in run.launches:
            yield label, launch


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_limits_spills_widths_and_matrix_instructions(name):
    for label, launch in compiled(name):
        r = launch.report
        assert r.launches, (label, r.findings)
        assert r.resources.vgpr_spills == 0 and (r.resources.sgpr_spills or 0) == 0 and not r.resources.scratch, label
        uses_dot = r.kernel not in ("add_parts_kernel", "gemm_multiply_reduce_kernel")
        assert bool(r.isa.mfma) == uses_dot, (label, r.isa.mfma)
        assert all("16x16x" in op for op in r.isa.mfma), (label, r.isa.mfma)
        assert r.occupancy.waves_per_simd >= 2, (label, r.occupancy.waves_per_simd)
        ragged = any(odd in label for odd in ("4097", "999"))
        # B read along N has a tile of A with fewer elements than lanes: one narrow load beside the wide ones.
        narrow = name == "gemm_multiply_reduce" and "A B^T" not in label
        widths = r.isa.global_loads_in_loops
        if r.isa.loops and not ragged:
            assert widths.get(128, 0) >= 1, (label, widths)
            assert set(widths) == {128} or narrow, (label, widths)


def test_skinny_grids_fill_an_mi300x():
    seen = set()
    for label, launch in compiled("gemm_skinny"):
        assert math.prod(launch.grid) >= 304, (label, launch.grid)
        seen.add(label.split()[1].split("x", 1)[1])
    assert seen == {f"{n}x{k}" for n, k in SHAPES}


@pytest.mark.parametrize("name", SHARED)
def test_every_wave_waits_for_its_stores_before_the_flag(name):
    for label, launch in compiled(name):
        code = [line.strip() for line in launch.compiled.assembly.splitlines()]
        raises = [i for i, x in enumerate(code) if x.startswith("global_atomic") and ("_add" in x or "swap" in x)]
        flags = [i for i in raises if "cmp" not in code[i]]
        assert flags, f"{label}: no flag is raised"
        for flag in flags:
            barrier = max(i for i in range(flag) if code[i] == "s_barrier")
            store = max(i for i in range(barrier) if "_store_dword" in code[i])
            assert "s_waitcnt vmcnt(0)" in code[store:barrier], f"{label}: a flag could overtake stores"
