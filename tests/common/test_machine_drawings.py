# SPDX-License-Identifier: MIT
"""Drawings of machine code at work show what was computed."""

import matplotlib as mpl
from matplotlib.colors import to_hex

from cdna.costs import Costs
from cdna.explain.banks import bank_access
from cdna.isa.kernel import parse_asm
from cdna.predict import loop_budget
from cdna.step.timeline import Span, Timeline
from rocm_guide.common.drawn_gpus import draw_banks, draw_budget, draw_lane_map, draw_waves

mpl.use("Agg")
LOOP = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\nf:\nL1:\n v_add_f32 v7, v7, v7\n s_cbranch_scc1 L1\n s_endpgm\n'


def test_drawings_show_what_was_computed():
    ax = draw_lane_map("v_mfma_f32_16x16x16_f16", "A")
    assert [t.get_text() for t in ax.texts[:5]] == ["0", "0", "0", "0", "16"]
    ax = draw_banks(bank_access([128 * lane for lane in range(64)], 4), title="column")
    assert {t.get_text() for t in ax.texts} == {"32x"} and "64 cycles" in ax.get_title(loc="left")
    assert draw_budget(loop_budget(parse_asm(LOOP)[0]), title="t")
    mpl.pyplot.close("all")


def test_waves_in_time_begin_in_the_middle_of_the_first_and_keep_to_one_simd():
    spans = [
        Span(0, 0, "valu", 0, 0, 4, ""),
        Span(0, 1, "mfma", 10, 30, 46, "vmcnt"),  # the first wave's middle: 10 is the left edge
        Span(1, 1, "mfma", 10, 10, 26, ""),  # on another SIMD
        Span(4, 2, "barrier", 12, 20, 20, "barrier"),
    ]
    model = Timeline(Costs(), 8, spans, mfma_busy=(0, 0, 0, 0))
    (ax,) = draw_waves({"t": model}, 40).axes
    drawn = {
        (to_hex(c.get_facecolor()[0]), *map(float, (x.min(), x.max(), round(y.mean()))))
        for c in ax.collections
        for x, y in (p.vertices[:4].T for p in c.get_paths())
    }
    mpl.pyplot.close("all")
    assert {d for d in drawn if d[1] < d[2]} == {
        ("#e69f00", -10.0, -6.0, 0.0),
        ("#dddddd", 0.0, 20.0, 0.0),
        ("#0072b2", 20.0, 36.0, 0.0),
        ("#888888", 2.0, 10.0, 1.0),
    }
    assert ax.get_xlim() == (0, 40) and ax.get_ylim() == (1.5, -0.5)
