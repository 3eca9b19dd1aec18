# SPDX-License-Identifier: MIT
"""The assembly parser against LLVM's own notes in real files, a disassembler, counts by hand, and damage."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdna.isa.body import loop_headers, loop_nesting
from cdna.isa.kernel import IsaError, parse_asm
from cdna.isa.mnemonics import matrix_shape, meaning, wait_counts
from cdna.resources import allocated_vgprs
from tests.counted import assert_linear
from tests.mutate import SAMPLES, budget, campaign, mutated

ASSEMBLY = sorted(p.name for p in SAMPLES.iterdir() if p.suffix in (".amdgcn", ".s"))
TRITON = [n for n in ASSEMBLY if n.endswith(".amdgcn")]


def text(name):
    return (SAMPLES / name).read_text()


def body_lines(name, kernel):
    """The function's lines, found by a way of its own: from its label to .Lfunc_end."""
    lines = text(name).split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{kernel}:"))
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(".Lfunc_end"))
    return [(i + 1, lines[i]) for i in range(start, end)]


@pytest.mark.parametrize("name", ASSEMBLY)
def test_every_instruction_line_is_read_once(name):
    for kernel in parse_asm(text(name)):
        expected = [n for n, line in body_lines(name, kernel.name) if re.match(r"\t[a-z]\w*_\w+", line)]
        assert [i.line for i in kernel.instructions] == expected


@pytest.mark.parametrize("name", ASSEMBLY)
def test_loop_depth_is_what_llvm_writes_beside_each_block(name):
    seen = 0
    for kernel in parse_asm(text(name)):
        depth = {i.line: i.depth for i in kernel.instructions}
        stated, left = 0, False
        for number, line in body_lines(name, kernel.name):
            if re.match(r"\.LBB\w+:|; %bb\.", line):
                stated, left = 0, False
            if m := re.search(r"(?:Loop Header: |Header=BB\w+ )Depth=(\d+)", line):
                stated = int(m[1])
                seen += 1
            # LLVM continues the note of a nested header on lines of its own; "Parent Loop" gives the outer ones.
            # LLVM's block may end in two branches; what follows the conditional one runs only on the way out.
            if number in depth and not left:
                assert depth[number] == stated, (name, number, line)
                left = "s_cbranch" in line
        loops = sum("Loop Header" in line for _, line in body_lines(name, kernel.name))
        assert len(kernel.loops) == loops
    assert seen or "softmax" in name or "int4kv" in name


def test_nested_loops_of_triton_and_clang():
    nested = parse_asm(text("nested_t39.amdgcn"))[0]
    assert {loop.depth for loop in nested.loops} == {1, 2}  # LLVM splits the inner loop in two
    inner = max(nested.loops, key=lambda loop: loop.depth)
    outer = min(nested.loops, key=lambda loop: loop.depth)
    assert outer.first_line <= inner.first_line <= inner.last_line <= outer.last_line
    assert {k.name: max([loop.depth for loop in k.loops], default=0) for k in parse_asm(text("hip_clang22.s"))} == {
        "copy16": 1,
        "mfma_tile": 2,
        "calls": 0,
        "_Z6helperfi": 1,
    }


@pytest.mark.parametrize("name", TRITON)
def test_resources_equal_the_metadata_note_and_llvms_comments(name):
    kernel = parse_asm(text(name))[0]
    r = kernel.resources

    def note(key):
        return int(re.search(rf"{re.escape(key)}:\s*(\d+)", text(name))[1])

    assert (r.vgprs, r.agprs, r.sgprs) == (note("    .vgpr_count"), note("  - .agpr_count"), note("    .sgpr_count"))
    assert (r.vgpr_spills, r.sgpr_spills) == (note("    .vgpr_spill_count"), note("    .sgpr_spill_count"))
    assert r.scratch == note("    .private_segment_fixed_size") == note("; ScratchSize")
    assert r.arch_vgprs == note("; NumVgprs")
    assert r.accum_offset == note("; AccumOffset")
    assert r.code_bytes == int(re.search(r"; codeLenInByte = (\d+)", text(name))[1])
    # LLVM prints the register blocks that go into the descriptor, minus one: granule 8 (VGPR), SGPR pairs of 8.
    assert r.vgprs_allocated == (note("; VGPRBlocks") + 1) * 8
    assert r.sgprs_allocated == (note("; SGPRBlocks") // 2 + 1) * 16
    assert r.llvm_occupancy == note("; Occupancy")
    assert (r.wavefront_size, r.max_workgroup_size) == (64, 256)


def test_waves_per_eu_pads_what_is_allocated_not_what_is_used():
    r = parse_asm(text("gemm_padded_t39.amdgcn"))[0].resources
    assert (r.vgprs, r.vgprs_allocated, r.llvm_occupancy) == (66, 176, 2)


@pytest.mark.parametrize(
    ("code", "disassembly"), [("gemm_t39.amdgcn", "gemm_t39.objdump"), ("hip_clang22.s", "hip_clang22.objdump")]
)
def test_a_disassembly_gives_the_same_instructions_and_loops(code, disassembly):
    a = {k.name: k for k in parse_asm(text(code))}
    b = {k.name: k for k in parse_asm(text(disassembly))}
    assert a.keys() == b.keys()
    for name, kernel in a.items():
        assert [(i.op, i.depth) for i in kernel.instructions] == [(i.op, i.depth) for i in b[name].instructions]
        assert [loop.instructions for loop in kernel.loops] == [loop.instructions for loop in b[name].loops]


@pytest.mark.skipif(
    not shutil.which("llvm-objdump-19"), reason="llvm-objdump-19 is not installed (apt install llvm-19)"
)
@pytest.mark.parametrize("name", ["gemm_t39", "gemm_spill_t39", "gemm_padded_t39"])
def test_llvm_objdump_of_the_code_object_agrees(name):
    command = ["llvm-objdump-19", "-d", str(SAMPLES / f"{name}.hsaco")]
    dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    asm, dis = parse_asm(text(f"{name}.amdgcn"))[0], parse_asm(dump)[0]
    assert asm.mix() == dis.mix()
    assert asm.mix(in_loops=True) == dis.mix(in_loops=True)


def test_counts_by_hand():
    k = parse_asm(text("gemm_t39.amdgcn"))[0]
    raw = text("gemm_t39.amdgcn").split("gemm:", 1)[1].split(".Lfunc_end0")[0]
    assert sum(u.count for u in k.matrix_uses()) == len(re.findall(r"\n\tv_mfma", raw))
    assert [(u.shape.name, u.in_loops) for u in k.matrix_uses()] == [("32x32x8 f16", 16)]
    # 128x128x32 tile, 4 waves: each wave does 2*128*128*32/4 operations in an iteration.
    assert k.mfma_flops_per_iteration == 2 * 128 * 128 * 32 // 4
    assert k.barriers == len(re.findall(r"\n\ts_barrier", raw))
    assert k.widths("global", "load", in_loops=True) == {128: 4}
    assert sum(k.widths("global", "store").values()) == len(re.findall(r"\n\t(?:global|buffer)_store", raw))
    pairs = len(re.findall(r"\n\tds_read2", raw))
    assert sum(k.widths("lds", "load").values()) == len(re.findall(r"\n\tds_read", raw)) + pairs
    assert parse_asm(text("gemm_unaligned_t39.amdgcn"))[0].widths("global", "load", in_loops=True) == {16: 16}


def test_spills_of_a_register_starved_kernel():
    k = parse_asm(text("gemm_spill_t39.amdgcn"))[0]
    folded = text("gemm_spill_t39.amdgcn").count(" Folded ")
    assert k.spill_instructions == folded > 0
    assert k.mix()["scratch"] >= folded
    assert k.resources.vgpr_spills > 0
    assert k.resources.scratch > 0


def test_sources_are_lines_of_the_users_file():
    k = parse_asm(text("softmax_t39.amdgcn"))[0]
    assert {i.source.split(":")[0] for i in k.instructions} <= {"sample_kernels.py", ""}
    loads = {i.source.rsplit(":", 1)[0] for i in k.select("global", "load")}
    lines = (SAMPLES / "sample_kernels.py").read_text().split("\n")
    assert all("tl.load" in lines[int(s.split(":")[1]) - 1] for s in loads)


def test_device_functions_and_calls():
    kernels = {k.name: k for k in parse_asm(text("hip_clang22.s"))}
    assert [k.is_entry for k in kernels.values()] == [True, True, True, False]
    assert kernels["calls"].calls == 1
    assert kernels["mfma_tile"].resources.lds_static == 128 * 8
    assert kernels["mfma_tile"].barriers == 2
    assert kernels["copy16"].widths("global", "load", in_loops=True) == {128: 1}


def test_waits():
    k = parse_asm(text("gemm_t39.amdgcn"))[0]
    raw = re.findall(r"s_waitcnt (.*)", text("gemm_t39.amdgcn"))
    assert len(k.waits()) == len(raw)
    assert all(w.counts for w in k.waits())
    assert wait_counts("vmcnt(63) expcnt(7) lgkmcnt(15)") == {"vmcnt": 63, "expcnt": 7, "lgkmcnt": 15}
    assert wait_counts("0x0070") == {"vmcnt": 0, "lgkmcnt": 0}
    assert wait_counts("0xcf7f") == {}
    assert wait_counts("lots") == {}


@pytest.mark.parametrize(
    ("op", "kind", "access", "bits"),
    [
        ("global_load_dwordx3", "global", "load", 96),
        ("flat_store_byte", "global", "store", 8),
        ("buffer_load_sbyte_d16_hi", "global", "load", 8),
        ("buffer_load_format_xyzw", "global", "load", 128),
        ("global_load_lds_dwordx4", "global", "load", 128),
        ("global_atomic_add_f32", "global", "atomic", 32),
        ("global_atomic_pk_add_bf16", "global", "atomic", 32),
        ("ds_read_u16_d16_hi", "lds", "load", 16),
        ("ds_read2st64_b64", "lds", "load", 128),
        ("ds_write_b96", "lds", "store", 96),
        ("ds_read_b64_tr_b16", "lds", "load", 64),
        ("ds_add_rtn_u32", "lds", "atomic", 32),
        ("ds_bpermute_b32", "permute", "", 0),
        ("scratch_store_dwordx2", "scratch", "store", 64),
        ("s_load_dwordx16", "smem", "load", 512),
        ("s_buffer_load_dwordx4", "smem", "load", 128),
        ("s_memtime", "smem", "", 0),
        ("s_barrier", "barrier", "", 0),
        ("s_waitcnt_lgkmcnt", "waitcnt", "", 0),
        ("s_swappc_b64", "branch", "", 0),
        ("v_accvgpr_write_b32", "valu", "", 0),
        ("v_smfmac_f32_16x16x64_fp8_fp8", "mfma", "", 0),
        ("buffer_wbl2", "other", "", 0),
        ("s_nop", "other", "", 0),
        ("s_and_saveexec_b64", "salu", "", 0),
    ],
)
def test_meaning_of_mnemonics(op, kind, access, bits):
    assert meaning(op)[:3] == (kind, access, bits)
    assert meaning(op).pieces == (2 if "read2" in op or "write2" in op else 1)


@pytest.mark.parametrize(
    ("op", "flops"),
    [
        # FLOPs per wave as the CDNA 3 ISA guide's table of matrix instructions gives them: 2 * M * N * K * blocks.
        ("v_mfma_f32_32x32x1f32", 4096),
        ("v_mfma_f32_16x16x4f32", 2048),
        ("v_mfma_f32_4x4x1_16b_f32", 512),
        ("v_mfma_f32_4x4x4f16", 2048),
        ("v_mfma_f32_32x32x4bf16", 8192),
        ("v_mfma_f32_32x32x4bf16_1k", 16384),
        ("v_mfma_f32_32x32x4_2b_bf16", 16384),
        ("v_mfma_i32_32x32x16_i8", 32768),
        ("v_mfma_f64_16x16x4_f64", 2048),
        ("v_mfma_f32_16x16x8_xf32", 4096),
        ("v_mfma_f32_16x16x32_fp8_bf8", 16384),
        ("v_mfma_f32_32x32x16_bf16", 32768),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", 65536),
    ],
)
def test_matrix_flops(op, flops):
    assert matrix_shape(op).flops == flops


def test_allocation_granule():
    assert [allocated_vgprs(n) for n in (1, 8, 9, 164, 170, 512)] == [8, 8, 16, 168, 176, 512]
    assert allocated_vgprs(9, "gfx908") == 12


def natural_loops(successors):
    """Headers by definition: targets of edges from a block that they dominate (brute force over paths)."""
    n = len(successors)

    def reach(without):
        seen, work = set(), [0] if without != 0 else []
        while work:
            b = work.pop()
            if b not in seen:
                seen.add(b)
                work += [t for t in successors[b] if t != without]
        return seen

    reachable = reach(-1)
    dominated = {b: reachable - reach(b) for b in range(n)}
    return {t for b in reachable for t in successors[b] if b in dominated[t]}


@given(
    st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=2), min_size=n, max_size=n))
)
@settings(max_examples=400, deadline=None)
def test_loop_headers_contain_the_natural_loops(successors):
    headers = loop_headers(successors)[1]
    assert natural_loops(successors) <= headers
    assert all(depth >= 0 for depth in loop_nesting(successors))


def nested(n):
    """A kernel of ``n`` loops, each inside the one before."""
    lines = ["f:"] + [f"L{i}:\n s_nop 0" for i in range(n)] + [f" s_cbranch_scc1 L{i}" for i in reversed(range(n))]
    return "\n".join([*lines, " s_endpgm"])


def test_deep_nesting_takes_linear_work():
    n = 20_000
    kernel = parse_asm(nested(n))[0]
    assert max(i.depth for i in kernel.instructions) == n
    assert_linear(parse_asm, nested(500), nested(4000), times=8)


def copies_of_a_gemm(copies):
    one = text("gemm_t39.amdgcn")
    return "\n".join(one.replace("gemm", f"gemm{i}").replace(".LBB0", f".LBB{i}") for i in range(copies))


@pytest.mark.slow
def test_megabytes_take_linear_work():
    copies = 2_000_000 // len(text("gemm_t39.amdgcn")) + 1
    assert {k.name for k in parse_asm(copies_of_a_gemm(copies))} == {f"gemm{i}" for i in range(copies)}
    assert_linear(parse_asm, copies_of_a_gemm(copies // 10), copies_of_a_gemm(copies // 10 * 8), times=8)


def test_nothing_to_read_is_a_named_error():
    for bad in ("", "hello", "f:\n", ".amdgpu_metadata\n---\n", "%0 = tt.load %1 : tensor<4xf32>"):
        with pytest.raises(IsaError, match="llvm-objdump"):
            parse_asm(bad)


def test_truncated_anywhere_it_reads_what_is_there():
    whole = text("nested_t39.amdgcn")
    full = parse_asm(whole)[0]
    for end in range(0, len(whole), 1 if budget(0) else 13):
        try:
            kernels = parse_asm(whole[:end])
        except IsaError:
            continue
        assert len(kernels) == 1
        assert len(kernels[0].instructions) <= len(full.instructions) + 1


def test_fuzz():
    samples = [text(n).encode() for n in ("nested_t39.amdgcn", "hip_clang22.s")]
    samples += [text("gemm_padded_t39.amdgcn").encode()[:9000], text("gemm_t39.objdump").encode()[:6000]]

    def parse(data):
        for kernel in parse_asm(data.decode("utf-8", "replace")):
            kernel.mix(), kernel.matrix_uses(), kernel.waits(), kernel.mfma_flops_per_iteration

    campaign(parse, IsaError, mutated(samples, budget(300), seed=1))
