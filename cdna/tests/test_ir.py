# SPDX-License-Identifier: MIT
"""The IR parser on real dumps of three Triton releases, against Triton's own metadata and counts by hand."""

from __future__ import annotations

import re

import pytest

from cdna.ir.layouts import parse_layout, wave_bits
from cdna.ir.lds import crosses_waves
from cdna.ir.program import IrError, parse_ir
from cdna.ir.text import parse_op, parse_type
from tests.counted import assert_linear
from tests.mutate import SAMPLES, budget, campaign, mutated

DUMPS = sorted(p.name for p in SAMPLES.glob("*.ttgir"))


def text(name):
    return (SAMPLES / name).read_text()


def program(name):
    return parse_ir(text(name))[0]


def uses(name):
    return [(u.reasons, u.bytes) for u in program(name).lds_uses]


@pytest.mark.parametrize("name", DUMPS)
def test_every_operation_line_is_read(name):
    wanted = []
    for n, line in enumerate(text(name).split("\n"), 1):
        if re.match(r'\s+(%[^=]*= )?"?(tt|ttg|triton_gpu|amdg|amdgpu|arith|scf|math)\.(?!func)\w', line):
            wanted.append(n)
    assert [op.line for op in program(name).operations] == wanted


@pytest.mark.parametrize("name", DUMPS)
def test_every_result_gets_the_type_that_mlir_prints(name):
    p = program(name)
    for op in p.operations:
        if len(op.results) == 1 and "->" in op.text and not op.name.startswith(("scf", "tt.reduce")):
            printed = parse_type(op.text.rsplit("->", 1)[1])
            assert p.values[op.results[0]].type == printed, op.text
        for operand in op.operands:
            assert operand in p.values, (op.line, operand)


@pytest.mark.parametrize("name", DUMPS)
def test_header_and_layouts(name):
    p = program(name)
    assert (p.header.waves, p.header.lanes, p.header.target) == (4, 64, "hip:gfx942")
    aliases = re.findall(r"^(#\w+) = #(?:ttg|triton_gpu)\.(\w+)<", text(name), re.MULTILINE)
    assert {name: p.layouts[name].spelling for name, _ in aliases} == dict(aliases)
    tensors = [v for v in p.tensors() if v.layout is not None]
    assert tensors
    assert all(v.layout.kind != "unknown" for v in tensors)


def test_int4_example_in_old_triton_goes_through_lds_twice_for_k():
    assert uses("int4kv_t31.ttgir") == [
        (("layout change",), 64 * 8 * 4),
        (("transpose", "dot operand"), 64 * 64 * 2),
        (("dot operand",), 16 * 64 * 2),
    ]


@pytest.mark.parametrize("name", ["int4kv_t36.ttgir", "int4kv_t39.ttgir"])
def test_int4_example_in_current_triton_transposes_in_registers(name):
    assert sorted(uses(name)) == sorted(
        [(("layout change",), 64 * 8 * 4), (("dot operand",), 16 * 64 * 2), (("dot operand",), 64 * 64 * 2)]
    )
    # The largest buffer is what Triton's metadata reports: the buffers live one after the other in the same place.
    assert max(u.bytes for u in program(name).lds_uses) == 8192


@pytest.mark.parametrize("name", ["gemm_t36.ttgir", "gemm_t39.ttgir", "gemm_t31.ttgir"])
def test_gemm_stages_both_operands(name):
    p = program(name)
    assert [u.bytes for u in p.lds_uses] == [8192, 8192]  # 128 x 32 and 32 x 128 fp16; metadata.shared is 16384
    assert all("dot operand" in u.reasons and u.depth == 1 for u in p.lds_uses)
    assert all(("pipelining" in u.reasons) == (name != "gemm_t31.ttgir") for u in p.lds_uses)
    assert all(len(u.stores) == len(u.loads) == 2 for u in p.lds_uses)
    assert all(g.lane_bits == 128 for g in p.global_accesses if g.access == "load")


def test_reductions_leave_one_partial_result_per_wave():
    assert uses("softmax_t39.ttgir") == [(("reduction",), 16), (("reduction",), 16)]  # metadata.shared is 16


def test_sources_point_into_the_kernel():
    lines = (SAMPLES / "sample_kernels.py").read_text().split("\n")
    for g in program("gemm_t39.ttgir").global_accesses:
        file, line, _ = g.operation.source.split(":")
        assert file == "sample_kernels.py"
        assert f"tl.{g.access}" in lines[int(line) - 1]
    for u in program("softmax_t39.ttgir").lds_uses:
        assert re.search(r"tl\.(max|sum)", lines[int(u.source.split(":")[1]) - 1])


def test_a_value_is_followed_from_global_memory_to_the_matrix_core_and_back():
    p = program("int4kv_t39.ttgir")
    load = next(g for g in p.global_accesses if g.value.type.shape == (64, 8))
    forward = p.forward(load.value.name)
    moves = [s.move for s in forward if s.move]
    assert moves == [
        "global -> registers",
        "registers -> LDS -> registers",
        "registers -> LDS",
        "LDS -> registers",
        "registers -> global",
    ]
    assert forward[-1].operation.name == "tt.store"
    dot = next(op for op in p.operations if op.name == "tt.dot")
    way = p.path(load.value.name, dot.results[0])
    assert way[0].operation is load.operation
    assert way[-1].operation is dot
    names = {s.operation.name for s in p.backward(dot.results[0])}
    assert {"tt.load", "tt.trans", "ttg.local_load", "tt.make_range"} <= names
    assert p.path(dot.results[0], load.value.name) == []
    with pytest.raises(IrError, match="value=%nope"):
        p.forward("%nope")


def test_a_trace_follows_values_round_a_loop():
    p = program("gemm_t39.ttgir")
    loop = next(op for op in p.operations if op.name == "scf.for")
    store = next(op for op in p.operations if op.name == "tt.store")
    reached = {s.operation.name for s in p.backward(store.operands[1])}
    assert {"scf.for", "tt.dot", "tt.load", "ttg.local_load", "amdg.in_thread_transpose"} <= reached
    assert all(op.depth == 1 for op in p.operations if loop.line < op.line < store.line and op.name == "tt.load")
    # What goes into the loop comes out of it, and a branch's value comes from what it yields.
    start = next(name for name, v in p.values.items() if v.type.shape == (128, 128) and v.line < loop.line)
    assert store in [s.operation for s in p.forward(start)]
    last = next(op for op in p.operations if op.name == "tt.dot" and op.depth == 0)
    assert last in [s.operation for s in p.backward(store.operands[1])]
    carried = next(op for op in p.operations if op.name == "tt.dot" and op.depth == 1)
    first = next(op for op in p.operations if op.name == "ttg.local_store" and op.depth == 0)
    assert carried in [s.operation for s in p.forward(first.operands[0])]


@pytest.mark.parametrize(
    ("before", "after", "crosses"),
    [
        ("[4, 1]", "[4, 1]", False),
        ("[4, 1]", "[2, 2]", True),
        ("[4, 1]", "[1, 4]", True),
        ("[1, 4]", "[4, 1]", False),  # the shape is one column wide: with [1, 4] every wave holds all rows
    ],
)
def test_crossing_waves(before, after, crosses):
    values = []
    for waves in (before, after):
        layout = BLOCKED.format([1, 1], [16, 4], waves, [1, 0])
        values.append(parse_ir(f"%1 = arith.addi %0, %0 : tensor<64x1xi32, {layout}>")[0].values["%1"])
    assert crosses_waves(*values) is crosses


OLDEST = """
#blocked = #triton_gpu.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 64], warpsPerCTA = [4, 1], order = [1, 0]}>
#shared = #triton_gpu.shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>
#shared1 = #triton_gpu.shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0, 1]}>
#mma = #triton_gpu.mfma<{nonKDim = 32, warpsPerCTA = [4, 1], isTransposed = true}>
#operand = #triton_gpu.dot_op<{opIdx = 1, parent = #mma, kWidth = 4}>
%1 = tt.load %0 {cache = 1 : i32, evict = 1 : i32, isVolatile = false} : tensor<32x64xf16, #blocked> loc(#loc1)
%2 = triton_gpu.convert_layout %1 : (tensor<32x64xf16, #blocked>) -> tensor<32x64xf16, #shared>
%3 = tt.trans %2 : (tensor<32x64xf16, #shared>) -> tensor<64x32xf16, #shared1>
%4 = triton_gpu.convert_layout %3 : (tensor<64x32xf16, #shared1>) -> tensor<64x32xf16, #blocked>
%5 = arith.mulf %4, %4 : tensor<64x32xf16, #blocked>
%6 = triton_gpu.convert_layout %5 : (tensor<64x32xf16, #blocked>) -> tensor<64x32xf16, #shared1>
%7 = triton_gpu.convert_layout %6 : (tensor<64x32xf16, #shared1>) -> tensor<64x32xf16, #operand>
"""


def test_the_oldest_spelling_where_tensors_themselves_are_shared():
    p = parse_ir(OLDEST)[0]
    assert [(u.reasons, u.line) for u in p.lds_uses] == [(("transpose",), 8), (("dot operand",), 12)]
    assert [s.move for s in p.path("%1", "%7") if s.move] == [
        "global -> registers",
        "registers -> LDS",
        "LDS -> registers",
        "registers -> LDS",
        "LDS -> registers",
    ]
    assert p.values["%3"].memory == "LDS"


def test_a_dump_of_several_passes():
    two = "".join(f"// -----// IR Dump Before {name}: (p) //----- //\n{text('softmax_t39.ttgir')}\n" for name in "AB")
    assert [p.stage for p in parse_ir(two)] == ["A", "B"]


BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = {}, order = {}}}>"


@pytest.mark.parametrize(
    ("layout", "shape", "bits"),
    [
        (BLOCKED.format([1, 8], [4, 16], [4, 1], [1, 0]), (128, 128), [((0, 2),), ((0, 3),)]),
        (BLOCKED.format([1, 8], [4, 16], [2, 2], [1, 0]), (128, 256), [((1, 7),), ((0, 2),)]),
        (BLOCKED.format([4], [64], [4], [0]), (512,), [((0, 8),), None]),
        (
            "#ttg.amd_mfma<{version = 3, warpsPerCTA = [2, 2], instrShape = [32, 32, 8], isTransposed = true}>",
            (128, 64),
            [((1, 5),), ((0, 5),)],
        ),
        (
            "#ttg.linear<{register = [[1, 0]], lane = [[0, 8]], warp = [[8, 0], [16, 0]], block = []}>",
            (32, 128),
            [((0, 3),), ((0, 4),)],
        ),
        (
            "#ttg.dot_op<{opIdx = 0, parent = #ttg.amd_mfma<{version = 3, warpsPerCTA = [2, 2], "
            "instrShape = [32, 32, 8], isTransposed = true}>, kWidth = 4}>",
            (128, 32),
            [None, ((0, 5),)],
        ),
        (
            "#ttg.dot_op<{opIdx = 1, parent = #ttg.amd_mfma<{version = 3, warpsPerCTA = [1, 4], "
            "instrShape = [16, 16, 16], isTransposed = true}>, kWidth = 4}>",
            (16, 64),
            [((1, 4),), ((1, 5),)],
        ),
        ("#ttg.swizzled_shared<{vec = 4, perPhase = 1, maxPhase = 16, order = [1, 0]}>", (32, 128), None),
    ],
)
def test_which_index_bits_choose_the_wave(layout, shape, bits):
    assert wave_bits(parse_layout(layout), shape) == bits


def brute_force_wave(per, lanes, waves, order, index):
    """The wave that holds an element of a blocked layout, by walking the tile as the dialect's manual describes it."""
    coordinate = [(i // (p * n)) % w for i, p, n, w in zip(index, per, lanes, waves, strict=True)]
    wave, stride = 0, 1
    for dim in order:
        wave += coordinate[dim] * stride
        stride *= waves[dim]
    return wave


def test_wave_bits_of_blocked_layouts_element_by_element():
    cases = [([1, 2], [16, 4], [4, 1], [1, 0]), ([2, 2], [8, 8], [2, 4], [0, 1]), ([1, 4], [4, 16], [2, 2], [1, 0])]
    for per, lanes, waves, order in cases:
        bits = wave_bits(parse_layout(BLOCKED.format(per, lanes, waves, order)), (64, 64))
        for i in range(64):
            for j in range(64):
                wave = brute_force_wave(per, lanes, waves, order, (i, j))
                for b, where in enumerate(bits):
                    if where is not None:
                        assert (wave >> b) & 1 == sum(((i, j)[d] >> k) & 1 for d, k in where) % 2


@pytest.mark.parametrize(
    ("line", "operands", "out"),
    [
        ("%x:2 = scf.for %i = %a to %b step %c iter_args(%p = %q, %r = %s) -> (f32, i32)  : i32 {", 5, ("f32", "i32")),
        ("%3 = arith.extf %2 : tensor<4xf16, #b> to tensor<4xf32, #b>", 1, ("tensor<4xf32, #b>",)),
        ("amdg.buffer_store %4, %0[%c], %m : !tt.ptr<bf16> -> tensor<4xbf16, #b>", 4, ("tensor<4xbf16, #b>",)),
        ('%7 = "tt.reduce"(%6) <{axis = 0 : i32}> ({', 1, ()),
    ],
)
def test_lines(line, operands, out):
    op = parse_op(line)
    assert len(op.operands) == operands
    assert op.out_types == out


def test_nothing_to_read_is_a_named_error():
    for bad in ("", "module {\n}", "define void @f() {\n ret void\n}", "#blocked = #ttg.blocked<{}>"):
        with pytest.raises(IrError, match="ttgir"):
            parse_ir(bad)
    with pytest.raises(IrError, match="braces"):
        parse_ir("%1 = arith.addi %0, %0 : i32\n" + "%2 = scf.if %1 -> (i32) {\n" * 500)


def test_work_grows_linearly():
    one = text("gemm_t39.ttgir")
    assert len(parse_ir(one * 12)) == 12
    assert_linear(parse_ir, one * 3, one * 12, times=4)


def test_truncated_anywhere():
    whole = text("int4kv_t31.ttgir")
    for end in range(0, len(whole), 1 if budget(0) else 61):
        try:
            p = parse_ir(whole[:end])[0]
        except IrError:
            continue
        p.lds_uses, p.conversions, p.global_accesses


def test_fuzz():
    samples = [text(n).encode() for n in ("softmax_t39.ttgir", "int4kv_t31.ttgir", "gemm_t39.ttgir")]
    samples += [s[3000:8000] for s in samples] + [OLDEST.encode()] * 3

    def parse(data):
        for p in parse_ir(data.decode("utf-8", "replace")):
            p.lds_uses, p.conversions, p.global_accesses, p.tensors()
            for name in list(p.values)[:3]:
                p.forward(name), p.backward(name)

    campaign(parse, IrError, mutated(samples, budget(300), seed=3))
