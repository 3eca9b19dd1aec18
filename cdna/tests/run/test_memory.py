# SPDX-License-Identifier: MIT
"""Memory: addresses, bounds, waits, races, atomics; what goes wrong only sometimes on hardware has a name."""

import numpy as np
import pytest

from cdna.run import RunError, prepare, run
from tests.run import harness as h

ARGS = """
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
      - .offset:         16
        .size:           4
        .value_kind:     by_value
    .max_flat_workgroup_size: {threads}
    .name:           test
.end_amdgpu_metadata
"""
HEAD = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
"""


def kernel(code, lds=0, threads=64, head=HEAD):
    text = h.text_of(head + code, lds, threads, "  .amdhsa_kernarg_size 24")
    return text.partition(".amdgpu_metadata")[0] + ARGS.format(threads=threads)


def launch(code, x=None, y=None, number=5, grid=1, order="alone", **kw):
    x = np.arange(64, dtype=np.uint32) if x is None else x
    y = np.zeros(64, np.uint32) if y is None else y
    result = run(kernel(code, **kw), grid, [x, y, number], order=order, limit=20_000)
    return x, y, result


COPY = """  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_u32_e32 v2, s8, v2
  global_store_dword v1, v2, s[6:7]
"""


def test_a_copy_and_its_counters():
    x, y, result = launch(COPY)
    np.testing.assert_array_equal(y, x + 5)
    c = result.counters
    assert (c.loaded, c.stored, c.lines, c.accesses) == (256, 256, result.counters.lines, 2) and 4 <= c.lines <= 6
    assert c.instructions["global"] == 2 and result.executed == 9
    assert 2 <= c.lines_stored <= 3 and 2 <= c.lines - c.lines_stored <= 3


def test_a_tensor_lies_in_its_lines_as_on_a_gpu_wherever_this_cpu_has_put_it():
    """Storages begin at a line; a view as far behind it as it begins behind its storage."""
    torch = pytest.importorskip("torch")
    found = set()
    for n in range(8):
        kept = [torch.zeros(64 * (n + 1)) for _ in range(n)]  # what has been allocated moves what comes
        x, y = torch.zeros(96, dtype=torch.int32), torch.zeros(64 + n, dtype=torch.int32)
        found.add((launch(COPY, x[:64], y)[2].counters.lines, launch(COPY, x[32:], y)[2].counters.lines))
        found.add((launch(COPY, x[16:80], y)[2].counters.lines - 1,) * 2)
        del kept
    assert found == {(4, 4)}


@pytest.mark.parametrize(
    ("code", "rule", "words"),
    [
        (COPY.replace("s_waitcnt vmcnt(0)", "s_nop 0"), "wait", ["v2", "global_load_dword", "line 9"]),
        (COPY.replace("v1, s[4:5]", "v1, s[4:5] offset:4"), "bounds", ["lane 63", "byte 256", "argument 1"]),
        (COPY.replace("v1, v2, s[6:7]", "v1, v2, s[6:7] offset:-8"), "bounds", ["lane 0", "byte -8", "writes"]),
        (COPY.replace("v2, s8, v2", "v2, s8, v9"), "undefined", ["v9", "lane 0"]),
        (COPY.replace("s8, v2", "s9, v2"), "undefined", ["s9"]),
        ("  s_load_dword s9, s[4:5], 0x0\n  s_add_u32 s9, s9, 1\n", "wait", ["s9", "lgkmcnt(0)"]),
        ("  s_load_dword s9, s[4:5], 0x100\n", "bounds", ["byte 256"]),
        ("  global_load_dword v2, v1, s[4:5]\n  v_mov_b32_e32 v2, 0\n", "wait", ["writes v2"]),
        ("  ds_read_b32 v2, v1\n", "undefined", ["nobody has written"]),
        ("  ds_write_b32 v1, v0 offset:4\n", "bounds", ["lane 63", "byte 256 of LDS"]),
        (
            "  ds_write_b32 v1, v0\n  ds_read_b32 v2, v1\n  s_waitcnt lgkmcnt(1)\n  v_mov_b32_e32 v3, v2\n",
            "wait",
            ["v2"],
        ),
        ("  scratch_load_dword v2, off, off offset:8\n", "undefined", ["scratch"]),
        ("  scratch_store_dword off, v0, off offset:64\n", "bounds", ["64"]),
        (".L1:\n  s_branch .L1\n", "limit", ["20000"]),
        ("  s_mov_b32 s20, 1\n  s_mov_b32 s21, 0\n  s_setpc_b64 s[20:21]\n", "text", ["0x1"]),
    ],
)
def test_each_mistake_has_its_name(code, rule, words):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(RunError) as e:
        launch(code, x, y, lds=256)
    assert e.value.rule == rule and e.value.line > 0 and "\n" not in str(e.value)
    assert all(word in str(e.value) for word in words), str(e.value)
    assert not y.any(), "arrays are unchanged after an error"


def test_loads_return_in_order():
    code = """  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(1)
  v_add_u32_e32 v4, 1, v2
"""
    launch(code)
    with pytest.raises(RunError, match="v3"):
        launch(code + "  v_add_u32_e32 v4, 1, v3\n")


def test_scalar_loads_return_in_any_order():
    code = "  s_load_dword s9, s[4:5], 0x0\n  s_load_dword s10, s[4:5], 0x4\n"
    code += "  s_waitcnt lgkmcnt({})\n  s_mov_b32 s11, s9\n"
    launch(code.format(0))
    with pytest.raises(RunError, match="s9"):
        launch(code.format(1))


def test_a_wave_sees_its_own_stores():
    code = """  v_mov_b32_e32 v2, 7
  global_store_dword v1, v2, s[6:7]
  global_load_dword v3, v1, s[6:7]
  v_add_u32_e32 v2, 1, v2
  global_store_dword v1, v2, s[6:7]
  s_waitcnt vmcnt(1)
  global_store_dword v1, v3, s[4:5]
"""
    x, y, _ = launch(code)
    assert (x == 7).all() and (y == 8).all()


EXCHANGE = """  v_lshrrev_b32_e32 v3, 6, v0
  v_xor_b32_e32 v4, 0x100, v1
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v2, v4
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[6:7]
"""


@pytest.mark.parametrize("order", ["alone", "round_robin", 1, 2, 3])
def test_two_waves_exchange_through_lds(order):
    y = np.zeros(128, np.uint32)
    launch(EXCHANGE, y=y, lds=512, threads=128, order=order)
    np.testing.assert_array_equal(y, np.arange(128) ^ 64)


@pytest.mark.parametrize("order", ["alone", "round_robin", 1, 2])
@pytest.mark.parametrize("gone", ["s_barrier", "s_waitcnt lgkmcnt(0)\n  s_barrier"])
def test_a_missing_barrier_or_wait_is_caught_in_every_order(order, gone):
    code = EXCHANGE.replace(gone, "s_barrier" if "wait" in gone else "s_nop 0", 1)
    with pytest.raises(RunError) as e:
        launch(code, y=np.zeros(128, np.uint32), lds=512, threads=128, order=order)
    assert e.value.rule in ("race", "undefined")


def test_replicated_writes_are_no_race():
    code = "  v_mov_b32_e32 v2, 9\n  v_and_b32_e32 v3, 0xff, v1\n  ds_write_b32 v3, v2\n"
    code += "  s_waitcnt lgkmcnt(0)\n  s_barrier\n"
    launch(code, y=np.zeros(128, np.uint32), lds=512, threads=128, order="round_robin")


def test_a_barrier_that_not_all_reach():
    code = (
        "  s_barrier\n"
        + "  v_readfirstlane_b32 s9, v0\n  s_cmp_eq_u32 s9, 0\n  s_cbranch_scc1 .L1\n  s_barrier\n.L1:\n"
    )
    launch(code, threads=128)  # waves that have ended do not hold up the others


@pytest.mark.parametrize(
    ("op", "f"), [("ds_add_u32", np.sum), ("ds_max_u32", np.max), ("ds_xor_b32", np.bitwise_xor.reduce)]
)
def test_lds_atomics_collide(op, f):
    code = f"""  v_mov_b32_e32 v5, 0
  v_mov_b32_e32 v6, 0
  ds_write_b32 v5, v6
  s_waitcnt lgkmcnt(0)
  global_load_dword v7, v1, s[4:5]
  s_waitcnt vmcnt(0)
  {op} v5, v7
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v8, v5
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v8, s[6:7]
"""
    x = np.random.default_rng(1).integers(0, 1 << 20, 64, dtype=np.uint32)
    _, y, _ = launch(code, x=x, lds=16)
    assert (y == f(x)).all()


def test_global_atomics_return_what_was_there():
    code = """  v_mov_b32_e32 v5, 0
  v_mov_b32_e32 v6, 3
  global_atomic_add v7, v5, v6, s[6:7] sc0
  v_lshl_add_u32 v1, s2, 8, v1
  s_waitcnt vmcnt(0)
  global_store_dword v1, v7, s[4:5]
"""
    x, y, _ = launch(code, np.zeros(192, np.uint32), grid=3)
    assert y[0] == 3 * 64 * 3 and len(set(x.tolist())) == 192


def test_compare_and_swap_and_pairs_of_halves():
    code = """  v_mov_b32_e32 v4, 50
  v_mov_b32_e32 v5, v0
  v_mov_b32_e32 v6, 0x3c003c00
  global_atomic_cmpswap v7, v1, v[4:5], s[4:5] sc0
  global_atomic_pk_add_f16 v1, v6, s[6:7]
  s_waitcnt vmcnt(0)
"""
    x, y, _ = launch(code, x=np.where(np.arange(64) % 2, np.arange(64), 99).astype(np.uint32))
    np.testing.assert_array_equal(x, np.where(np.arange(64) % 2, 50, 99))
    assert (y == 0x3C003C00).all()


def test_buffer_descriptors_bound_each_dword():
    code = """  s_mov_b32 s12, s4
  s_mov_b32 s13, s5
  s_mov_b32 s14, 200
  s_mov_b32 s15, 0x27000
  v_lshlrev_b32_e32 v6, 2, v0
  buffer_load_dwordx2 v[2:3], v6, s[12:15], 0 offen
  s_waitcnt vmcnt(0)
  buffer_store_dword v2, v6, s[12:15], 0 offen
  global_store_dword v1, v3, s[6:7]
"""
    x, y, _ = launch(code)
    i = np.arange(64)
    np.testing.assert_array_equal(y, np.where(i + 1 < 50, i + 1, 0))
    np.testing.assert_array_equal(x, i)
    with pytest.raises(RunError, match="lane 63"):
        launch(code.replace("s14, 200", "s14, 0x7ffffffe"))


def test_loads_into_lds_need_their_wait():
    code = """  s_mov_b32 m0, 16
  global_load_lds_dword v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_read_b32 v2, v1 offset:16
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[6:7]
"""
    x, y, _ = launch(code, lds=512)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(RunError, match="still loading"):
        launch(code.replace("s_waitcnt vmcnt(0)", "s_nop 0"), lds=512)


def test_narrow_accesses():
    code = """  global_load_sbyte v2, v0, s[4:5]
  global_load_ushort v3, v0, s[4:5] offset:1
  v_mov_b32_e32 v4, 0x11112222
  global_load_short_d16_hi v4, v0, s[4:5]
  scratch_store_dword off, v0, off offset:4
  scratch_load_dword v5, off, off offset:4
  s_waitcnt vmcnt(0)
  global_store_dword v1, v{}, s[6:7]
"""
    x = np.random.default_rng(2).integers(0, 1 << 32, 64, dtype=np.uint32)
    raw = x.view(np.uint8).astype(np.int64)
    i = np.arange(64)
    for n, want in (
        (2, raw[i].astype(np.int8)),
        (3, raw[i + 1] | raw[i + 2] << 8),
        (4, 0x2222 | (raw[i] | raw[i + 1] << 8) << 16),
        (5, i),
    ):
        _, y, _ = launch(code.format(n), x=x.copy())
        np.testing.assert_array_equal(y, want.astype(np.int64) & 0xFFFFFFFF)


def test_flat_addresses_reach_lds_and_scratch():
    code = """  s_mov_b64 s[10:11], src_shared_base
  v_mov_b32_e32 v2, v1
  v_mov_b32_e32 v3, s11
  flat_store_dword v[2:3], v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  ds_read_b32 v4, v1
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v4, s[6:7]
"""
    _, y, _ = launch(code, lds=256)
    np.testing.assert_array_equal(y, np.arange(64))


def test_workgroups_that_wait_for_each_other():
    code = """  v_mov_b32_e32 v5, 0
  s_cmp_eq_u32 s2, 0
  s_cbranch_scc0 .L2
.L1:
  global_load_dword v6, v5, s[6:7] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s9, v6
  s_cmp_eq_u32 s9, 0
  s_cbranch_scc1 .L1
  s_endpgm
.L2:
  v_mov_b32_e32 v7, 1
  global_store_dword v5, v7, s[6:7] sc1
"""
    text = kernel(code).replace("s_load_dwordx4", "s_nop 0\n  s_load_dwordx4", 1)
    x, y = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    session = prepare(text, 2, [x, y, 0])
    session.machine.run(slice_=200)
    session.finish()
    assert y[0] == 1


def test_arrays_that_share_memory_and_views():
    big = np.zeros(256, np.uint32)
    launch(COPY, x=big[:64], y=big[32:96])
    assert (big[32:96] == 5).all()
    with pytest.raises(RunError, match="argument 2"):
        launch(COPY, y=big[::2][:8])
    frozen = np.zeros(64, np.uint32)
    frozen.flags.writeable = False
    with pytest.raises(RunError, match="read-only"):
        launch(COPY, y=frozen)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([1, 2, 3], "pointer"),
        ([np.zeros(64)] * 2, "missing"),
        ([np.zeros(64)] * 2 + [np.float64(1)], "8 bytes"),
        ([np.zeros(64)] * 2 + [1 << 40], "does not fit"),
        ([np.zeros(64)] * 2 + ["a"], "number"),
        ([0] * 9, "9 arguments"),
        ({"x": 1}, "no parameter"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(RunError, match=words) as e:
        run(kernel(COPY), 1, arguments)
    assert e.value.rule == "arguments" and "\n" not in str(e.value)


COPIES = """
  v_lshrrev_b32_e32 v1, 6, v0
  v_readfirstlane_b32 s10, v1
  v_mov_b32_e32 v2, 1.0
  v_mov_b32_e32 v3, 0
  s_cmp_eq_u32 s10, 0
  s_cbranch_scc1 store
  v_mov_b32_e32 v2, {other}
store:
  ds_write_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("other, copies, notes", [("1.0", 0.0, 0), ("0x3f800001", 2.0**-20, 1)])
def test_copies_of_one_value_may_differ_by_what_is_allowed(other, copies, notes):
    result = run(h.text_of(COPIES.format(other=other), lds=64, threads=128), 1, [], copies=copies)
    assert len(result.notes) == notes
    assert all("ds_write_b32 v3, v2" in note and note.startswith("line ") for note in result.notes)


@pytest.mark.parametrize("other, copies", [("0x3f800001", 0.0), ("0x3f801000", 2.0**-20), ("0x7fc00000", 0.5)])
def test_copies_that_differ_by_more_are_a_race(other, copies):
    with pytest.raises(RunError, match=r"race: .* writes byte 0 of LDS"):
        run(h.text_of(COPIES.format(other=other), lds=64, threads=128), 1, [], copies=copies)


@pytest.mark.parametrize("copies", [-1, 1.0, "much", float("nan")])
def test_a_tolerance_that_makes_no_sense_is_refused(copies):
    with pytest.raises(RunError, match="copies="):
        run(h.text_of(""), 1, [], copies=copies)


LANES = np.arange(64, dtype=np.uint32)
SPILL = """  scratch_store_dwordx2 off, v[6:7], off offset:8
  scratch_load_dwordx2 v[8:9], off, off offset:8
  s_waitcnt vmcnt(0)
"""


def test_a_spill_carries_over_what_is_undefined():
    """LLVM spills a pair of which one half was never written; only who computes with that half is wrong."""
    w = h.lanes(SPILL + "  v_add_u32_e32 v10, 1, v8", {6: LANES})
    np.testing.assert_array_equal(w.V[10], np.arange(1, 65))
    assert w.valid[9] == 0
    with pytest.raises(RunError, match="v9, which was never written") as e:
        h.lanes(SPILL + "  v_add_u32_e32 v10, 1, v9", {6: LANES})
    assert e.value.rule == "undefined"
    # Lane by lane, and through a second spill; a value stored later is defined.
    half = "  s_mov_b64 exec, 0xff\n  v_mov_b32_e32 v7, 5\n  s_mov_b64 exec, -1\n"
    again = (
        SPILL.replace("v[6:7]", "v[8:9]")
        .replace("v[8:9], off, off", "v[12:13], off, off")
        .replace("offset:8", "offset:16")
    )
    w = h.lanes(half + SPILL + again, {6: LANES})
    assert w.valid[13] == 0xFF and (w.V[13][:8] == 5).all()
    w = h.lanes(
        SPILL + "  scratch_store_dword off, v6, off offset:12\n  scratch_load_dword v9, off, off offset:12\n"
        "  s_waitcnt vmcnt(0)\n  v_mov_b32_e32 v10, v9",
        {6: LANES},
    )
    np.testing.assert_array_equal(w.V[10], np.arange(64))


def test_a_spill_still_waits_and_knows_its_address():
    load = "  scratch_store_dword off, v6, off\n  scratch_load_dword v7, off, off\n"
    with pytest.raises(RunError, match="v7, which scratch_load_dword"):
        h.lanes(load + "  scratch_store_dword off, v7, off offset:4", {6: LANES})
    with pytest.raises(RunError, match="s9, which was never written"):
        h.lanes("  scratch_store_dword off, v6, s9", {6: LANES})
    with pytest.raises(RunError, match="v5, which was never written"):
        h.lanes("  scratch_store_dword v5, v6, off", {6: LANES})
