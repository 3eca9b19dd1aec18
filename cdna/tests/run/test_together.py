# SPDX-License-Identifier: MIT
"""Waves executed side by side give the bits, the counts and the errors of waves executed one by one."""

import numpy as np
import pytest

from cdna.run import RunError, prepare
from tests.run.harness import text_of

WAVES = 3
#: Each wave has its number in s10; v0 is the lane's number in the workgroup.
START = """
  v_lshrrev_b32_e32 v1, 6, v0
  v_readfirstlane_b32 s10, v1
"""
BODIES = {
    "scalars that differ": "  s_lshl_b32 s11, s10, 4\n  v_add_u32_e32 v2, s11, v0\n  v_mul_u32_u24_e32 v2, v2, v0",
    "wide scalars": "  s_mov_b32 s12, s10\n  s_mov_b32 s13, 7\n  v_lshl_add_u64 v[2:3], s[12:13], 1, 0",
    "masks that differ": (
        "  v_cmp_lt_u32_e32 vcc, 70, v0\n  v_cndmask_b32_e32 v2, 3, v0, vcc\n"
        "  v_cmp_gt_u32_e64 s[14:15], v0, s10\n  v_cndmask_b32_e64 v3, v2, 1, s[14:15]\n  v_add_u32_e32 v2, v2, v3"
    ),
    "constant comparison": "  v_cmp_eq_u32_e64 s[14:15], 1, s10\n  v_cndmask_b32_e64 v2, 1, 2, s[14:15]",
    "masks that are no registers": (
        "  v_cndmask_b32_e64 v2, v0, 3, exec\n  v_cndmask_b32_e64 v3, v0, 4, -1\n  v_add_u32_e32 v2, v2, v0"
    ),
    "bytes picked": "  v_mov_b32_e32 v3, 0x01020304\n  s_mov_b32 s12, 0x05010700\n  v_perm_b32 v2, v0, v3, s12\n"
    "  v_perm_b32 v3, v2, v0, v3\n  v_sad_u8 v2, v2, v3, 5\n  v_add_u32_e32 v2, v2, v0",
    "packed halves": "  v_cvt_f32_u32_e32 v6, v0\n  v_cvt_f16_f32_e32 v2, v6\n  v_mov_b32_e32 v7, v6\n"
    "  v_pk_add_f16 v2, v2, 1.0\n"
    "  v_pk_fma_f32 v[4:5], v[6:7], v[6:7], 1.0 op_sel_hi:[1,1,0]\n"
    "  v_fma_mix_f32 v3, v6, v2, v5 op_sel_hi:[0,1,0]\n  v_add_f32_e32 v2, v3, v4",
    "loops of different length": (
        "  v_mov_b32_e32 v2, 0\n  s_mov_b32 s11, 0\nloop:\n  v_add_u32_e32 v2, v2, v0\n  v_xor_b32_e32 v2, 5, v2\n"
        "  s_add_i32 s11, s11, 1\n  s_cmp_le_u32 s11, s10\n  s_cbranch_scc1 loop\n  v_add_u32_e32 v2, s11, v2"
    ),
    "lanes that are off": (
        "  v_mov_b32_e32 v2, 9\n  v_cmp_gt_u32_e32 vcc, 80, v0\n  s_and_saveexec_b64 s[14:15], vcc\n"
        "  v_add_u32_e32 v2, v2, v0\n  v_lshlrev_b32_e32 v2, 1, v2\n  s_mov_b64 exec, s[14:15]\n"
        "  v_add_u32_e32 v2, 1, v2"
    ),
    "matrices": (
        "  v_cvt_f32_u32_e32 v2, v0\n  v_cvt_f16_f32_e32 v4, v2\n  v_mov_b32_e32 v5, v4\n"
        "  v_mov_b32_e32 v6, 0x40004000\n  v_mov_b32_e32 v7, v6\n  v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], 0\n"
        "  v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], v[8:11]\n  v_add_f32_e32 v2, v8, v11"
    ),
}


def execute(body, order, threads=64 * WAVES):
    machine = prepare(text_of(START + body, threads=threads), 1, []).machine
    group = machine.start_group()
    with np.errstate(all="ignore"):
        while not machine._run_group(group, order, 10_000, None):
            pass
    return machine, group


@pytest.mark.parametrize("name", BODIES)
def test_side_by_side_equals_one_by_one(name):
    body = BODIES[name]
    (alone, one), (together, all_) = (execute(body, order) for order in ("alone", "together"))
    assert np.array_equal(one.block, all_.block)
    for a, b in zip(one.waves, all_.waves, strict=True):
        assert a.valid == b.valid and a.s == b.s and a.executed == b.executed and a.scc == b.scc
    assert alone.counts == together.counts
    assert alone.executed == together.executed
    assert len({w.V[2].tobytes() for w in all_.waves}) > 1  # the waves did not all compute one thing


def test_a_wave_of_fewer_lanes_runs_beside_full_ones():
    body = "  v_add_u32_e32 v2, 1, v0\n  v_mul_u32_u24_e32 v3, v2, v0"
    (_, one), (_, all_) = (execute(body, order, threads=64 + 20) for order in ("alone", "together"))
    assert np.array_equal(one.block, all_.block)
    assert [w.valid for w in one.waves] == [w.valid for w in all_.waves]


@pytest.mark.parametrize(
    "body, message",
    [
        ("  v_mov_b32_e32 v2, 0\n  v_add_u32_e32 v3, v2, v9\n  v_mov_b32_e32 v4, 0", "v_add_u32.*v9.*never written"),
        ("  s_add_u32 s4, s40, 1\n  v_mov_b32_e32 v4, 0", "s_add_u32.*s40.*never written"),
        ("  s_memtime s[20:21]\n  v_mov_b32_e32 v4, 0\n  v_add_u32_e32 v4, s20, v4", "s20.*still loading"),
        (
            "  v_mov_b32_e32 v2, 0\n  ds_write_b32 v2, v2\n  ds_read_b32 v3, v2\n  v_mov_b32_e32 v5, 0\n"
            "  v_add_u32_e32 v4, v3, v0",
            "v_add_u32.*v3.*still loading",
        ),
        (
            "  v_mov_b32_e32 v2, 0\n  ds_write_b32 v2, v2\n  ds_read_b32 v3, v2\n  v_mov_b32_e32 v5, 0\n"
            "  v_mov_b32_e32 v3, 0",
            "writes v3.*still loading",
        ),
    ],
)
def test_what_is_wrong_in_a_stretch_is_named(body, message):
    text = text_of(START + body, lds=256, threads=64 * WAVES)
    with pytest.raises(RunError, match=message) as e:
        prepare(text, 1, []).machine.run("together")
    assert text.split("\n")[e.value.line - 1].split()[0] in str(e.value)


def test_branches_may_enter_a_stretch_only_at_its_start():
    code = prepare(text_of(START + BODIES["loops of different length"]), 1, []).machine.code
    starts = {o.index: [x.index for x in o.straight.operations] for o in code if o.straight is not None}
    target = next(o.index for o in code if o.text == "v_add_u32_e32 v2, v2, v0")
    assert target in starts and all(target not in inside[1:] for inside in starts.values())
    assert all(o.private for inside in starts.values() for o in code if o.index in inside)
