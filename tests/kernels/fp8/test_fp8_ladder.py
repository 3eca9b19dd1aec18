# SPDX-License-Identifier: MIT
"""The ladder: every rung gives what the kernel at its top gives, and its code shows what it claims."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.fp8_ladder import RUNGS, run_rung
from rocm_guide.kernels.rmsnorm_fp8 import reference_rmsnorm_fp8
from tests.kernels.fp8.cases import check_fp8
from tests.kernels.table import rows_of


@pytest.mark.parametrize("columns", [4096, 8192, 16384, 32768])
@pytest.mark.parametrize("rung", range(1, 6), ids=RUNGS)
def test_every_rung_is_right(rung, columns, device):
    g = torch.Generator().manual_seed(columns)
    x, r = ((torch.randn(3, columns, generator=g) * 2).half().to(device) for _ in range(2))
    w = torch.randn(columns, generator=g).half().to(device)
    x[1, 5], x[2, :7] = 60000.0, 1e-6
    # Saturating, usual, and mostly below the smallest normal number; in the interpreter not all of them at all lengths.
    some = {8192: (0.02,), 16384: (7.0,), 32768: (0.5,)}
    for scale in (0.02, 0.5, 7.0) if device == "cuda" else some.get(columns, (0.02, 0.5, 7.0)):
        q, updated = run_rung(rung, x, r, w, scale)
        y, s = reference_rmsnorm_fp8(x, r, w)
        assert torch.equal(updated, s)
        check_fp8(q, y / scale, y.abs() / scale * 2**-18)
    if device == "cuda" or columns == 4096:
        x[0, 3] = float("nan")
        q, _ = run_rung(rung, x, r, w, 0.5)
        assert bool(q[0].float().isnan().all()) and not bool(q[1].float().isnan().any())


def test_bad_arguments_are_named(device):
    x, w = torch.ones(2, 4096, dtype=torch.float16, device=device), torch.ones(4096, dtype=torch.float16, device=device)
    for call, words in (
        (lambda: run_rung(0, x, x, w, 1.0), "rung=0"),
        (lambda: run_rung(6, x, x, w, 1.0), "rung=6"),
        (lambda: run_rung(1, x.float(), x, w, 1.0), "x is float32"),
        (lambda: run_rung(1, x[:, :4000], x, w, 1.0), "4000 columns"),
        (lambda: run_rung(1, x, x[:1], w, 1.0), "residual has shape"),
        (lambda: run_rung(1, x, x, w, float("nan")), "scale=nan"),
        (lambda: run_rung(1, x, x, w, 1.0, eps=-1.0), "eps=-1"),
        (lambda: run_rung(1, x, x, w.to("meta"), 1.0), "weight is on meta"),
        (lambda: run_rung(1, x.t().contiguous().t(), x, w, 1.0), "strides"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_for_mi300x_each_rung_shows_its_claim():
    rows = rows_of("fp8_ladder")
    pointwise, vectors, coalesced, registers = rows
    assert all(r.spills == 0 and r.findings == "-" for r in rows)
    assert {w.split("x")[0] for w in pointwise.loop_loads.split(",")} == {"16"}
    assert {w.split("x")[0] for r in (vectors, coalesced) for w in r.loop_loads.split(",")} == {"128"}
    assert registers.loop_loads == "-" and {w.split("x")[0] for w in registers.loads.split(",")} == {"128"}
