# SPDX-License-Identifier: MIT
"""A recording says what the machine did: every state equals that of a machine stepped by itself."""

import dataclasses

import numpy as np
import pytest

from cdna.run import RunError, prepare
from cdna.step.record import record
from cdna.step.state import StepError

#: y[i] = x[i]^2 + x[i + 64]; FIRST and SECOND stand for two counts.
TWO_LOADS = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type two_loads,@function
two_loads:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:256
  s_waitcnt vmcnt(FIRST)
  v_mul_f32_e32 v2, v2, v2
  s_waitcnt vmcnt(SECOND)
  v_add_f32_e32 v2, v2, v3
  global_store_dword v1, v2, s[6:7]
  s_endpgm
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .max_flat_workgroup_size: 64
    .name:           two_loads
.end_amdgpu_metadata
"""
LDS = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type swap,@function
swap:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mul_u32_u24_e32 v4, STRIDE, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  v_cmp_gt_u32_e32 vcc, 100, v0
  s_waitcnt vmcnt(0)
  ds_write_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_sub_u32_e32 v5, 127, v0
  v_mul_u32_u24_e32 v5, STRIDE, v5
  ds_read_b32 v3, v5
  s_waitcnt lgkmcnt(0)
  s_and_saveexec_b64 s[8:9], vcc
  global_store_dword v1, v3, s[6:7]
  s_endpgm
.amdhsa_kernel swap
  .amdhsa_group_segment_fixed_size 32768
  .amdhsa_next_free_vgpr 8
  .amdhsa_accum_offset 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .max_flat_workgroup_size: 128
    .name:           swap
.end_amdgpu_metadata
"""


def swap(stride=4):
    return LDS.replace("STRIDE", str(stride))


def arrays():
    """Input and output, both at the start of a 128-byte line."""
    made = []
    for values in (np.arange(128), np.zeros(128)):
        room = np.zeros(192, np.uint32)
        first = -room.ctypes.data % 128 // 4
        room[first : first + 128] = values
        made.append(room[first : first + 128])
    return made


def test_states_equal_those_of_a_machine_that_is_stepped():
    r = record(swap(), 1, arrays(), wave=1)
    assert not r.error and not r.cut
    machine = prepare(swap(), 1, arrays()).machine
    group = machine.start_group(0)
    other, w = group.waves
    for n in range(len(r.steps)):
        while w.status == "barrier":
            machine.step(other)
        now = r.state(n)
        assert now.pc == w.pc and now.exec == w.exec and now.scc == w.scc
        for number, row in now.vectors.items():
            assert np.array_equal(row, w.V[number]) and now.valid[number] == w.valid[number]
        mine = [x for x in now.scalars if isinstance(x, int)]
        assert mine == [x for x in w.s if isinstance(x, int)]
        assert [f.line for f in now.loading] == [f.line for f in w.in_flight]
        machine.step(w)
    assert r.state(len(r.steps)).exec == (1 << 36) - 1
    assert r.state(r.find_op("s_and_saveexec")).vcc == (1 << 36) - 1


def test_loads_in_flight_and_what_they_will_write():
    r = record(swap(), 1, arrays())
    load = r.find_op("global_load")
    assert r.state(load).loading == ()
    (flying,) = r.state(load + 1).loading
    assert (flying.op, flying.counter, flying.registers, flying.lanes) == ("global_load_dword", "vmcnt", ("v2",), 64)
    assert r.state(load + 1).valid[2] == 0
    after = r.find_op("s_waitcnt", after=load) + 1
    assert r.state(after).loading == () and list(r.state(after).vector("v2")) == list(range(64))
    scalar = r.state(1)
    assert scalar.scalars[4] == "loading" and scalar.loading[0].registers == ("s4", "s5", "s6", "s7")


def test_a_register_that_is_loaded_again_is_undefined_meanwhile():
    text = swap().replace("ds_read_b32 v3", "ds_read_b32 v2").replace("store_dword v1, v3", "store_dword v1, v2")
    r = record(text, 1, arrays())
    read = r.find_op("ds_read")
    assert not r.error and r.state(read).valid[2] == (1 << 64) - 1 and r.state(read + 1).valid[2] == 0
    assert r.state(read + 2).valid[2] == (1 << 64) - 1


def test_events_of_all_waves_carry_lines_and_bank_conflicts():
    r = record(swap(), 1, arrays())
    assert [len(e) for e in r.events] == [len(r.steps)] * 2
    by_op = {r.code[e.index].op: e for e in r.events[1]}
    assert len(by_op["global_load_dword"].lines) == 2
    assert len(by_op["global_store_dword"].lines) == 2  # 36 lanes of 4 bytes
    one = record(swap(), 1, arrays(), wave=0)
    assert len({e.lines for w in one.events for e in w if one.code[e.index].op == "global_load_dword"}) == 2
    assert by_op["ds_write_b32"].lds_cycles == by_op["ds_write_b32"].lds_ideal == 2
    bad = record(swap(128), 1, arrays())
    write = next(e for e in bad.events[0] if bad.code[e.index].op == "ds_write_b32")
    assert (write.lds_cycles, write.lds_ideal) == (64, 2)
    ((where, size, stores),) = bad.steps[bad.find_op("ds_write")].lds
    assert (where.tolist()[:3], size, stores) == ([0, 128, 256], 4, True)


def test_the_callers_arrays_stay_as_they_are():
    x, y = arrays()
    record(swap(), 1, [x, y])
    assert not y.any()


def test_an_error_of_the_kernel_ends_the_recording_and_names_both_lines():
    text = TWO_LOADS.replace("FIRST", "2").replace("SECOND", "0")
    x, y = np.zeros(128, np.float32), np.zeros(64, np.float32)
    r = record(text, 1, [x, y])
    assert "v_mul_f32_e32" in r.error and "global_load_dword of line 8" in r.error
    assert r.text(len(r.steps) - 1).startswith("s_waitcnt")


def test_a_long_run_is_cut():
    r = record(swap(), 1, arrays(), limit=3)
    assert r.cut == "the limit of 3 steps is reached" and len(r.steps) == 3 and not r.error
    assert not record(swap(), 1, arrays(), limit=500).cut
    r = record(swap(), 1, arrays(), until=lambda steps: "enough" if steps >= 2 else "")
    assert r.cut == "enough" and len(r.steps) == 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"group": 1}, "workgroups 0 to 0"),
        ({"group": -1}, "workgroups 0 to 0"),
        ({"wave": 2}, "waves 0 to 1"),
        ({"wave": "x"}, "waves 0 to 1"),
        ({"limit": 0}, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(how, message):
    with pytest.raises(StepError, match=message) as e:
        record(swap(), 1, arrays(), **how)
    assert "\n" not in str(e.value)


def test_wrong_arguments_raise_as_they_do_in_run():
    with pytest.raises(RunError):
        record(swap(), 1, [*arrays(), 5])


def test_finding_a_line_and_what_is_not_there():
    r = record(swap(), 1, arrays())
    line = r.code[r.steps[4].index].line
    assert r.find(line) == 4
    with pytest.raises(StepError, match="does not execute it again"):
        r.find(line, after=4)
    with pytest.raises(StepError, match="no such instruction"):
        r.find_op("v_mfma")
    with pytest.raises(StepError, match="steps 0 to"):
        r.state(len(r.steps) + 1)
    with pytest.raises(Exception, match="no such vector register"):
        r.state(0).vector("v99")
    assert "swap" in repr(r) and len(repr(r)) < 100


def test_the_start_is_not_changed_by_reading_states():
    r = record(swap(), 1, arrays())
    before = dataclasses.replace(r.start, vectors={k: v.copy() for k, v in r.start.vectors.items()})
    r.state(len(r.steps))
    assert all(np.array_equal(before.vectors[k], r.start.vectors[k]) for k in before.vectors)
    assert r.start.scalars == before.scalars
