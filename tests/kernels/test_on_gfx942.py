# SPDX-License-Identifier: MIT
"""Every Triton kernel of the course as gfx942 machine code, executed here and compared with float64.

Shapes are small, and have ends of tiles in them. Each run has cases of every kernel, three runs have all of them
(tests/in_turn.py). The same tests as on a GPU, with all their shapes, run with ``-p executed_gfx942``
(executed_gfx942.py), which takes much longer.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import triton
import triton.language as tl

from cdna.run import RunError
from cdna.run.launches import executed_on_gfx942
from course.resource_table import read_rows
from rocm_guide.kernels.attention import narrow
from tests.in_turn import in_shares
from tests.kernels import gfx942_attention, gfx942_gemm, gfx942_rows

#: An older Triton lays these sums out without copies.
HAS_COPIES = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
CASES = {**gfx942_rows.CASES, **gfx942_gemm.CASES, **gfx942_attention.CASES}


def by_turns():
    """A third of each kernel's cases in each run; those of a kernel with one or two all, so that none is left out."""
    cases = []
    for _, names in itertools.groupby(sorted(CASES, key=lambda n: CASES[n].kernels), lambda n: CASES[n].kernels):
        names = list(names)
        cases += in_shares(names, 3) if len(names) > 2 else names
    return cases


@pytest.mark.parametrize("name", by_turns())
def test_equals_float64(name):
    case = CASES[name]
    torch.manual_seed(0)
    with executed_on_gfx942(units=4, count=False, copies=case.copies) as done:
        check = case.run()
    check()
    assert done.kernels == list(case.kernels)
    notes = [note for launch in done.launches for note in launch.result.notes]
    assert bool(notes) == bool(case.copies) if HAS_COPIES else not notes or case.copies


@pytest.mark.parametrize("turn", range(3))
def test_each_run_has_every_kernel(turn, monkeypatch):
    monkeypatch.delenv("ROCM_GUIDE_ALL", raising=False)
    monkeypatch.setenv("ROCM_GUIDE_TURN", str(turn))
    now = [x if isinstance(x, str) else x.values[0] for x in by_turns() if isinstance(x, str) or not x.marks[0].args[0]]
    assert len(now) < len(CASES) / 2
    assert {k for name in now for k in CASES[name].kernels} == {k for case in CASES.values() for k in case.kernels}


@pytest.mark.skipif(not HAS_COPIES, reason="Triton before 3.9 lays these sums out without copies")
@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].copies])
def test_copies_that_differ_are_allowed_only_where_a_case_says_so(name):
    """Two waves store copies of one sum to the same word before one barrier: legal, but to be looked at."""
    with pytest.raises(RunError, match=r"race: .* writes byte \d+ of LDS"), executed_on_gfx942(units=4, count=False):
        CASES[name].run()


def test_every_kernel_of_the_table_is_here():
    """All but a dozen-line example of the notebooks, which has no module of its own."""
    table = {row.kernel for row in read_rows()[1]}
    assert not table - {k for case in CASES.values() for k in case.kernels}


@triton.jit
def narrowed(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, narrow(tl.load(x + i), tl.bfloat16, True))


def test_rounding_by_hand_is_to_the_nearest_and_up_at_a_tie():
    x = torch.rand(1024, generator=torch.Generator().manual_seed(0))
    ties = torch.arange(0x3F00_8000, 0x3F00_8000 + (120 << 16), 1 << 16, dtype=torch.int32).view(torch.float32)
    x[: len(ties)], x[-3:] = ties, torch.tensor([0.0, 1.0, float("nan")])
    y = torch.empty(1024, dtype=torch.bfloat16)
    with executed_on_gfx942():
        narrowed[(1,)](x, y, N=1024)
    up = ties + 2.0**-9  # half a step of bf16 from 0.5 on
    assert torch.equal(y[: len(ties)].float(), up) and torch.equal(
        y[len(ties) : -1], x[len(ties) : -1].to(torch.bfloat16)
    )
    assert y[-1].isnan()
