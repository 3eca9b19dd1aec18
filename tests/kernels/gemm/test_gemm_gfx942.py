# SPDX-License-Identifier: MIT
"""What the GEMM kernels become on MI300X: limits, spills, widths, matrix instructions, grids, waits before a flag.

The rows come from the committed table, which tests/kernels/test_resource_table.py compiles again.
"""

from __future__ import annotations

import math

import pytest

from cdna.dry_run.driver import dry_run
from course.resource_table import read_rows
from rocm_guide.kernels.cases import gemm_skinny_cases, gemm_stream_k_cases
from rocm_guide.kernels.gemm_skinny import SHAPES

MODULES = ("gemm", "gemm_split_k", "gemm_stream_k", "gemm_skinny")
ROWS = read_rows()[1]


def rows_of(name):
    rows = [r for r in ROWS if r.case.split(":")[0] == name]
    assert rows, f"{name} is not in the table: python -m course table --write {name}"
    return rows


@pytest.mark.parametrize("name", MODULES)
def test_limits_spills_widths_and_matrix_instructions(name):
    for r in rows_of(name):
        assert r.spills == 0 and r.findings == "-", (r.case, r.spills, r.findings)
        assert r.waves >= 2 and r.lds <= 65_536 and r.warps <= 16, r
        assert (r.mfma != "-") == (r.kernel != "add_parts_kernel"), (r.case, r.mfma)
        assert r.mfma == "-" or all("16x16x" in op for op in r.mfma.split(",")), (r.case, r.mfma)
        ragged = any(odd in r.case for odd in ("4097", "999"))
        if r.loop_loads != "-" and not ragged:
            widths = {int(w.split("x")[0]) for w in r.loop_loads.split(",")}
            assert widths == {128}, (r.case, r.loop_loads)


def test_skinny_grids_fill_an_mi300x():
    seen = set()
    for r in rows_of("gemm_skinny"):
        groups = math.prod(int(g) for g in r.grid.split(","))
        assert groups >= 304, (r.case, r.grid)
        seen.add(r.case.split()[-1].split("x", 1)[1])
    assert seen == {f"{n}x{k}" for n, k in SHAPES}


@pytest.mark.parametrize("cases", [gemm_skinny_cases, gemm_stream_k_cases])
def test_every_wave_waits_for_its_stores_before_the_flag(cases):
    for label, thunk in list(cases())[::5]:
        with dry_run("gfx942", device="meta") as run:
            thunk()
        code = [line.strip() for line in run.launches[0].compiled.assembly.splitlines()]
        raises = [i for i, x in enumerate(code) if x.startswith("global_atomic") and ("_add" in x or "swap" in x)]
        flags = [i for i in raises if "cmp" not in code[i]]
        assert flags, f"{label}: no flag is raised"
        for flag in flags:
            barrier = max(i for i in range(flag) if code[i] == "s_barrier")
            store = max(i for i in range(barrier) if "_store_dword" in code[i])
            assert "s_waitcnt vmcnt(0)" in code[store:barrier], f"{label}: a flag could overtake stores"
