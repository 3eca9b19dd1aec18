# SPDX-License-Identifier: MIT
"""The model of a compute unit: hand-worked cases, and properties that any schedule has."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from cdna.costs import FLOPS_PER_CYCLE, SOURCES, CostError, Costs, mfma_cycles
from cdna.predict.specs import gpu
from cdna.run.matrix import SHAPES
from cdna.step.record import record
from cdna.step.timeline import timeline
from tests.step.test_record import arrays, swap

ONE = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type one,@function
one:
CODE
  s_endpgm
.amdhsa_kernel one
  .amdhsa_group_segment_fixed_size 0
  .amdhsa_next_free_vgpr 64
  .amdhsa_accum_offset 64
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .max_flat_workgroup_size: THREADS
    .name:           one
.end_amdgpu_metadata
"""


def model(code, threads=64, **how):
    return timeline(record(ONE.replace("CODE", code).replace("THREADS", str(threads)), 1, []), **how)


def test_vector_instructions_follow_each_other_every_four_cycles():
    t = model("  v_mov_b32_e32 v1, 1.0\n  v_add_f32_e32 v2, v1, v1\n  v_exp_f32_e32 v3, v2\n  v_add_f32_e32 v4, v3, v3")
    assert [(s.start, s.end) for s in t.spans[:4]] == [(0, 4), (4, 8), (8, 24), (24, 28)]
    assert t.spans[3].why == "result" and t.waits[0]["result"] == 24 - 12


def test_a_matrix_instruction_keeps_its_core_busy_and_others_overlap():
    setup = "".join(f"  v_mov_b32_e32 v{r}, 0\n" for r in range(4))
    t = model(
        setup + "  v_mfma_f32_32x32x8_f16 v[8:23], v[0:1], v[2:3], 0\n  v_add_f32_e32 v30, v0, v0\n"
        "  v_add_f32_e32 v31, v8, v8"
    )
    mfma, free, held = (s for s in t.spans if s.index in (4, 5, 6))
    assert mfma.end - mfma.start == 32 and free.start == mfma.start + 4
    assert held.start == mfma.end and held.why == "result"
    two = model(setup + "  v_mfma_f32_32x32x8_f16 v[8:23], v[0:1], v[2:3], 0\n  v_add_f32_e32 v30, v0, v0", threads=512)
    assert two.overlap > 0 and t.overlap == 0


def test_an_exposed_wait_is_the_latency_and_more_workgroups_hide_it():
    r = record(swap(), 1, arrays())
    t = timeline(r)
    load = next(s for s in t.spans if s.wave == 0 and s.kind == "global")
    wait = next(s for s in t.spans if s.wave == 0 and s.why == "vmcnt")
    assert wait.start == load.end + t.costs.memory_latency
    assert t.exposed > t.costs.memory_latency / 2
    many = timeline(r, groups=8)
    assert many.cycles < 8 * t.cycles and many.exposed / 8 < t.exposed
    quick = timeline(r, Costs(memory_latency=10, l1_latency=5))
    assert quick.cycles < t.cycles


def test_bank_conflicts_take_cycles():
    good, bad = (timeline(record(swap(s), 1, arrays())) for s in (4, 128))
    assert good.conflicts == 0 and bad.conflicts == 2 * 2 * 62  # a write and a read, of two waves
    assert bad.cycles > good.cycles


def test_no_unit_is_used_twice_and_every_wave_keeps_its_order():
    r = record(swap(128), 1, arrays())
    t = timeline(r, groups=4)
    for w in range(t.waves):
        mine = [s for s in t.spans if s.wave == w]
        assert [s.index for s in mine] == [e.index for e in r.events[w % 2]]
        assert all(
            a.start + t.costs.issue <= b.start or "barrier" in (a.kind, b.kind) for a, b in itertools.pairwise(mine)
        )
    units = defaultdict(list)
    for s in t.spans:
        unit = {"lds": "lds", "global": "vmem"}.get(s.kind) or (f"valu{s.wave % 4}" if s.kind == "valu" else "")
        units[unit].append((s.start, s.end))
    for unit, spans in units.items():
        if unit:
            spans.sort()
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), unit


def test_a_barrier_lets_nobody_through_before_the_last():
    t = timeline(record(swap(128), 1, arrays()))  # 64 cycles for each wave's write: the second comes later
    meets = [s for s in t.spans if s.kind == "barrier"]
    writes = sorted(s.end for s in t.spans if s.kind == "lds")[:2]
    assert writes[1] - writes[0] >= 64
    assert len(meets) == 2 and meets[0].start == meets[1].start >= writes[1] + t.costs.lds_latency


def test_the_text_says_that_it_is_a_model():
    text = str(timeline(record(swap(), 1, arrays())))
    assert text.startswith("model:") and all("model" in line for line in text.splitlines())


def test_rates_agree_with_the_peaks_of_the_gpu():
    flops = gpu("MI300X").flops
    for ours, theirs in (("f16", "fp16"), ("bf16", "bf16"), ("i8", "int8"), ("fp8", "fp8")):
        assert 4 * FLOPS_PER_CYCLE[ours] == flops[theirs][0]


def test_every_matrix_instruction_has_a_cost():
    for (sparse, kind), shapes in SHAPES.items():
        for m, n, k, blocks in shapes:
            head = "v_smfmac" if sparse else "v_mfma"
            out = {"f64": "f64", "i8": "i32"}.get(kind, "f32")
            tail = f"_{blocks}b" if blocks > 1 else ""
            cycles = mfma_cycles(f"{head}_{out}_{m}x{n}x{k}{tail}_{kind}")
            assert cycles % 4 == 0 and 8 <= cycles <= 64, (kind, m, n, k)
    for op, cycles in {
        "f64_16x16x4_f64": 32,
        "f64_4x4x4_4b_f64": 16,
        "f32_32x32x2_f32": 64,
        "f32_32x32x1_2b_f32": 64,
        "f32_16x16x1_4b_f32": 32,
        "f32_4x4x1_16b_f32": 8,
        "f32_32x32x4_xf32": 32,
        "f32_32x32x8_f16": 32,
        "f32_16x16x16_bf16": 16,
        "f32_32x32x4_2b_f16": 64,
        "f32_16x16x4_4b_bf16": 32,
        "f32_4x4x4_16b_f16": 8,
        "f32_16x16x32_fp8_bf8": 16,
        "i32_32x32x16_i8": 32,
        "i32_32x32x4_2b_i8": 64,
        "i32_16x16x4_4b_i8": 32,
    }.items():  # hipBLASLt's table for gfx942
        assert mfma_cycles(f"v_mfma_{op}") == cycles, op
    with pytest.raises(CostError):
        mfma_cycles("v_add_f32")


def test_costs_and_groups_are_checked():
    for bad in (0, -1, 1.5, True, 10**9):
        with pytest.raises(CostError, match="whole number of cycles"):
            Costs(memory_latency=bad)
    r = record(swap(), 1, [np.zeros(128, np.uint32), np.zeros(128, np.uint32)])
    for groups in (0, 17, "2"):
        with pytest.raises(CostError, match="1 to 16 workgroups of 2 waves fit"):
            timeline(r, groups=groups)
    assert set(Costs.__dataclass_fields__) <= set(SOURCES)
