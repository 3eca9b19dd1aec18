# SPDX-License-Identifier: MIT
"""Stream-K: its grid model, and the kernel against float64 for every number of workers."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_guide.kernels.gemm import GemmTile
from rocm_guide.kernels.gemm_stream_k import StreamWorkspace, gemm_stream_k, reference_stream_k, stream_plan
from tests.kernels.gemm.cases import TYPES, case, full_sums
from tests.kernels.this_machine import seeds

TYPES = [t for t in TYPES if t != torch.int8]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 200), st.integers(1, 400))
def test_the_plan_does_every_step_once_and_evenly(tiles, steps, units):
    plan = stream_plan(tiles, steps, units)
    assert 1 <= plan.workers <= units
    assert plan.shared_tiles + plan.whole_tiles == tiles
    stretches = [plan.stretch(w) for w in range(plan.workers)]
    assert stretches[0][0] == 0 and stretches[-1][1] == plan.shared_tiles * steps
    assert all(x[1] == y[0] for x, y in itertools.pairwise(stretches))
    loads = [plan.load(w) for w in range(plan.workers)]
    assert sum(loads) == tiles * steps
    assert max(loads) - min(loads) <= 1
    rounds = -(-tiles // units)
    assert max(loads) <= max(rounds * steps, 0), "never longer than dealing out whole tiles"


def test_the_plan_refuses_nonsense():
    with pytest.raises(ValueError, match="units=0"):
        stream_plan(1, 1, 0)


@pytest.mark.parametrize("seed", seeds(208))
def test_random_products(device, close, seed, monkeypatch, guarded):
    c = case(seed, device, types=TYPES)
    if (seed // 7) % 2:
        full_sums(monkeypatch, c, [sys.modules["rocm_guide.kernels.gemm_stream_k"]])
    workers = (1, 2, 3, 5, 8, 13)[seed % 6] if device == "cpu" else (None, 3, 7, 50, 131)[seed % 5]
    out_dtype = torch.float32 if c.a.element_size() == 1 else None
    got = gemm_stream_k(c.a, c.b, workers=workers, out_dtype=out_dtype)
    close(got, reference_stream_k(c.a, c.b), length=c.a.shape[1] + 8, magnitude=c.magnitude)


@pytest.mark.parametrize("workers", [1, 2, 4, 7, 12])
def test_workspace_again_and_repeatable(device, close, workers):
    tile = GemmTile(32, 32, 32, 4)
    space = StreamWorkspace.on(device, 16, 32 * 32)
    space.partials.fill_(float("nan"))
    sizes, repeats = ((33, 100, 130), 2) if device == "cpu" else ((33, 100, 330), 3)
    for seed in range(3):
        c = case(seed, device, types=[torch.float16], sizes=sizes)
        results = [gemm_stream_k(c.a, c.b, workers=workers, tile=tile, workspace=space) for _ in range(repeats)]
        close(results[0], reference_stream_k(c.a, c.b), length=c.a.shape[1], magnitude=c.magnitude)
        assert all(torch.equal(results[0], r) for r in results[1:])
        assert not space.flags.any(), "a flag was left raised"


@pytest.mark.parametrize(("m", "n", "workers"), [(20, 30, 9), (20, 30, 2), (70, 40, 15), (33, 65, 13)])
def test_many_workers_in_one_tile(device, close, m, n, workers):
    c = case(m, device, types=[torch.float32], sizes=(1000,), most_rows=1, plain=True)
    a, b = c.a.expand(m, 1000).contiguous(), c.b[:, :n].contiguous()
    got = gemm_stream_k(a, b, workers=workers, tile=GemmTile(32, 32, 32, 4))
    walk = ((a.double() ** 2) @ (b.double() ** 2)).sqrt()
    close(got, reference_stream_k(a, b), length=1000, magnitude=walk)


def test_errors_before_launch(device):
    a, b = torch.ones(70, 64, device=device), torch.ones(64, 70, device=device)
    gemm_stream_k(a, b)  # what is remembered of it lets no bad call pass
    with pytest.raises(ValueError, match="int8"):
        gemm_stream_k(a.to(torch.int8), b.to(torch.int8))
    with pytest.raises(ValueError, match="b has shape"):
        gemm_stream_k(a, a)
    with pytest.raises(ValueError, match="workspace is too small"):
        gemm_stream_k(a, b, workspace=StreamWorkspace.on(device, 1, 1))
    assert torch.equal(gemm_stream_k(a[:, :0], b[:0]), torch.zeros(70, 70, device=device))
    assert gemm_stream_k(a[:0], b).shape == (0, 70)
