# SPDX-License-Identifier: MIT
"""Each suggestion must come up where its cause is, stay away where it is not, and point at the right lines."""

from __future__ import annotations

import re

import pytest

from cdna.inspection import inspect_assembly, inspect_code_object, inspect_ir
from cdna.ir.program import parse_ir
from cdna.isa.analysis import register_roles, vgprs_of
from cdna.isa.kernel import parse_asm
from cdna.occupancy import occupancy
from cdna.page import annotate_source, render_page
from cdna.suggest import suggest
from tests.mutate import SAMPLES


def text(name):
    return (SAMPLES / name).read_text()


def suggestions(name, lds=16384):
    k = parse_asm(text(f"{name}.amdgcn"))[0]
    ir = SAMPLES / f"{name}.ttgir"
    program = parse_ir(ir.read_text())[0] if ir.exists() else None
    r = k.resources
    occ = occupancy(r.vgprs_allocated, lds, waves_per_workgroup=4, sgprs=r.sgprs_allocated)
    return {s.rule: s for s in suggest(k, occ, program)}


@pytest.mark.parametrize(
    ("name", "there", "absent"),
    [
        ("gemm_t39", {"registers"}, {"narrow-store", "spills", "narrow-load", "exposed-wait", "lds-trip", "scratch"}),
        ("gemm_unaligned_t39", {"narrow-load", "narrow-store", "narrow-lds-store"}, {"spills"}),
        ("gemm_spill_t39", {"spills"}, {"narrow-load", "scratch"}),
        ("gemm_padded_t39", {"registers"}, {"spills", "narrow-load"}),
        ("softmax_t39", set(), {"narrow-load", "narrow-store", "spills", "lds-trip", "no-matrix-core"}),
        ("int4kv_t39", {"lds-trip", "narrow-load"}, {"spills", "no-matrix-core"}),
    ],
)
def test_which_suggestions_come_up(name, there, absent):
    found = set(suggestions(name))
    assert there <= found
    assert not absent & found


def loop(*body):
    """A kernel of one loop; returns the rules that come up."""
    lines = "".join(f" {line}\n" for line in body)
    return {s.rule for s in suggest(parse_asm(f"f:\nL1:\n{lines} s_cbranch_scc1 L1\n s_endpgm")[0])}


def test_a_wait_is_exposed_only_without_work_since_the_load():
    load, wait = "global_load_dwordx4 v[0:3], v[8:9], off", "s_waitcnt vmcnt(0)"
    add, mfma = "v_add_f32 v4, v4, v5", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]"
    assert "exposed-wait" in loop(load, wait)
    assert "exposed-wait" in loop(load, *[add] * 15, wait)
    assert "exposed-wait" not in loop(load, *[add] * 16, wait)
    assert "exposed-wait" in loop(load, mfma, wait) and "exposed-wait" not in loop(load, mfma, mfma, wait)
    assert "exposed-wait" not in loop(load, "s_waitcnt vmcnt(1)")
    assert "exposed-wait" not in loop(add, wait), "no load, nothing to expose"


def test_lds_accesses_are_narrow_below_64_bits():
    for bits, op in ((16, "ds_read_u16"), (32, "ds_read_b32")):
        assert "narrow-lds-load" in loop(*[f"{op} v{i}, v9" for i in range(5)]), bits
        assert "narrow-lds-load" not in loop(*[f"{op} v{i}, v9" for i in range(4)]), "a few are nobody's bottleneck"
    assert "narrow-lds-load" not in loop(*[f"ds_read_b64 v[{2 * i}:{2 * i + 1}], v20" for i in range(5)])
    assert "narrow-lds-store" in loop(*[f"ds_write_b32 v9, v{i}" for i in range(5)])


@pytest.mark.parametrize("name", ["gemm_t39", "gemm_unaligned_t39", "gemm_spill_t39", "int4kv_t39"])
def test_evidence_is_the_line_that_it_says(name):
    lines = {"assembly": text(f"{name}.amdgcn").split("\n")}
    if (SAMPLES / f"{name}.ttgir").exists():
        lines["ttgir"] = text(f"{name}.ttgir").split("\n")
    for s in suggestions(name).values():
        for e in s.evidence:
            line = re.sub(r"\s+", " ", lines[e.text][e.line - 1])
            assert re.sub(r"\s+", " ", e.code)[:60] in line, s.rule


def test_numbers_in_a_suggestion_are_those_of_the_code():
    s = suggestions("gemm_unaligned_t39")["narrow-load"]
    assert s.found.startswith("16 global loads in loops move 16 bits")
    spill = suggestions("gemm_spill_t39")["spills"]
    assert spill.found.startswith(f"{text('gemm_spill_t39.amdgcn').count(' Folded ')} instructions")
    assert "12 fewer" in suggestions("gemm_t39")["registers"].found  # 140 used, 128 admit a fourth wave
    assert "caps the kernel at 2 waves" in suggestions("gemm_padded_t39")["registers"].found


def test_register_roles_of_a_gemm():
    roles = register_roles(parse_asm(text("gemm_t39.amdgcn"))[0])
    assert roles.accumulators == 128 * 128 // (4 * 64)  # the tile's results over the lanes of four waves
    assert roles.loads == (128 * 32 + 32 * 128) * 2 // 4 // (4 * 64)  # two fp16 tiles in 32-bit registers
    assert vgprs_of("v[0:1], s[2:3], a[4:6], v7, vcc, 0x7") == ["v0", "v1", "a4", "a5", "a6", "v7"]


def test_an_idle_register_is_found_and_one_used_in_the_loop_is_not():
    body = " v_mov_b32 v8, 0\n v_mov_b32 v9, 0\nL1:\n v_add_f32 v1, v8, v1\n s_cbranch_scc1 L1\n v_add_f32 v2, v8, v9\n"
    roles = register_roles(parse_asm(f"f:\n{body} s_endpgm")[0])
    assert (roles.idle, roles.first_idle_use) == (1, 7)
    assert register_roles(parse_asm("f:\n s_endpgm")[0]) is None


def test_a_dot_without_matrix_instructions():
    k = parse_asm("f:\nL1:\n v_fma_f32 v0, v1, v2, v0\n s_cbranch_scc1 L1\n s_endpgm")[0]
    found = [s for s in suggest(k, None, parse_ir(text("gemm_t39.ttgir"))[0]) if s.rule == "no-matrix-core"]
    assert found
    assert found[0].evidence[0].text == "ttgir"


def test_a_store_of_a_matrix_result_is_no_fault_of_the_pointers():
    assert "narrow-store" not in suggestions("gemm_t39")
    assert "narrow-load" in suggestions("int4kv_t39")  # a load is judged as before


def test_one_number_for_the_whole_workgroup_is_no_narrow_store():
    asm = """
\t.type\tk,@function
k:
\t.file\t1 "k.py"
\t.loc\t1 3 5
\tglobal_store_dword v0, v1, s[0:1]
\ts_endpgm
"""
    scalar = parse_ir('tt.store %p, %v : !tt.ptr<f32> loc("k.py":3:5)')[0]
    tile = parse_ir('tt.store %p, %v : tensor<64x!tt.ptr<f32>, #b> loc("k.py":3:5)')[0]
    kernel = parse_asm(asm)[0]
    assert [s.rule for s in suggest(kernel, None, scalar)] == []
    assert [s.rule for s in suggest(kernel, None, None)] == ["narrow-store"]
    assert tile.global_accesses
    assert not scalar.lds_uses


SPREAD = """
#b = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [64], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%p: tensor<1024x!tt.ptr<i64>, #b>) {
    %x = tt.load %p : tensor<1024x!tt.ptr<i64>, #b> loc("k.py":3:5)
    tt.return
  }
}
"""


@pytest.mark.parametrize(("loads", "expected"), [(1, []), (2, []), (3, []), (4, ["narrow-load"])])
def test_a_number_that_neighbours_share_is_no_narrow_load(loads, expected):
    """Four numbers of 64 bits in a lane: with fewer loads than that, some are the same number."""
    lines = "\tglobal_load_dwordx2 v[0:1], v2, s[0:1]\n" * loads
    asm = f'\t.type\tk,@function\nk:\n\t.file\t1 "k.py"\n\t.loc\t1 3 5\n{lines}\ts_endpgm\n'
    assert [s.rule for s in suggest(parse_asm(asm)[0], None, parse_ir(SPREAD)[0])] == expected


STORE = """
#m = #ttg.amd_mfma<{version = 3, warpsPerCTA = [2, 2], instrShape = [16, 16, 16], isTransposed = true}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%q: !tt.ptr<f16>) {
    %p = tt.splat %q : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>, #m>
    %v = arith.constant dense<0.0> : tensor<64x64xf16, #m>
    tt.store %p, %v : tensor<64x64x!tt.ptr<f16>, #m> loc("k.py":3:5)
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("store", "expected"), [("dwordx2", []), ("short", ["a global store moves 16 bits per lane, 64"])]
)
def test_a_store_from_the_matrix_cores_layout_is_narrow_only_below_it(store, expected):
    """Four halves of a row are what a matrix instruction leaves in a lane; single ones are an alignment's fault."""
    line = f"\tglobal_store_{store} v0, v[2:3], s[0:1]"
    asm = f'\t.type\tk,@function\nk:\n\t.file\t1 "k.py"\n\t.loc\t1 3 5\n{line}\n\ts_endpgm\n'
    found = suggest(parse_asm(asm)[0], None, parse_ir(STORE)[0])
    assert [s.found.removesuffix(" is possible") for s in found] == expected


@pytest.mark.parametrize(
    ("stages", "said"), [(None, "num_stages=2, where"), (1, "num_stages=2, where"), (3, "=3 is there")]
)
def test_nobody_is_told_to_set_the_stages_that_are_set(stages, said):
    lines = " global_load_dword v1, v[2:3], off\n s_waitcnt vmcnt(0)\n s_cbranch_scc1 L1\n s_endpgm"
    found = {s.rule: s for s in suggest(parse_asm(f"f:\nL1:\n{lines}")[0], stages=stages)}
    assert said in found["exposed-wait"].fix


def test_inspections_of_dumps():
    one = inspect_assembly(text("gemm_t39.amdgcn"), lds=16384)[0]
    assert (one.occupancy.waves_per_simd, one.threads, one.lds) == (3, 256, 16384)
    assert not [f for f in one.findings if f.rule == "dynamic-lds"]
    assert [f.rule for f in inspect_assembly(text("gemm_t39.amdgcn"))[0].findings] == ["dynamic-lds"]
    code = inspect_code_object((SAMPLES / "gemm_t39.hsaco").read_bytes(), lds=16384)[0]
    assert code.occupancy == one.occupancy
    assert code.kernel is None
    ir = inspect_ir(text("int4kv_t31.ttgir"))[0]
    assert [s.rule for s in ir.suggestions] == ["lds-trip", "lds-trip"]
    assert ir.to_dict()["ir"]["waves"] == 4
    assert [one.name for one in inspect_assembly(text("hip_clang22.s"))] == ["copy16", "mfma_tile", "calls"]


def test_the_page_is_whole_and_harmless():
    found = inspect_assembly(text("gemm_spill_t39.amdgcn").replace("gemm:", "gemm:"), lds=16384)
    page = render_page(found, [["<svg></svg>"]], [{"sample_kernels.py:26": "acc = <script>alert(1)</script>"}])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert page.count("<h2>") == 1
    lines = annotate_source(found[0])
    assert sum(sum(line.kinds.values()) for line in lines) == sum(bool(i.source) for i in found[0].kernel.instructions)
    assert any(line.suggestions for line in lines)
