# SPDX-License-Identifier: MIT
"""Each part of a bound in a program that needs this part alone, worked by hand; and what is not charged is said."""

import numpy as np
import pytest

from cdna.costs import SOURCES, Costs
from cdna.predict import gpu, model_time
from cdna.predict.achieved import CONSTANTS
from cdna.predict.times import LEFT_OUT
from cdna.run import run
from tests.run.harness import text_of

MHZ = 2100
POINTER = "  s_load_dwordx2 s[2:3], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n  v_lshlrev_b32_e32 v1, {shift}, v0\n"
ONE_POINTER = "  .amdhsa_kernarg_size 8"
ARGUMENTS = """    .args:
      - .address_space: global
        .offset: 0
        .size: 8
        .value_kind: global_buffer
"""


def parts(code, array=None, lds=0):
    """Microseconds by part of one wave on one compute unit."""
    text = text_of(code, lds, extra=ONE_POINTER if array is not None else "")
    if array is not None:
        text = text.replace("    .name:           test\n", f"{ARGUMENTS}    .name:           test\n")
    return model_time(run(text, 1, [] if array is None else [array])).parts


def test_matrix_cores():
    # 32 x 32 x 8 products of fp16 at 512 operations a cycle on one of four SIMDs, over which a model spreads the work.
    mfma = "  v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], 0\n" * 10
    found = parts("  v_mov_b64 v[2:3], 0\n  v_mov_b64 v[4:5], 0\n" + mfma + "  s_nop 15\n  s_nop 7")
    assert found["matrix cores"] == pytest.approx(10 * 2 * 32 * 32 * 8 / 512 / 4 / MHZ)
    assert max(found, key=found.get) == "matrix cores"


@pytest.mark.parametrize(("op", "cycles"), [("v_add_f32_e32 v2, v2, v2", 4), ("v_exp_f32_e32 v2, v2", 16)])
def test_vector_alu(op, cycles):
    found = parts("  v_mov_b32_e32 v2, 0\n" + f"  {op}\n" * 20)
    assert found["vector ALU"] == pytest.approx((4 + 20 * cycles) / 4 / MHZ)
    assert {part for part, us in found.items() if us} == {"vector ALU"}


@pytest.mark.parametrize(("shift", "slower"), [(2, 1), (7, 32)])
def test_lds(shift, slower):
    # 64 lanes store 4 bytes: 256 bytes at 128 a cycle; at a distance of 128 bytes all 32 lanes of a half meet one bank.
    found = parts(f"  v_lshlrev_b32_e32 v1, {shift}, v0\n" + "  ds_write_b32 v1, v0\n" * 10, lds=8192)
    assert found["LDS"] == pytest.approx(10 * slower * 256 / 128 / MHZ)


def test_vector_l1_and_hbm():
    # 64 lanes load 16 bytes each: 8 lines of 128 bytes. The second load asks the vector L1 for them again.
    load = "  global_load_dwordx4 v[4:7], v1, s[2:3]\n  s_waitcnt vmcnt(0)\n"
    data = np.zeros(4096 + 32, np.uint32)
    data = data[(-data.ctypes.data // 4) % 32 :][:256]  # it begins with a line
    found = parts(POINTER.format(shift=4) + 2 * load, data)
    assert found["vector L1"] == pytest.approx(2 * 8 * Costs().line_cycles / MHZ)
    assert found["HBM"] == pytest.approx(8 * 128 / gpu("MI300X").bandwidth_tb_s / 1e6)


def test_every_constant_has_a_source_and_what_is_left_out_is_said():
    assert {*Costs.__dataclass_fields__} - {*SOURCES} == set()
    assert all(source for _, _, source in CONSTANTS.values()) and all(SOURCES.values())
    # Parts that a launch has and no bound charges, by their names.
    for word in ("latencies", "L2", "issue", "atomics", "clock"):
        assert word in LEFT_OUT["launch"]
