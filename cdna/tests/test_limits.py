# SPDX-License-Identifier: MIT
"""Limits that the compiler lets pass: each has a kernel that really breaks it, and one that just does not."""

import pytest
import torch

from cdna.limits import GridError, check_limits, grid_fit
from cdna.occupancy import occupancy

HALF = torch.empty(4096, 4096, dtype=torch.float16, device="meta")


def rules(occ, **facts):
    return [(f.level, f.rule) for f in check_limits(occ, **{"threads": 256, "lds": 0, **facts})]


def test_threads():
    assert rules(occupancy(64, waves_per_workgroup=16), threads=1_024) == []
    assert rules(occupancy(64, waves_per_workgroup=32), threads=2_048) == [("error", "threads")]


def test_lds():
    assert rules(occupancy(64, 65_536), lds=65_536) == []
    assert rules(occupancy(64, 65_537), lds=65_537) == [("error", "lds")]
    assert rules(occupancy(64, 65_537, arch="gfx950"), lds=65_537) == []
    assert rules(occupancy(64, 163_841, arch="gfx950"), lds=163_841) == [("error", "lds")]


def test_registers_that_no_cu_has_room_for():
    assert rules(occupancy(129, waves_per_workgroup=16), threads=1_024) == [("error", "registers")]


def test_spills_and_scratch():
    assert rules(occupancy(64), vgpr_spills=3, scratch=16) == [("warning", "spills")]
    assert rules(occupancy(64), scratch=16) == [("warning", "scratch")]
    assert rules(occupancy(64), sgpr_spills=2) == [("note", "sgpr-spills")]


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ((0,), [("warning", "grid")]),
        ((303,), [("warning", "grid")]),
        ((304,), [("note", "grid")]),
        ((1_216,), []),
        ((1_024,), [("note", "tail")]),  # four workgroups on some CUs, three on the others
        ((1_023,), [("note", "grid"), ("note", "tail")]),
        ((2_432,), []),  # 304 x 8
        ((2_433,), [("note", "tail")]),
        ((16, 16, 16), []),  # 13.5 per CU: the tail has faded
        ((16_777_216,), [("error", "grid")]),
        ((16_777_215,), []),
    ],
)
def test_grid(grid, expected):
    assert rules(occupancy(64), grid=grid) == expected


def test_the_worst_comes_first():
    found = rules(occupancy(512, 131_072), lds=131_072, vgpr_spills=200, scratch=800, grid=(10,))
    assert found == [("error", "lds"), ("warning", "spills"), ("warning", "grid")]


def test_evidence_names_the_numbers():
    (finding,) = check_limits(occupancy(64, 70_000), threads=256, lds=70_000)
    assert "70,000" in finding.evidence and "65,536" in finding.evidence and finding.fix


def test_grid_fit():
    full = grid_fit((304, 4), 4)
    assert (full.workgroups, full.resident, full.rounds, full.busy) == (1_216, 1_216, 1.0, 1.0)
    assert grid_fit((152,), 1).busy == 0.5
    assert grid_fit((304 * 3 + 1,), 1).busy == pytest.approx((304 * 3 + 1) / (304 * 4))
    assert grid_fit((100,), 1, "gfx90a").busy == pytest.approx(100 / 110)
    for bad in ((), (1, 2, 3, 4), (-1,), (1.5,), (True,)):
        with pytest.raises(GridError, match="grid="):
            grid_fit(bad, 1)
    with pytest.raises(GridError, match="workgroups_per_cu=0"):
        grid_fit((1,), 0)


def test_real_kernels_break_the_limits_that_the_compiler_lets_pass():
    pytest.importorskip("triton")
    from cdna.compile import compile_kernel
    from cdna.examples.tuning import matmul, scale_rows
    from cdna.report import kernel_report

    bf16 = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
    arguments = [bf16, bf16, bf16, 4096, 4096, 4096]
    threads = kernel_report(compile_kernel(scale_rows, [HALF, HALF, 2.0, 4096], {"BLOCK": 4096}, num_warps=32))
    assert [f.rule for f in threads.findings] == ["threads"] and not threads.launches
    tile = {"BM": 256, "BN": 256, "BK": 128}
    lds = kernel_report(compile_kernel(matmul, arguments, tile, num_warps=8))
    assert lds.lds == 131_072 and lds.findings[0].rule == "lds" and not lds.launches
    spills = kernel_report(compile_kernel(matmul, arguments, {**tile, "BK": 32}, waves_per_eu=4))
    assert "spills" in [f.rule for f in spills.findings] and spills.launches
    assert spills.resources.scratch > 0
