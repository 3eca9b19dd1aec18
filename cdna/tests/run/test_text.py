# SPDX-License-Identifier: MIT
"""Texts that cannot be executed get one line; damaged ones never anything else."""

import numpy as np
import pytest

from cdna.run import RunError, prepare, run
from tests.run.harness import text_of
from tests.run.mutants import X, Y, fuzz
from tests.run.test_memory import COPY, kernel


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("gfx942", "gfx1100"), "gfx1100"),
        (lambda t: t.partition("global_store")[0], "cut short"),
        (lambda t: t.replace("s_endpgm", "s_cbranch_scc0 .LBB9\n  s_endpgm"), "goes nowhere"),
        (lambda t: t.replace("v_add_u32_e32", "v_add_u33_e32"), "v_add_u33_e32"),
        (lambda t: t.replace("v_add_u32_e32", "w_add_u32_e32"), "w_add_u32_e32"),
        (lambda t: "", "no AMDGCN kernel"),
    ],
)
def test_one_line_for_what_cannot_run(change, words):
    with pytest.raises(RunError, match=words) as e:
        run(change(kernel(COPY)), 1, [X.copy(), Y.copy(), 5])
    assert "\n" not in str(e.value)


def test_running_off_the_end_is_named():
    with pytest.raises(RunError, match=r"runs past|cut short"):
        run(kernel(COPY).replace("s_endpgm", "s_branch .L9\n  s_nop 0\n.L9:\n  s_nop 0"), 1, [X.copy(), Y.copy(), 5])


def test_mutated_listings_give_only_named_errors():
    ended = fuzz(1_500, 1)
    assert ended["ran"] and ended["text"] and ended["bounds"] and ended["undefined"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("v_add_f64 v[11:12], v[2:3], v[4:5]", ["v[11:12]", "multiple of 2"]),
        ("global_load_dwordx2 v[4:5], v[1:2], off", ["v[1:2]"]),
        ("global_load_dwordx4 v[5:8], v[2:3], off", ["v[5:8]"]),
        ("v_mfma_f32_16x16x4_f32 a[1:4], v2, v3, 0", ["a[1:4]"]),
        ("s_mov_b64 s[5:6], 0", ["s[5:6]", "multiple of 2"]),
        ("s_load_dwordx4 s[6:9], s[0:1], 0x0", ["s[6:9]", "multiple of 4"]),
        ("v_add_f32_e64 v4, s4, s5", ["s4 and s5"]),
        ("v_fma_f32 v4, s4, v2, s5", ["s4 and s5"]),
        ("v_cndmask_b32_e64 v4, v2, s4, vcc", ["s4 and vcc"]),
        ("v_addc_co_u32_e32 v4, vcc, s4, v2, vcc", ["s4 and vcc"]),
        ("v_div_fmas_f32 v4, s4, v2, v3", ["vcc and s4"]),
        ("v_fmac_f32_e64 v4, s4, 0x40490fdb", ["s4 and 0x40490fdb"]),
        ("v_readlane_b32 s4, v2, s5\n v_add_u32_e64 v4, s4, m0", ["s4 and m0"]),
    ],
)
def test_what_an_assembler_refuses(code, words):
    with pytest.raises(RunError) as e:
        prepare(text_of(code), 1, [])
    assert e.value.rule == "text" and all(word in str(e.value) for word in words), str(e.value)


def test_one_scalar_operand_may_be_read_twice():
    prepare(
        text_of("""  v_fma_f32 v4, s4, s4, v2
      v_fma_f32 v4, s4, 1.0, -16
      v_mad_u64_u32 v[4:5], s[6:7], s4, v2, v[8:9]
      v_div_scale_f32 v4, vcc, s4, s4, v2
      v_cndmask_b32_e32 v4, 0, v2, vcc
      v_add_co_u32_e32 v4, vcc, s4, v2
      v_writelane_b32 v4, s4, m0
      v_readlane_b32 s8, v4, s9
      v_cmp_gt_u32_e64 s[10:11], s4, v2"""),
        1,
        [],
    )


CALL = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type wide,@function
.type inner,@function
.type outer,@function
.type small,@function
wide:
  v_mov_b32_e32 v200, 1
  s_setpc_b64 s[30:31]
inner:
  v_mov_b32_e32 v1, 7
  s_setpc_b64 s[34:35]
outer:
  s_getpc_b64 s[4:5]
  s_add_u32 s4, s4, inner@rel32@lo+4
  s_addc_u32 s5, s5, inner@rel32@hi+12
  s_swappc_b64 s[34:35], s[4:5]
  s_setpc_b64 s[30:31]
small:
  s_getpc_b64 s[4:5]
  s_add_u32 s4, s4, outer@rel32@lo+4
  s_addc_u32 s5, s5, outer@rel32@hi+12
  s_swappc_b64 s[30:31], s[4:5]
  s_endpgm
.amdhsa_kernel small
  .amdhsa_next_free_vgpr 2
  .amdhsa_accum_offset 4
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .max_flat_workgroup_size: 64
    .name:           small
.end_amdgpu_metadata
"""


def test_only_functions_that_are_called_count():
    """The function of another kernel may name registers that this one does not have."""
    session = prepare(CALL, 1, [])
    session.machine.run()
    assert session.finish().executed == 12
    with pytest.raises(RunError, match="v200, 1: the kernel has v0 to v1"):
        prepare(CALL.replace("inner@", "wide@"), 1, [])


@pytest.mark.parametrize("grid", [1.5, (2, 1.5), 0, (1, 1, 1, 1), "2", None])
def test_a_grid_is_whole_numbers(grid):
    with pytest.raises(RunError, match=r"grid=.*one to three positive integers"):
        prepare(text_of(""), grid, [])


POINTERS = text_of("""  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_load_dword s8, s[6:7], 0x0
  s_waitcnt lgkmcnt(0)""").replace(
    "  - .max_flat",
    """  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .max_flat""",
)


def test_a_missing_pointer_is_named():
    a = np.zeros(4, np.float32)
    with pytest.raises(RunError, match="reads 4 bytes at 0x0: a null pointer; argument 2 was not given"):
        run(POINTERS, 1, [a])
    named = POINTERS.replace("global_buffer\n    .max", "global_buffer\n        .name:           b\n    .max")
    with pytest.raises(RunError, match=r"^b is missing: the kernel takes argument 1, b"):
        run(named, 1, [a])
    run(POINTERS, 1, [a, a])
