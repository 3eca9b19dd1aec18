# SPDX-License-Identifier: MIT
"""Costs of attention against brute force."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.tune.attention.cost import (
    SlowMemory,
    attention_flops,
    flash_traffic,
    saved_for_backward,
    standard_traffic,
    visible_tiles,
)

SIZES = [(8, 8, 2, 2), (7, 12, 3, 4), (12, 7, 4, 3), (1, 9, 4, 4), (9, 1, 4, 4), (16, 16, 16, 16), (0, 4, 2, 2)]


def mask(queries, keys, causal):
    every = torch.ones(queries, keys, dtype=torch.bool)
    return every.tril(keys - queries) if causal else every


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_tiles_and_flops_by_brute_force(size, causal):
    queries, keys, block_m, block_n = size
    seen = mask(queries, keys, causal)
    tiles = [
        seen[i : i + block_m, j : j + block_n] for i in range(0, queries, block_m) for j in range(0, keys, block_n)
    ]
    assert visible_tiles(*size, causal=causal) == sum(bool(t.any()) for t in tiles)
    assert attention_flops(2, 3, queries, keys, 8, causal=causal) == 4 * 6 * 8 * int(seen.sum())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_flash_traffic_is_what_a_tiled_loop_moves(size, causal):
    queries, keys, block_m, block_n = size
    d, memory = 4, SlowMemory()
    q, k = torch.zeros(queries, d, dtype=torch.float16), torch.zeros(keys, d, dtype=torch.float16)
    seen = mask(queries, keys, causal)
    for i in range(0, queries, block_m):
        memory.load(q[i : i + block_m])
        for j in range(0, keys, block_n):
            if seen[i : i + block_m, j : j + block_n].any():
                memory.load(k[j : j + block_n])
                memory.load(k[j : j + block_n])
        memory.store(q[i : i + block_m])
        memory.store(torch.zeros(len(q[i : i + block_m])))
    assert memory.total == flash_traffic(queries, keys, d, block_m, block_n, causal=causal)


def test_standard_traffic():
    memory, n, d = SlowMemory(), 6, 4
    x, s = torch.zeros(n, d, dtype=torch.float16), torch.zeros(n, n, dtype=torch.float16)
    for tensor, way in [
        (x, "load"),
        (x, "load"),
        (s, "store"),
        (s, "load"),
        (s, "store"),
        (s, "load"),
        (x, "load"),
        (x, "store"),
    ]:
        getattr(memory, way)(tensor)
    assert memory.total == standard_traffic(n, n, d) and memory.loaded > memory.stored


def test_saved_for_backward_counts_memory_once():
    x = torch.ones(100, requires_grad=True)
    assert saved_for_backward(lambda: x * x) == 400
    with torch.no_grad():
        assert saved_for_backward(lambda: x * x) == 0


def test_refusal():
    with pytest.raises(GuideError, match="tiles of 0 x 2"):
        visible_tiles(4, 4, 0, 2)
