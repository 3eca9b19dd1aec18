# SPDX-License-Identifier: MIT
"""Predicted products: the parts by hand, and a loop that is executed."""

import pytest
import torch

from cdna.compile import compile_kernel
from cdna.costs import CostError
from cdna.examples.gemm_ladder import Rung, dot_gemm
from cdna.predict.achieved import LOADED_GHZ, likely
from cdna.predict.gemm_prediction import fetched_bytes, predict_product
from cdna.step.steady import steady_cycles

SMALL = Rung("small", dot_gemm, {"BM": 64, "BN": 64, "BK": 32}, "tiles", {"num_stages": 1})


@pytest.fixture(scope="module")
def compiled():
    half = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    return compile_kernel(SMALL.kernel, [half, half, half, 4096, 4096, 4096], SMALL.constants, **SMALL.options)


def test_the_parts_by_hand(compiled):
    p = predict_product(SMALL, compiled, 4096, cycles=100.0)
    assert p.timeline is None
    assert p.workgroups == 64 * 64 and p.rounds == -(-p.workgroups // (304 * p.resident))
    assert p.parts["HBM"] == pytest.approx(6 * 4096 * 4096 / 5.3e6)
    last = p.workgroups - (p.rounds - 1) * 304 * p.resident
    rounds = p.rounds - 1 + -(-last // 304) / p.resident
    assert p.parts["compute units"] == pytest.approx(rounds * 100 * 4096 / 2100)
    assert p.limit == "compute units" and p.microseconds == max(p.parts.values())
    assert p.matrix == pytest.approx(2 * 4096**3 / 1307.4e6, rel=1e-4)
    slower = p.matrix * (2.1 / LOADED_GHZ - 1)  # the cycles in which the matrix cores work, at their clock
    assert likely(p, launches=0).microseconds == pytest.approx(p.microseconds + slower)


def test_an_executed_loop_is_no_faster_than_its_matrix_cores(compiled):
    p = predict_product(SMALL, compiled, 4096, lengths=(64, 128))
    # 64 x 64 products for each element along K and workgroup, 1,024 in 4 cycles on each of four SIMDs.
    assert p.cycles >= p.resident * 64 * 64 * 2 / (4 * 512)
    assert p.timeline is not None and p.timeline.waves == p.resident * compiled.num_warps
    # 128 along K, at 16,384 operations for each matrix instruction of a wave
    mfma = sum(s.kind == "mfma" for s in p.timeline.spans)
    assert mfma == p.resident * 2 * 64 * 64 * 128 / 16_384


def test_what_the_caches_fetch():
    square = [(r, c) for r in range(4) for c in range(4)]
    rows_of_a_die = fetched_bytes(square, 16, (16, 16), 32, xcds=4)
    assert rows_of_a_die == 4 * 2 * 32 * 16 * (4 + 1)  # die d gets column d: four rows and one column
    assert fetched_bytes(square, 16, (16, 16), 32, xcds=1) == 2 * 32 * 16 * 8


def test_lengths_must_grow(compiled):
    with pytest.raises(CostError, match="a shorter and a longer"):
        steady_cycles(compiled, lambda k: (1, []), (64, 64))
