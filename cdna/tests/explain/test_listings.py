# SPDX-License-Identifier: MIT
"""Annotated listings: every line has words, waits and loads belong together, tensors get the right names."""

import pytest
import torch

from cdna.compile import compile_kernel
from cdna.examples.int4_scores import tile_matmul
from cdna.examples.tuning import attention_rows, scale_rows
from cdna.explain.listings import explain_loop
from cdna.isa.kernel import IsaError, parse_asm

HALF = torch.empty(4096, 4096, dtype=torch.float16, device="meta")


@pytest.fixture(scope="module", params=["gemm", "attention"])
def case(request):
    if request.param == "gemm":
        c = compile_kernel(tile_matmul, [HALF, HALF, HALF, 4096, 4096, 4096], {"BM": 128, "BN": 128, "BK": 32})
        return c, tile_matmul, {"a_ptr", "b_ptr"}
    x = HALF[:, :128]
    c = compile_kernel(attention_rows, [x, x, x, x, 0.1, 4096], {"D": 128, "BM": 64, "BN": 32}, num_stages=1)
    return c, attention_rows, {"k_ptr", "v_ptr"}


def test_every_line_says_what_it_is(case):
    compiled, function, tensors = case
    lines = explain_loop(compiled, function).lines
    assert len(lines) > 40 and all(x.what or x.text.startswith("s_") for x in lines)
    loads = [x for x in lines if x.kind == "global"]
    assert {x.tensor for x in loads} == tensors and all("tl.load(" in x.code for x in loads)
    assert {x.tensor for x in lines if x.kind == "lds"} <= {*tensors, ""}
    assert any("cycles" in x.what for x in lines if x.kind == "mfma")


def test_each_load_has_the_wait_that_names_it(case):
    compiled, function, _ = case
    lines = explain_loop(compiled, function).lines
    waits = {x.line for x in lines if x.text.startswith("s_waitcnt")}
    for x in lines:
        if x.kind in ("lds", "global"):
            assert int(x.wait.split("line ")[1].split(" ")[0]) in waits, x


def test_hand_worked_waits():
    text = """f:
L1:
 global_load_dword v1, v[2:3], off
 global_load_dword v4, v[2:3], off
 s_setprio 1
 s_waitcnt vmcnt(1)
 v_exp_f32 v5, v1
 s_cbranch_scc1 L1
 s_endpgm
"""
    lines = explain_loop(parse_asm(text)[0]).lines
    said = {x.line: x for x in lines}
    assert said[6].wait == "for lines 4, 3"  # of the turn before, and the first of this one
    assert said[3].wait == "done after the wait in line 6"
    assert "quarter rate" in said[7].what and "ping-pong" in said[5].what


def test_a_kernel_without_a_loop_is_named():
    x = torch.empty(16, dtype=torch.float32, device="meta")
    c = compile_kernel(scale_rows, [x, x, 2.0, 4096], {"BLOCK": 1024})
    assert explain_loop(c)
    with pytest.raises(IsaError, match="f has no loop"):
        explain_loop(parse_asm("f:\n v_mov_b32 v1, 0\n s_endpgm")[0])
