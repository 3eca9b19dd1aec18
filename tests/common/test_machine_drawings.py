# SPDX-License-Identifier: MIT
"""Drawings of machine code at work show what was computed."""

import matplotlib as mpl

from cdna.explain.banks import bank_access
from cdna.isa.kernel import parse_asm
from cdna.predict import loop_budget
from rocm_guide.common.drawn_machine_code import draw_banks, draw_budget, draw_lane_map

mpl.use("Agg")
LOOP = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\nf:\nL1:\n v_add_f32 v7, v7, v7\n s_cbranch_scc1 L1\n s_endpgm\n'


def test_drawings_show_what_was_computed():
    ax = draw_lane_map("v_mfma_f32_16x16x16_f16", "A")
    assert [t.get_text() for t in ax.texts[:5]] == ["0", "0", "0", "0", "16"]
    ax = draw_banks(bank_access([128 * lane for lane in range(64)], 4), title="column")
    assert {t.get_text() for t in ax.texts} == {"32x"} and "64 cycles" in ax.get_title(loc="left")
    assert draw_budget(loop_budget(parse_asm(LOOP)[0]), title="t")
    mpl.pyplot.close("all")
