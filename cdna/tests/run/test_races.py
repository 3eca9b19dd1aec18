# SPDX-License-Identifier: MIT
"""Races between workgroups in global memory are named, whatever the order; atomics and flags are none."""

import re

import numpy as np
import pytest

from cdna.run import RunError, run
from tests.run.test_memory import kernel

ORDERS = ["together", "alone", "round_robin", 3]
NUMBER = "  v_mov_b32_e32 v2, s2\n"
LOAD = "  global_load_dword v2, v1, s[4:5]\n  s_waitcnt vmcnt(0)\n"


def launch(code, grid=2, order="together"):
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    run(kernel(code), grid, [x, y, 5], order=order, limit=20_000)
    return x, y


def line_of(code, part):
    return next(n for n, text in enumerate(kernel(code).split("\n"), 1) if part in text)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("code", "here", "there"),
    [
        (NUMBER + "  global_store_dword v1, v2, s[6:7]\n", "global_store", "global_store"),
        (LOAD + "  v_add_u32_e32 v2, 1, v2\n  global_store_dword v1, v2, s[4:5]\n", "global_load", "global_store"),
        (NUMBER + "  global_store_byte v0, v2, s[6:7]\n", "global_store", "global_store"),
        (NUMBER + "  buffer_store_dword v2, v1, s[12:15], 0 offen\n", "buffer_store", "buffer_store"),
        (
            NUMBER + "  global_store_dword v1, v2, s[6:7]\n  s_waitcnt vmcnt(0)\n  s_load_dword s9, s[6:7], 0x0\n"
            "  s_waitcnt lgkmcnt(0)\n",
            "s_load_dword s9",
            "global_store",
        ),
        (
            "  global_atomic_add v1, v0, s[6:7]\n  global_load_dword v2, v1, s[6:7]\n  s_waitcnt vmcnt(0)\n",
            "global_load",
            "global_atomic",
        ),
    ],
)
def test_both_lines_are_named(order, code, here, there):
    code = "  s_mov_b64 s[12:13], s[6:7]\n  s_mov_b32 s14, 256\n  s_mov_b32 s15, 0x27000\n" + code
    with pytest.raises(RunError, match="race: ") as e:
        launch(code, order=order)
    assert e.value.rule == "race" and {int(n) for n in re.findall(r"line (\d+)", str(e.value))} <= {
        line_of(code, here),
        line_of(code, there),
    }
    assert len(re.findall(r"workgroup \(\d, 0, 0\)", str(e.value))) == 2


#: Workgroup 0 fills y and raises a flag in x[0]; workgroup 1 waits for the flag and reads y.
FLAG = """  v_mov_b32_e32 v5, 0
  v_mov_b32_e32 v6, 77
  s_cmp_eq_u32 s2, 0
  s_cbranch_scc0 .L1
  global_store_dword v1, v0, s[6:7]
  s_waitcnt vmcnt(0)
  buffer_wbl2 sc1
  s_waitcnt vmcnt(0)
  global_store_dword v5, v6, s[4:5] sc1
  s_endpgm
.L1:
  global_load_dword v7, v5, s[4:5] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s9, v7
  s_cmp_eq_u32 s9, 77
  s_cbranch_scc0 .L1
  buffer_inv sc1
  global_load_dword v2, v1, s[6:7]
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[4:5] offset:256
"""
ATOMIC = FLAG.replace("  global_store_dword v5, v6, s[4:5] sc1", "  global_atomic_swap v5, v6, s[4:5]").replace(
    "  global_load_dword v7, v5, s[4:5] sc1", "  global_atomic_or v7, v5, v5, s[4:5] sc0"
)


def flagged(code, order="together"):
    x, y = np.zeros(128, np.uint32), np.zeros(64, np.uint32)
    run(kernel(code), 2, [x, y, 5], order=order, limit=200_000)
    return x


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("code", [FLAG, ATOMIC], ids=["flag", "atomic"])
def test_a_release_and_an_acquire_order_two_workgroups(code, order):
    assert np.array_equal(flagged(code, order)[64:], np.arange(64))


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        (FLAG, "  buffer_wbl2 sc1\n"),
        (FLAG, "  buffer_inv sc1\n"),
        (ATOMIC, "  buffer_wbl2 sc1\n"),
        (ATOMIC, "  buffer_inv sc1\n"),
        (FLAG.replace("v6, s[4:5] sc1", "v6, s[4:5]"), ""),  # a plain store is no release
        (FLAG.replace("buffer_inv sc1", "buffer_inv sc0"), ""),  # that orders the waves of one workgroup
    ],
)
def test_half_of_an_order_is_none(code, gone):
    with pytest.raises(RunError, match=r"race: reads byte 0 of argument [12]"):
        flagged(code.replace(gone, ""))


@pytest.mark.parametrize(
    "code",
    [
        "  v_mov_b32_e32 v2, 7\n  global_store_dword v1, v2, s[6:7]\n",  # both write the same
        "  global_atomic_add v1, v0, s[6:7]\n",
        "  s_mul_i32 s9, s2, 6\n  v_mov_b32_e32 v3, s9\n  v_mov_b32_e32 v2, s2\n  s_mov_b64 exec, 1\n"
        "  global_store_dword v3, v2, s[6:7] offset:2\n",  # neighbours across a word
        "  v_mov_b32_e32 v2, s2\n  s_mov_b64 exec, 1\n  global_store_byte v2, v2, s[6:7] offset:1\n",
        LOAD + NUMBER + "  v_lshl_add_u32 v1, s2, 7, v1\n  s_mov_b64 exec, -1\n  s_mov_b32 exec_hi, 0\n"
        "  global_store_dword v1, v2, s[6:7]\n",  # all read one array, each writes its part of the other
    ],
)
def test_what_is_no_race(code):
    for order in ORDERS:
        launch(code, order=order)


def test_reads_of_many_workgroups_before_a_write():
    """The reader that nothing orders before the writer is found among others; what one workgroup does is ordered."""
    code = LOAD + "  s_cmp_eq_u32 s2, 6\n  s_cbranch_scc0 .L9\n  global_store_dword v1, v1, s[4:5]\n.L9:\n"
    words = r"workgroup \(6, 0, 0\).*byte 0 of argument 1, which workgroup \(0, 0, 0\) read"
    with pytest.raises(RunError, match=words):
        launch(code, grid=7)
    launch(code.replace("s2, 6", "s2, 0"), grid=1)
