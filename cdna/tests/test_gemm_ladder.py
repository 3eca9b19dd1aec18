# SPDX-License-Identifier: MIT
"""The rungs of the GEMM ladder: right in the interpreter at odd sizes, and clean on gfx942."""

import pytest
import torch

from cdna.compile import compile_kernel
from cdna.examples.gemm_ladder import RUNGS
from cdna.interpret import interpret
from cdna.report import kernel_report


def test_every_rung_is_right():
    """Small tiles, so that every order of tiles has several of them, ragged at both edges."""
    small = {"BM": 32, "BN": 16, "BK": 16, "GROUP": 3, "XCDS": 4}
    torch.manual_seed(0)
    jobs, outs = [], []
    for m, n, k in ((70, 90, 48), (1, 5, 16)):
        a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
        for rung in RUNGS:
            c = torch.full((m, n), float("nan"), dtype=torch.float16)
            meta = {name: small[name] for name in rung.constants}
            own = type(rung)(rung.name, rung.kernel, meta, rung.grid)
            jobs.append((rung.kernel, own.workgroups(m, n, units=7), (a, b, c, m, n, k), meta))
            outs.append((rung.name, c, a.double() @ b.double()))
    interpret(jobs)
    for name, c, wanted in outs:
        assert torch.allclose(c.double(), wanted, rtol=2e-3, atol=2e-2), name


@pytest.mark.parametrize("rung", [RUNGS[1], RUNGS[3], RUNGS[5]], ids=lambda r: r.name)
def test_a_rung_is_clean_on_gfx942(rung):
    half = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    c = compile_kernel(rung.kernel, [half, half, half, 4096, 4096, 4096], rung.constants, **rung.options)
    r = kernel_report(c, grid=rung.workgroups(4096, 4096))
    assert not r.resources.vgpr_spills and r.lds <= 65536
    if "BK" in rung.constants:
        assert r.isa.mfma and set(r.isa.global_loads_in_loops) == {128}
        assert "s_setprio" in c.assembly


def test_the_order_covers_all_tiles_and_keeps_a_die_together():
    """Each tile once; what die 0 does lies in one band of GROUP rows."""
    rung = RUNGS[5]
    for m, n in ((1024, 1024), (1280, 2304)):
        order = rung.order(m, n)
        assert sorted(order) == [(r, c) for r in range(m // 256) for c in range(n // 256)]
        each = -(-len(order) // 8)
        first = [order[p] for p in range(0, len(order), 8)][:each]  # what die 0 does, one after the other
        assert len({r for r, _ in first}) <= 4
