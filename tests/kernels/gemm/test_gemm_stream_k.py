# SPDX-License-Identifier: MIT
"""Stream-K: its grid model, and the kernel against float64 for every number of workers."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_guide.kernels import gemm_stream_k as stream_k
from rocm_guide.kernels.gemm_stream_k import GemmTile, StreamWorkspace, gemm_stream_k, reference_stream_k, stream_plan
from tests.kernels.gemm.cases import TYPES, case, full_sums
from tests.kernels.this_machine import seeds

TYPES = [t for t in TYPES if t != torch.int8]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 200), st.integers(1, 400))
def test_the_plan_does_every_step_once_and_evenly(tiles, steps, units):
    workers, shared = stream_plan(tiles, steps, units)
    assert 1 <= workers <= units and 0 <= shared <= tiles
    ends = [shared * steps * w // workers for w in range(workers + 1)]  # of the stretches, as the kernel cuts them
    whole = [len(range(w, tiles - shared, workers)) * steps for w in range(workers)]
    loads = [last - first + more for (first, last), more in zip(itertools.pairwise(ends), whole, strict=True)]
    assert sum(loads) == tiles * steps
    assert max(loads) - min(loads) <= 1
    rounds = -(-tiles // units)
    assert max(loads) <= max(rounds * steps, 0), "never longer than dealing out whole tiles"


@pytest.fixture
def workers_of(monkeypatch):
    """As many compute units as a test wants, with tiles of 32 x 32."""

    def choose(units):
        monkeypatch.setattr(stream_k, "unit_count", lambda x: units)
        small = {bits: GemmTile(32, 32, 32, 4) for bits in (32, 16, 8)}
        for table in ("CONFIGS", "RAGGED"):
            monkeypatch.setattr(stream_k, table, dict.fromkeys(("gfx942", "sm_90", "interpreter"), small))

    return choose


@pytest.mark.parametrize("seed", seeds(208))
def test_random_products(device, close, seed, monkeypatch, guarded, workers_of):
    c = case(seed, device, types=TYPES)
    if (seed // 7) % 2:
        full_sums(monkeypatch, c, [stream_k])
    if device == "cpu" or seed % 5:
        workers_of((1, 2, 3, 5, 8, 13)[seed % 6] if device == "cpu" else (3, 7, 50, 131)[seed % 4])
    got = gemm_stream_k(c.a, c.b)
    close(got, reference_stream_k(c.a, c.b), length=c.a.shape[1] + 8, magnitude=c.magnitude)


@pytest.mark.parametrize("workers", [1, 2, 4, 7, 12])
def test_workspace_again_and_repeatable(device, close, workers, workers_of):
    workers_of(workers)
    space = StreamWorkspace.on(device, 16, 32 * 32)
    space.partials.fill_(float("nan"))
    sizes, repeats = ((33, 100, 130), 2) if device == "cpu" else ((33, 100, 330), 3)
    for seed in range(3):
        c = case(seed, device, types=[torch.float16], sizes=sizes)
        results = [gemm_stream_k(c.a, c.b, workspace=space) for _ in range(repeats)]
        close(results[0], reference_stream_k(c.a, c.b), length=c.a.shape[1], magnitude=c.magnitude)
        assert all(torch.equal(results[0], r) for r in results[1:])
        assert not space.flags.any(), "a flag was left raised"


@pytest.mark.parametrize(("m", "n", "workers"), [(20, 30, 9), (20, 30, 2), (70, 40, 15), (33, 65, 13)])
def test_many_workers_in_one_tile(device, close, m, n, workers, workers_of):
    c = case(m, device, types=[torch.float32], sizes=(1000,), most_rows=1, plain=True)
    a, b = c.a.expand(m, 1000).contiguous(), c.b[:, :n].contiguous()
    workers_of(workers)
    got = gemm_stream_k(a, b)
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
