# SPDX-License-Identifier: MIT
"""The issue budget of a loop: hand-worked, and drawn."""

import matplotlib as mpl
import pytest

from cdna.isa.kernel import parse_asm
from cdna.predict.specs import HardwareError
from cdna.predict.times import loop_budget, loop_rate

mpl.use("Agg")
HEAD = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\nf:\nL1:\n'
END = " s_cbranch_scc1 L1\n s_endpgm\n"


def loop(*code):
    return parse_asm(HEAD + "".join(f" {c}\n" for c in code) + END)[0]


def test_units_are_charged_by_hand():
    code = loop(
        "global_load_dwordx4 v[0:3], v4, s[0:1]",
        "ds_read_b128 v[8:11], v5",
        "v_exp_f32 v6, v6",
        "v_add_f32 v7, v7, v7",
        "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]",
    )
    b = loop_budget(code, waves=2)
    assert b.parts["vector ALU"] == 2 * (16 + 4) and b.parts["matrix cores"] == 2 * 32
    assert b.parts["LDS"] == 8 * 1024 / 128 and b.parts["vector L1"] == 8 * 1024 / 128
    assert b.parts["issue"] == 4 * 6 and b.loaded == 8 * 1024 and b.flops == 8 * 16384
    # 5.3 TB/s over 304 units at 2,100 MHz are 8.3 bytes a cycle for each.
    assert b.parts["HBM"] == pytest.approx(8 * 1024 / 8.302, rel=1e-3)
    assert b.limit == "HBM" and b.kind == "memory-bound"
    loads = loop("global_load_dwordx4 v[0:3], v4, s[0:1]")
    assert loop_budget(loads, waves=2, reuse=1000).limit == "vector L1"


def test_a_loop_of_matrix_instructions_runs_at_the_peak():
    b = loop_budget(loop(*["v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]"] * 8))
    assert b.kind == "compute-bound" and loop_rate(b) == pytest.approx(1307.4, rel=1e-3)
    assert "compute-bound" in str(b)


@pytest.mark.parametrize("how", [{"waves": 0}, {"waves": 9}, {"reuse": 0.5}])
def test_bad_numbers_are_named(how):
    with pytest.raises(HardwareError, match=next(iter(how))):
        loop_budget(loop("v_add_f32 v7, v7, v7"), **how)
