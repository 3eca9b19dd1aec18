# SPDX-License-Identifier: MIT
"""Lane maps against the executed instructions, for every shape of CDNA3."""

import numpy as np
import pytest

from cdna.explain.operand_map import MapError, execute_matrix, lane_map, matrix_operations, who_answers


@pytest.mark.parametrize("op", matrix_operations())
def test_the_maps_are_those_of_the_executed_instruction(op):
    a_map, b_map, d_map = (lane_map(op, x) for x in "ABD")
    for m in (a_map, b_map, d_map):  # each place is taken once, and the whole operand is full
        places = set(zip(m.lanes.ravel().tolist(), m.elements.ravel().tolist(), strict=True))
        assert len(places) == m.lanes.size and m.lanes.max() == 63 and m.lanes.size == 64 * (m.elements.max() + 1)
    random = np.random.default_rng(3)
    a, b = random.integers(0, 4, a_map.lanes.shape), random.integers(0, 4, b_map.lanes.shape)
    full = a
    if a_map.shape.sparse:
        full = np.zeros((1, a_map.shape.m, a_map.shape.k), int)
        full[:, :, 0::4], full[:, :, 1::4] = a[:, :, 0::2], a[:, :, 1::2]
    wanted = full @ b
    got = execute_matrix(op, a, b)[d_map.elements, d_map.lanes]
    assert (got == wanted).all()


@pytest.mark.parametrize("op", ["v_mfma_f32_32x32x8_f16", "v_mfma_f32_4x4x4_16b_bf16", "v_mfma_f64_16x16x4_f64"])
def test_a_one_in_a_is_answered_by_its_row(op):
    d, (blocks, rows, depth) = lane_map(op, "D"), lane_map(op, "A").lanes.shape
    row, k, block = rows - 2, depth - 1, blocks // 2
    wide = d.bits // 32
    wanted = [(h.lane, h.register // wide) for h in (d.holder(row, c, block) for c in range(d.shape.n))]
    assert sorted(who_answers(op, row, k, block)) == sorted((*w, c) for c, w in enumerate(wanted))


def test_known_places_of_the_matrix_calculator():
    """Lines that AMD's calculator prints for v_mfma_f32_32x32x8_f16 on CDNA3."""
    assert lane_map("v_mfma_f32_32x32x8_f16", "A").holder(31, 7)[:3] == (63, 1, 1)
    assert lane_map("v_mfma_f32_32x32x8_f16", "B").holder(4, 0)[:3] == (32, 0, 0)
    assert lane_map("v_mfma_f32_32x32x8_f16", "D").holder(8, 0)[:3] == (0, 4, 0)
    assert lane_map("v_mfma_f32_32x32x8_f16", "C").holder(4, 31)[:3] == (63, 0, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lane_map("v_add_f32"), "v_add_f32"),
        (lambda: lane_map("v_mfma_f32_16x16x16_f16", "E"), "operand='E'"),
        (lambda: lane_map("v_mfma_f32_16x16x16_f16", "A").holder(16, 0), "16 x 16"),
        (lambda: who_answers("v_smfmac_f32_16x16x32_f16", 0, 0), "sparse"),
    ],
)
def test_what_does_not_exist_is_named(call, said):
    with pytest.raises(MapError, match=said):
        call()
