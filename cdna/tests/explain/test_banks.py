# SPDX-License-Identifier: MIT
"""Banks: hand-worked accesses, executed code, and the layout of the TTGIR, which must agree."""

import numpy as np
import pytest
import torch

from cdna.compile import compile_kernel
from cdna.examples.int4_scores import tile_matmul
from cdna.explain.banks import BankError, bank_access, executed_accesses, layout_access
from cdna.run.counters import bank_cycles


@pytest.fixture(scope="module")
def gemm():
    half = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    return compile_kernel(tile_matmul, [half, half, half, 4096, 4096, 4096], {"BM": 128, "BN": 128, "BK": 32})


def test_the_conflicting_lanes_are_named():
    access = bank_access([(lane % 4) * 128 + lane // 4 * 4 for lane in range(64)], 4)
    bank, turns = access.conflicts()[0]
    assert (bank, turns) == (0, [[0], [1], [2], [3]])
    assert (access.cycles, access.ideal) == (8, 2)
    same = bank_access([0] * 64, 4)
    assert same.conflicts() == [] and same.cycles == 2  # the same word is read once for all
    assert bank_access([-1] * 60 + [0, 128, 256, 384], 4).cycles == 4


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("write", [False, True])
def test_the_cycles_are_those_of_the_executor(size, write):
    random = np.random.default_rng(size)
    for stride in (1, 2, 5, 16, 33):
        at = random.permutation(64) * stride * size
        mine = bank_access(at.tolist(), size, write)
        assert (mine.cycles, mine.ideal) == bank_cycles(at, size, np.arange(64), write)


def test_the_layout_predicts_the_executed_accesses(gemm):
    predicted = layout_access(gemm.ttgir)
    assert [p.operand for p in predicted] == ["A", "B"] * 2  # in the loop, and for the last tile after it
    for p in predicted:
        assert p.swizzled.cycles == p.swizzled.ideal and p.plain.cycles == 8 * p.plain.ideal
    x, y = np.zeros((128, 64), np.float16), np.zeros((64, 128), np.float16)
    done = executed_accesses(gemm, 1, [x, y, np.zeros((128, 128), np.float16), 128, 128, 64])
    reads = [e for e in done if e.op.startswith("ds_read")]
    assert reads and all(e.conflicts == 0 and e.worst.size == 8 for e in reads)
    patterns = {tuple(a - min(e.worst.addresses) for a in e.worst.addresses) for e in reads}
    assert all(tuple(a - min(p.swizzled.addresses) for a in p.swizzled.addresses) in patterns for p in predicted)


def test_bad_accesses_are_named():
    with pytest.raises(BankError, match="63 addresses"):
        bank_access(range(63), 4)
    with pytest.raises(BankError, match="size=5"):
        bank_access(range(64), 5)
