# SPDX-License-Identifier: MIT
"""Details of the manual that compiled kernels seldom reach, each against a source of its own."""

import re
from fractions import Fraction

import numpy as np
import pytest

from cdna.hip.toolchain import compile_hip
from cdna.run import RunError, run
from cdna.run.arithmetic import stochastic_f8
from cdna.run.counters import bank_cycles
from cdna.run.matrix import SHAPES, layout_d
from tests.run import harness as h
from tests.run.test_memory import launch

LANE = np.arange(64)
OUT = [(m, n, b, kind == "f64") for (_, kind), shapes in SHAPES.items() for m, n, _, b in shapes]


@pytest.mark.parametrize("shape", sorted(set(OUT)), ids=str)
def test_results_lie_where_amds_calculator_puts_them(shape):
    """The calculator goes from an element of D to its register and lane: the other way round."""
    m, n, blocks, wide = shape
    tall = 1 if wide else 4  # rows that one group of lanes holds, in as many registers
    groups = 64 // n
    beside = -(-64 * tall // (m * n))  # blocks side by side in one register
    place = layout_d(m, n, blocks, wide)
    for b in range(blocks):
        for i in range(m):
            for j in range(n):
                register = b * (m * n // 64) + i // (tall * groups) * tall + i % tall
                lane = b % beside * n + i // tall % groups * beside * n + j
                assert place[register, lane] == (b * m + i) * n + j


def test_a_lane_that_is_off_is_no_source():
    """LLVM's rules: with bound_ctrl it counts as 0, without it nothing is written; the masks choose only targets."""
    a, b, mask = LANE.astype(np.uint32) + 100, LANE.astype(np.uint32) * 7, LANE % 3 != 0
    turn = "quad_perm:[1,0,3,2] row_mask:0x{} bank_mask:0x{}"
    for row, bank in ((15, 15), (5, 9)):
        code = f"v_add_u32_dpp v2, v1, v3 {turn.format(f'{row:x}', f'{bank:x}')}"
        zero = h.lanes(f"{code} bound_ctrl:0", {1: a, 2: b, 3: b}, mask=mask)
        same = h.lanes(f"{code} bound_ctrl:1", {1: a, 2: b, 3: b}, mask=mask)
        kept = h.lanes(code, {1: a, 2: b, 3: b}, mask=mask)
        source = LANE ^ 1
        target = mask & (row >> LANE // 16 & 1 == 1) & (bank >> LANE // 4 % 4 & 1 == 1)
        assert np.array_equal(zero.V[2], np.where(target, np.where(mask[source], a[source], 0) + b, b))
        assert np.array_equal(same.V[2], zero.V[2])
        assert np.array_equal(kept.V[2], np.where(target & mask[source], a[source] + b, b))
    with pytest.raises(RunError, match="undefined or still under way"):
        h.lanes("v_mov_b32_dpp v2, v9 row_shr:1 row_mask:0xf bank_mask:0xf")


def buffer(records, stride, swizzle, access, before=""):
    head = f"""  s_mov_b32 s12, s4
  s_or_b32 s13, s5, {stride << 16 | swizzle << 30:#x}
  s_mov_b32 s14, {records}
  s_mov_b32 s15, 0x27000
{before}
"""
    return launch(head + access + "  s_waitcnt vmcnt(0)\n  global_store_dword v1, v2, s[6:7]\n")[1]


def test_what_bounds_a_buffer_access():
    index = np.arange(64)
    # Raw: bytes, less the scalar offset; the offset in the instruction counts on the other side.
    for stride in (0, 8):  # a stride without an index only swizzles the cache
        y = buffer(
            200,
            stride,
            bool(stride),
            "  buffer_load_dword v2, v1, s[12:15], s8 offen offset:3\n",
            "  s_mov_b32 s8, 5\n",
        )
        assert np.array_equal(y, np.where(4 * index + 3 + 4 <= 200 - 5, index + 2, 0))
    # Structured: as many records as NUM_RECORDS says, and each as long as the stride.
    y = buffer(20, 8, 0, "  buffer_load_dword v2, v0, s[12:15], 0 idxen offset:4\n")
    assert np.array_equal(y, np.where(index < 20, 2 * index + 1, 0))
    y = buffer(
        20,
        8,
        0,
        "  buffer_load_dword v2, v[2:3], s[12:15], 0 idxen offen\n",
        "  v_and_b32_e32 v2, 15, v0\n  v_lshrrev_b32_e32 v3, 4, v0\n  v_lshlrev_b32_e32 v3, 2, v3",
    )
    assert np.array_equal(y, np.where(index < 32, 2 * (index % 16) + index // 16, 0))
    # An index without a stride adds nothing.
    y = buffer(256, 0, 0, "  buffer_load_dword v2, v0, s[12:15], 0 idxen offset:12\n")
    assert (y == 3).all()
    # What the descriptor allows must exist.
    with pytest.raises(RunError, match=r"lane 32 reads 4 bytes .* byte 256 of argument 1, which has 256"):
        buffer(99, 8, 0, "  buffer_load_dword v2, v0, s[12:15], 0 idxen\n")


BYTES = """#include "guide.h"
GUIDE_KERNEL(64) bytes(const float* x, const int* r, int* out) {
  int i = __builtin_amdgcn_workitem_id_x();
  float v = x[i]; int seed = r[i], old = 0x11223344;
  out[i] = __builtin_amdgcn_cvt_sr_fp8_f32(v, seed, old, 0);
  out[64 + i] = __builtin_amdgcn_cvt_sr_fp8_f32(v, seed, old, 1);
  out[128 + i] = __builtin_amdgcn_cvt_sr_bf8_f32(v, seed, old, 2);
  out[192 + i] = __builtin_amdgcn_cvt_sr_bf8_f32(v, seed, old, 3);
}
"""


def test_stochastic_rounding_fills_the_byte_that_clang_means(tmp_path):
    """Random bits are added to the bits of the float just below the mantissa that is kept."""
    (tmp_path / "bytes.hip").write_text(BYTES)
    text = compile_hip(tmp_path / "bytes.hip")
    found = re.findall(r"v_cvt_sr_(?:fp|bf)8_f32 .*?(op_sel:\S+)?\n", text)
    assert sorted(found) == ["", "op_sel:[0,0,0,1]", "op_sel:[0,0,1,0]", "op_sel:[0,0,1,1]"]
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(64) * 4).astype(np.float32)
    x = np.where(np.abs(x) < 0.1, np.float32(0.3), x).astype(np.float32)
    r, out = rng.integers(0, 1 << 32, 64, dtype=np.uint32), np.zeros(256, np.uint32)
    run(text, 1, [x, r, out])
    for part, (kind, byte) in enumerate([("fp8", 0), ("fp8", 1), ("bf8", 2), ("bf8", 3)]):
        kept, bias = (3, 8) if kind == "fp8" else (2, 16)
        cut = 23 - kept
        size = (x.view(np.uint32) & 0x7FFFFFFF).astype(np.uint64) + (r >> np.uint32(32 - cut))
        code = (size >> np.uint64(cut)).astype(np.int64) - ((127 - bias) << kept) | (x < 0) * 128
        want = 0x11223344 & ~(0xFF << 8 * byte) & 0xFFFFFFFF | code << 8 * byte
        assert np.array_equal(out[64 * part : 64 * part + 64], want)
        assert np.array_equal(stochastic_f8(x, r, kind), code)


def test_segments_of_two_over_pi_reduce_the_argument_of_a_sine():
    """The remainder after whole turns, from three segments by exact fractions, against numpy's sine."""
    x = np.resize([1e15, -1e22, 1.7e308, 6.4e290, 3.0, 2.0**60, -9.9e299, 1e-300], 64)
    code = "\n".join(f"  v_trig_preop_f64 v[{4 + 2 * i}:{5 + 2 * i}], v[0:1], {i}" for i in range(4))
    w = h.lanes(code, {0: x.view(np.uint32).reshape(64, 2)})
    parts = [np.stack([w.V[n], w.V[n + 1]], 1).copy().view(np.float64)[:, 0] for n in (4, 6, 8, 10)]
    assert parts[0][4] == float.fromhex("0x1.45f306dc9c882p-1")  # LLVM: 0xa2f9836e, 0x4e441529, …
    for lane in range(8):
        down = Fraction(2) ** -128 if abs(x[lane]) >= 2.0**945 else 1  # the library scales such arguments, too
        quarters = sum(Fraction(float(p[lane])) for p in parts) * Fraction(float(abs(x[lane]))) * down
        angle = float(quarters % 4) * np.pi / 2
        assert abs(np.sin(angle) * np.sign(x[lane]) - np.sin(x[lane])) < 1e-14, x[lane]


@pytest.mark.parametrize(
    ("size", "write", "groups"),
    [
        (4, False, [range(32), range(32, 64)]),
        (8, False, [range(i, i + 16) for i in range(0, 64, 16)]),
        (16, True, [range(i, i + 8) for i in range(0, 64, 8)]),
        (
            16,
            False,
            [
                [*range(k, k + 4), *range(k + d, k + d + 4)]
                for k, d in ((0, 20), (4, 12), (8, 20), (12, 12), (32, 20), (36, 12), (40, 20), (44, 12))
            ],
        ),
    ],
)
def test_lanes_that_reach_the_banks_together(size, write, groups):
    """Two lanes on one bank with different words cost a cycle if they are in one group, and nothing if not."""
    together = {(i, j) for g in groups for i in g for j in g if i != j}
    for i in range(0, 64, 5):
        for j in range(64):
            if i != j:
                lanes = np.array(sorted((i, j)))
                cycles, ideal = bank_cycles(np.array([0, 4096]), size, lanes, write)
                assert cycles - ideal == ((i, j) in together), (i, j)


def test_a_mask_of_64_bits_has_sources_of_32():
    w = h.lanes("s_bfm_b64 s[20:21], s8, s9\n s_bfm_b64 s[22:23], 64, 3\n s_bfm_b64 s[24:25], 5, 60", s={8: 40, 9: 6})
    values = [w.s[n] | w.s[n + 1] << 32 for n in (20, 22, 24)]
    assert values == [((1 << 40) - 1) << 6, 0, 0xF << 60]


INDEXED = """  s_set_gpr_idx_on s8, gpr_idx({})
  v_mov_b32_e32 v{}, v{}
  s_set_gpr_idx_off
"""


def test_a_register_chosen_by_an_index():
    rows = {20 + j: np.full(64, 100 + j, np.uint32) for j in range(4)}
    some = np.arange(64) % 2 == 0
    w = h.lanes("  v_mov_b32_e32 v4, 7\n" + INDEXED.format("SRC0", 4, 20), rows, {8: 0x302}, mask=some)
    np.testing.assert_array_equal(w.V[4][some], 102)  # the low eight bits are the index
    assert w.valid[4] == sum(1 << lane for lane in range(0, 64, 2))
    w = h.lanes(INDEXED.format("DST", 20, 4), {**rows, 4: np.arange(64, dtype=np.uint32)}, {8: 3})
    np.testing.assert_array_equal(w.V[23], np.arange(64))
    assert (w.V[20] == 100).all()
    w = h.lanes(INDEXED.format("SRC0,DST", 21, 20) + "  v_mov_b32_e32 v5, v20", rows, {8: 1})
    assert (w.V[22] == 101).all() and (w.V[5] == 100).all()
    undefined = INDEXED.format("SRC0", 4, 20) + "  v_add_u32_e32 v6, 1, v4"
    for code, index, words in (
        (undefined, 9, "v4, which was never written"),
        (INDEXED.format("SRC0", 4, 20), 240, "reads v260 by its index, and the kernel has v0 to v255"),
        (INDEXED.format("SRC0", 4, 20).replace("v_mov", "v_not"), 1, "v_not_b32_e32 with a register chosen"),
        (INDEXED.format("SRC1", 4, 20), 1, "added to SRC0, to DST, or to both"),
        (
            "  v_mov_b32_e32 v1, 0\n  scratch_store_dword off, v1, off\n  scratch_load_dword v21, off, off\n"
            + INDEXED.format("SRC0", 4, 20),
            1,
            "reads v21, which scratch_load_dword",
        ),
    ):
        with pytest.raises(RunError, match=words):
            h.lanes(code, rows, {8: index})


DYNAMIC = """#include "guide.h"
extern "C" __attribute__((global)) void pick(float* y, const float* a, const int* k) {
  typedef float row __attribute__((ext_vector_type(16)));
  row v = *(const row*)(a + 16 * thread_id());
  for (int j = 0; j < k[0]; j++) v[(k[1] + j) & 15] += 1.0f;
  *(row*)(y + 16 * thread_id()) = v;
}
"""


def test_an_array_in_registers_as_a_compiler_indexes_it(tmp_path):
    (tmp_path / "pick.hip").write_text(DYNAMIC)
    text = compile_hip(tmp_path / "pick.hip")
    assert "s_set_gpr_idx_on" in text
    a = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    y = np.zeros_like(a)
    run(text, 1, [y, a, np.int32([20, 3])], block=64)
    added = np.bincount((3 + np.arange(20)) % 16, minlength=16)
    np.testing.assert_allclose(y, a + added, rtol=1e-6, atol=1e-6)
