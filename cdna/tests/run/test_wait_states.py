# SPDX-License-Identifier: MIT
"""A missing ``s_nop`` is named with both instructions; the right number of states, or more, is accepted."""

import dataclasses
import re

import pytest
import torch

from cdna.dry_run import dry_run
from cdna.examples.rows import softmax_three_passes
from cdna.run import RunError, prepare
from tests.run.harness import text_of

V = "  v_mov_b32_e32 v1, v0\n"
MFMA = "  v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], 0\n"
#: Producer, consumer, wait states (LLVM's GCNHazardRecognizer for gfx940).
CASES = {
    "scalar to memory": ("  v_readfirstlane_b32 s2, v0\n", "  global_load_dword v2, v0, s[2:3]\n", 5),
    "VCC to division": ("  v_cmp_lt_f32_e32 vcc, v0, v1\n", "  v_div_fmas_f32 v2, v0, v0, v0\n", 4),
    "VCC to selection": ("  v_cmp_lt_f32_e32 vcc, v0, v1\n", "  v_cndmask_b32_e32 v2, v0, v1, vcc\n", 2),
    "number of a lane": ("  v_readfirstlane_b32 s2, v0\n", "  v_readlane_b32 s4, v0, s2\n", 4),
    "DPP": (V, "  v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf\n", 2),
    "DPP result in DPP": (
        "  v_mov_b32_dpp v1, v0 row_shr:1 row_mask:0xf bank_mask:0xf\n",
        "  v_add_f32_dpp v2, v1, v0 row_shr:2 row_mask:0xf bank_mask:0xf\n",
        2,
    ),
    "EXEC to lane": ("  v_cmpx_lt_f32_e32 vcc, v0, v1\n", "  v_readfirstlane_b32 s4, v0\n", 4),
    "lane of a result": (V, "  v_readfirstlane_b32 s4, v1\n", 1),
    "transcendental": ("  v_exp_f32_e32 v1, v0\n", "  v_add_f32_e32 v2, v1, v0\n", 1),
    "half of a register": (
        "  v_add_u16_sdwa v1, v0, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD\n",
        "  v_add_f32_e32 v2, v1, v0\n",
        1,
    ),
    "vector to matrix": ("  v_mov_b32_e32 v2, v0\n", MFMA, 2),
    "matrix to vector": (MFMA, "  v_add_f32_e32 v4, v20, v0\n", 11),
    "matrix to store": (MFMA, "  ds_write_b32 v0, v31\n", 11),
    "matrix overwritten": (MFMA, "  v_mov_b32_e32 v16, v0\n", 11),
    "matrix to factor": (MFMA, "  v_mfma_f32_32x32x8_f16 v[32:47], v[16:17], v[2:3], 0\n", 11),
    "f32 matrix": ("  v_mfma_f32_16x16x4_f32 v[16:19], v0, v1, 0\n", "  v_add_f32_e32 v4, v16, v0\n", 10),
    "f64 matrix to memory": ("  v_mfma_f64_16x16x4_f64 v[16:23], v[0:1], v[2:3], 0\n", "  ds_write_b32 v0, v16\n", 18),
    "f64 matrix to vector": (
        "  v_mfma_f64_4x4x4_4b_f64 v[16:17], v[0:1], v[2:3], 0\n",
        "  v_add_f64 v[4:5], v[16:17], 1.0\n",
        6,
    ),
}


def check(code):
    prepare(text_of(code, lds=64), 1, [], wait_states=True)


def idle(n):
    return "".join(f"  s_nop {min(n - i, 16) - 1}\n" for i in range(0, n, 16))


@pytest.mark.parametrize("name", CASES)
def test_one_state_too_few_is_named(name):
    first, second, states = CASES[name]
    check(first + idle(states) + second)
    check(first + "  s_mov_b32 s60, 0\n" * states + second)
    with pytest.raises(RunError, match=rf"after {states - 1} wait states and takes {states}: s_nop 0 is missing") as e:
        check(first + idle(states - 1) + second)
    assert e.value.rule == "wait states" and second.split()[0] in str(e.value) and first.split()[0] in str(e.value)


def test_what_the_hardware_resolves_needs_nothing():
    check(V + "  v_add_f32_e32 v2, v1, v0\n  s_mov_b32 s2, 0\n  v_add_u32_e32 v3, s2, v2\n")
    check(MFMA + "  v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]\n")
    check("  v_exp_f32_e32 v1, v0\n  v_log_f32_e32 v2, v1\n")


@pytest.mark.parametrize("text", ["s_nop 16", "s_nop -1", "s_nop", "s_nop v0", "s_nop much"])
def test_an_s_nop_that_makes_no_sense_is_refused(text):
    with pytest.raises(RunError, match=r"s_nop|operand"):
        check(f"{MFMA}  {text}\n  s_mov_b32 s60, 0\n")


def test_branches_are_followed_both_ways():
    loop = "loop:\n  v_add_f32_e32 v4, v20, v0\n" + idle(9) + MFMA + "  s_cbranch_scc1 loop\n"
    with pytest.raises(RunError, match="after 2 wait states"):
        check(loop)
    with pytest.raises(RunError, match="after 10 wait states"):
        check(loop.replace("  s_cbranch", idle(8) + "  s_cbranch"))
    check(loop.replace("  s_cbranch", idle(9) + "  s_cbranch"))  # a branch that is taken is two states
    over = MFMA + "  s_branch there\n" + idle(16) + "there:\n  v_add_f32_e32 v4, v20, v0\n"
    with pytest.raises(RunError, match="after 2 wait states"):
        check(over)
    past = MFMA + idle(9) + "  s_cbranch_scc1 there\n  v_add_f32_e32 v4, v20, v0\nthere:\n  s_nop 0\n"
    with pytest.raises(RunError, match="after 10 wait states"):
        check(past)  # not taken it is one


def test_a_removed_s_nop_of_a_compiled_kernel_is_caught():
    kept = []
    with dry_run("gfx942", on_launch=lambda compiled, grid, arguments: kept.append((compiled, arguments))):
        softmax_three_passes[(4,)](torch.zeros(4, 1024).half(), torch.empty(4, 1024).half(), 1024, BLOCK=256)
    compiled, arguments = kept[0]
    free = {n: v for n, v in arguments.items() if compiled.signature[n] != "constexpr"}
    prepare(compiled, 1, free, wait_states=True)
    removed = re.sub(r"\n\s*s_nop \d+(?=\s*\n)", "", compiled.assembly)
    assert removed != compiled.assembly
    with pytest.raises(RunError, match=r"s_nop \d+ is missing"):
        prepare(dataclasses.replace(compiled, assembly=removed), 1, free, wait_states=True)
