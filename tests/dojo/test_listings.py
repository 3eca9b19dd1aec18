# SPDX-License-Identifier: MIT
"""Listings to be repaired: the repair passes, and every other change is refused with a line that names the mistake."""

from __future__ import annotations

import re

import pytest

from cdna.grade import GradeError
from rocm_guide.dojo import LISTINGS, grade


def changed(text, *pairs):
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


WAIT, BANKS = (LISTINGS[name].starter for name in ("missing_wait", "bank_conflicts"))
BEFORE_BARRIER = ("  s_barrier\n", "  s_waitcnt lgkmcnt(0)\n  s_barrier\n")
AT_THE_END = ("  s_waitcnt lgkmcnt(0)\n  v_add", "  s_waitcnt vmcnt(0) lgkmcnt(0)\n  v_add")
WAITS = changed(WAIT, BEFORE_BARRIER, AT_THE_END)
PADDED = changed(BANKS, ("0x80", "0x84"), ("0x80", "0x84"), ("size 4096", "size 4224"))
SWIZZLE = (
    BANKS.replace("v_mul_u32_u24_e32 v4, 0x80, v2  ", "v_xor_b32_e32 v8, v2, v3\n  v_mul_u32_u24_e32 v4, 0x80, v2")
    .replace("v_lshl_add_u32 v4, v3, 2, v4", "v_lshl_add_u32 v4, v8, 2, v4")
    .replace("v_lshl_add_u32 v5, v2, 2, v5", "v_lshl_add_u32 v5, v8, 2, v5")
)
RIGHT = {
    "missing_wait": [
        WAITS,
        WAITS.replace("s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt lgkmcnt(0)\n  s_waitcnt vmcnt(0)"),
    ],
    "bank_conflicts": [PADDED, SWIZZLE],
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_repair_passes_and_the_starter_does_not(name):
    for text in RIGHT[name]:
        assert grade(text, name).passed, str(grade(text, name))
    assert not grade(LISTINGS[name].starter, name).passed


WRONG = [
    (WAIT, "missing_wait", "race: lane 0 reads byte 1020 of LDS"),
    (changed(WAIT, BEFORE_BARRIER), "missing_wait", "line 17.*reads v3.*s_waitcnt is missing or too weak"),
    (changed(WAIT, AT_THE_END), "missing_wait", "race"),
    (changed(WAITS, ("vmcnt(0) lgkmcnt(0)", "vmcnt(1) lgkmcnt(0)")), "missing_wait", "reads v3.*missing or too weak"),
    (changed(WAITS, ("vmcnt(1)", "vmcnt(2)")), "missing_wait", "reads v2.*missing or too weak"),
    (
        changed(WAITS, ("vmcnt(1)", "vmcnt(0)")),
        "missing_wait",
        r"vmcnt\(0\) waits for more.*vmcnt\(1\) is enough in line 11",
    ),
    (changed(WAITS, ("  s_barrier\n", "")), "missing_wait", "race|nobody has written"),
    (changed(WAITS, ("  s_waitcnt lgkmcnt(0)\n  global", "  global")), "missing_wait", "still loading"),
    (changed(WAITS, ("  global_store", "  s_waitcnt vmcnt(0)\n  global_store")), "missing_wait", "waits for more"),
    (
        changed(
            WAITS,
            ("  s_waitcnt vmcnt(0) lgkmcnt(0)\n  v_add", "  s_waitcnt lgkmcnt(0)\n  v_add"),
            ("  s_waitcnt lgkmcnt(0)\n  s_barrier", "  s_waitcnt vmcnt(0) lgkmcnt(0)\n  s_barrier"),
        ),
        "missing_wait",
        r"vmcnt\(0\) waits earlier than is needed -> wait for it before line \d+ \(v_add_f32_e32 v2, v2, v3\)",
    ),
    (
        changed(WAITS, ("  s_waitcnt lgkmcnt(0)\n  global", "  s_waitcnt lgkmcnt(0)\n  v_mov_b32_e32 v5, 0\n  global")),
        "missing_wait",
        r"lgkmcnt\(0\) waits earlier than is needed",
    ),
    (changed(WAITS, ("0x3fc", "0x3f8")), "missing_wait", "LDS|bounds|outside"),
    (
        changed(WAITS, ("v_add_f32_e32 v2, v2, v3", "v_sub_f32_e32 v2, v2, v3")),
        "missing_wait",
        r"element \[0\] is .* is right",
    ),
    (BANKS, "bank_conflicts", "1056 cycles of LDS; without conflicts 64 -> rows that begin in different banks"),
    (changed(BANKS, ("0x80", "0x84"), ("size 4096", "size 4224")), "bank_conflicts", "nobody has written"),
    (changed(BANKS, ("0x80", "0x84"), ("0x80", "0x84")), "bank_conflicts", "LDS"),
    (
        PADDED.replace("0x84", "0x88").replace("4224", "4608"),
        "bank_conflicts",
        "96 cycles of LDS|cycles of LDS; without",
    ),
    (PADDED.replace("0x84", "0x104").replace("4224", "8320"), "bank_conflicts", "8,320 bytes.*4,608 bytes or fewer"),
    (changed(SWIZZLE, ("v5, v8, 2", "v5, v2, 2")), "bank_conflicts", "element .* is right"),
    (PADDED.replace("  s_barrier\n", ""), "bank_conflicts", "nobody has written.*then all meet"),
    (PADDED.replace("v_lshl_add_u32 v5, v2, 2, v5", "v_mov_b32_e32 v5, v4"), "bank_conflicts", "element .* is right"),
]


@pytest.mark.parametrize(("text", "name", "said"), WRONG, ids=[f"{w[1]}-{i}" for i, w in enumerate(WRONG)])
def test_a_mistake_is_named(text, name, said):
    result = grade(text, name)
    assert not result.passed and re.search(said, str(result)), str(result)


def test_a_result_that_has_not_gone_through_lds_is_refused():
    direct = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  v_sub_u32_e32 v4, 0x3fc, v1
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v4, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:1024
  s_waitcnt vmcnt(0)
  v_add_f32_e32 v2, v2, v3
  global_store_dword v1, v2, s[6:7]
"""
    start, end = WAIT.index("  s_load"), WAIT.index("  s_endpgm")
    said = str(grade(WAIT[:start] + direct + WAIT[end:], "missing_wait"))
    assert "[FAIL] LDS" in said and "0 moved" in said


def test_what_is_no_listing_is_one_line():
    with pytest.raises(GradeError, match="missing_wait wants the text of a listing"):
        grade(print, "missing_wait")
    for text in ("", "no such thing", WAIT.replace("ds_read_b32", "ds_reed_b32"), WAIT + WAIT):
        result = grade(text, "missing_wait")
        assert not result.passed and "Traceback" not in str(result) and "\n" not in result.checks[0].found
    endless = WAITS.replace("  s_endpgm", ".L:\n  s_branch .L\n  s_endpgm")
    assert "[FAIL] result" in str(grade(endless, "missing_wait"))
