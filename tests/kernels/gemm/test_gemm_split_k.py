# SPDX-License-Identifier: MIT
"""Split-K against float64: both ways of adding, every number of parts, errors."""

from __future__ import annotations

import sys

import pytest
import torch

from rocm_guide.kernels.gemm_split_k import choose_split, gemm_split_k, reference_split_k
from tests.kernels.gemm.cases import case, full_sums
from tests.kernels.this_machine import seeds


@pytest.mark.parametrize("seed", seeds(216))
def test_random_products(device, close, seed, monkeypatch, guarded):
    c = case(seed, device)
    if (seed // 7) % 2:
        full_sums(monkeypatch, c, [sys.modules["rocm_guide.kernels.gemm_split_k"]])
    split = (None, 1, 2, 3, 4, 8, 64)[seed % 7]
    atomic = seed % 3 == 0
    got = gemm_split_k(c.a, c.b, split=split, atomic=atomic)
    expected = reference_split_k(c.a, c.b)
    if got.dtype == torch.int32:
        assert torch.equal(got.cpu().double(), expected.cpu())
    else:
        close(got, expected, length=c.a.shape[1] + 64, magnitude=c.magnitude)


def test_parts_in_order_repeat_bit_for_bit(device):
    sizes, repeats = ((65, 250), 1) if device == "cpu" else ((65, 500), 3)
    c = case(1, device, types=[torch.float32], sizes=sizes)
    first = gemm_split_k(c.a, c.b, split=7)
    assert all(torch.equal(first, gemm_split_k(c.a, c.b, split=7)) for _ in range(repeats))


@pytest.mark.parametrize(
    ("tiles", "steps", "units"), [(1, 1, 304), (5, 1000, 304), (64, 128, 304), (305, 9, 304), (0, 1, 4)]
)
def test_choose_split(tiles, steps, units):
    split = choose_split(tiles, steps, units)
    assert 1 <= split <= min(64, max(steps, 1))
    assert split * max(tiles, 1) >= min(units, 64 * max(tiles, 1), max(tiles, 1) * steps)


@pytest.mark.parametrize("split", [0, 65, 2.0, True])
def test_wrong_splits(device, split):
    with pytest.raises(ValueError, match=f"split={split}"):
        gemm_split_k(torch.ones(2, 3, device=device), torch.ones(3, 5, device=device), split=split)
