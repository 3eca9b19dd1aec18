# SPDX-License-Identifier: MIT
"""The sparse trick: every number once, never more than two of four, and the exact product."""

from __future__ import annotations

import pytest
import torch

from cdna.hip.sparse import compress, lane_registers, run_smfmac, sparse_product, spread_rows
from cdna.hip.toolchain import HipError
from rocm_guide.kernels.fp8 import FP8, decode_fp8


def fp8_numbers(*shape: int) -> torch.Tensor:
    """Finite e4m3fnuz values of all sizes: their products and sums of hundreds are exact in float64."""
    codes = torch.randint(0, 256, shape, dtype=torch.int64)
    return decode_fp8(torch.where(codes == 0x80, 0, codes).to(torch.uint8), FP8["e4m3fnuz"])


def expand(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    rows, half = values.shape
    out = torch.zeros(rows, half // 2, 4, dtype=values.dtype)
    out.scatter_(-1, places.reshape(rows, half // 2, 2), values.reshape(rows, half // 2, 2))
    return out.reshape(rows, half * 2)


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("depth", [64, 128, 448])
def test_the_product_is_exact(rows, depth):
    torch.manual_seed(rows * depth)
    a, w = fp8_numbers(rows, depth), fp8_numbers(16, depth)
    assert torch.equal(sparse_product(a, w), a.double() @ w.double().T)


def test_zeros_in_the_dense_rows_change_nothing():
    a, w = fp8_numbers(8, 64), fp8_numbers(16, 64)
    a[:, ::3], a[4], a[5, :60] = 0, 0, 0
    assert torch.equal(sparse_product(a, w), a.double() @ w.double().T)


def test_spread_rows_hold_every_number_once_in_the_pattern():
    dense = torch.arange(1, 8 * 64 + 1).reshape(8, 64)
    sparse = spread_rows(dense)
    assert sparse.shape == (16, 64) and torch.equal(sparse[0::2] + sparse[1::2], dense)
    assert torch.equal((sparse != 0).reshape(16, 16, 4).sum(-1), torch.full((16, 16), 2))
    values, places = compress(sparse)
    assert torch.equal(expand(values, places), sparse)
    # What the HIP kernel passes: two bits for each place, 0100 for places 0 and 1, 1110 for places 2 and 3.
    positions = lane_registers(sparse, torch.zeros(16, 64))[1]
    assert positions.tolist() == [0x4444, 0xEEEE] * 32


def test_any_2_4_sparse_matrix_survives_compression_and_the_instruction():
    torch.manual_seed(3)
    a = fp8_numbers(16, 64).reshape(16, 16, 4)
    a.scatter_(-1, torch.rand(16, 16, 4).topk(2, dim=-1).indices, 0)
    a = a.reshape(16, 64)
    values, places = compress(a)
    assert bool((places[:, 0::2] < places[:, 1::2]).all()) and torch.equal(expand(values, places), a)
    w = fp8_numbers(16, 64)
    out = run_smfmac(*lane_registers(a, w))
    wanted = (a.double() @ w.double().T).reshape(4, 4, 16).permute(0, 2, 1).reshape(64, 4)
    assert torch.equal(out, wanted)


def test_wrong_places_give_a_wrong_product():
    a, w = fp8_numbers(8, 64), fp8_numbers(16, 64)
    registers = lane_registers(spread_rows(a), w)
    right = run_smfmac(*registers)
    assert not torch.equal(run_smfmac(registers[0], torch.full((64,), 0x4444), registers[2]), right)


def test_what_is_refused():
    with pytest.raises(HipError, match="more than two"):
        compress(torch.ones(1, 4))
    with pytest.raises(HipError, match="multiple of four"):
        compress(torch.ones(1, 6))
    for a, w in (((9, 64), (16, 64)), ((8, 63), (16, 63)), ((8, 64), (15, 64))):
        with pytest.raises(HipError, match="give"):
            sparse_product(torch.ones(a), torch.ones(w))
