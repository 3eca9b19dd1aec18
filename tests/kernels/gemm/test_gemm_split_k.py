# SPDX-License-Identifier: MIT
"""Split-K against float64: both ways of adding, every number of parts, epilogues, errors."""

from __future__ import annotations

import sys

import pytest
import torch

from rocm_guide.kernels.gemm import ACTIVATIONS
from rocm_guide.kernels.gemm_split_k import choose_split, gemm_split_k, reference_split_k
from tests.kernels.gemm.cases import case, full_sums, values
from tests.kernels.this_machine import seeds


@pytest.mark.parametrize("seed", seeds(216))
def test_random_products(device, close, seed, monkeypatch, guarded):
    c = case(seed, device)
    if (seed // 7) % 2:
        full_sums(monkeypatch, c, [sys.modules["rocm_guide.kernels.gemm_split_k"]])
    split = (None, 1, 2, 3, 4, 8, 64)[seed % 7]
    atomic = seed % 3 == 0
    out_dtype = torch.float32 if c.a.element_size() == 1 and c.a.dtype != torch.int8 else None
    got = gemm_split_k(c.a, c.b, split=split, atomic=atomic, out_dtype=out_dtype)
    expected = reference_split_k(c.a, c.b)
    if got.dtype == torch.int32:
        assert torch.equal(got.cpu().double(), expected.cpu())
    else:
        close(got, expected, length=c.a.shape[1] + 64, magnitude=c.magnitude)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues(device, close, activation, seed):
    c = case(seed, device)
    bias = values((c.b.shape[1],), torch.float32, c.rng, device) if seed % 3 else None
    alpha = (1.0, 0.5, -0.003)[seed % 3]
    got = gemm_split_k(c.a, c.b, bias, split=3, activation=activation, alpha=alpha, out_dtype=torch.float32)
    expected = reference_split_k(c.a, c.b, bias, activation=activation, alpha=alpha)
    big = 0.0 if bias is None else bias.abs().max().double().cpu()
    close(got, expected, length=c.a.shape[1] + 16, magnitude=1.2 * abs(alpha) * c.magnitude.cpu() + big)


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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"split": 0}, "split=0"),
        ({"split": 65}, "split=65"),
        ({"split": 2.0}, "split=2.0"),
        ({"split": True}, "split=True"),
        ({"atomic": True, "alpha": 2.0}, "atomic"),
        ({"atomic": True, "out_dtype": torch.float16}, "atomic"),
        ({"activation": "tanh"}, "tanh"),
        ({"alpha": float("nan")}, "alpha=nan"),
    ],
)
def test_wrong_options(device, options, text):
    arguments = torch.ones(2, 3, device=device), torch.ones(3, 5, device=device)
    gemm_split_k(*arguments, split=2), gemm_split_k(*arguments, split=1)  # remembered, these let no bad call pass
    gemm_split_k(*arguments, atomic=True)
    with pytest.raises(ValueError, match=text):
        gemm_split_k(*arguments, **options)
