# SPDX-License-Identifier: MIT
"""Every Triton kernel of the course as gfx942 machine code, executed here and compared with float64.

Shapes are small, and have ends of tiles in them. The same tests as on a GPU, with all their shapes, run with
``-p executed_gfx942`` (executed_gfx942.py), which takes much longer.
"""

from __future__ import annotations

import pytest
import torch
import triton

from cdna.run import RunError
from cdna.run.launches import executed_on_gfx942
from rocm_guide.kernels.resource_table import read_rows
from tests.kernels import gfx942_attention, gfx942_gemm, gfx942_rows

#: An older Triton lays these sums out without copies.
HAS_COPIES = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
CASES = {**gfx942_rows.CASES, **gfx942_gemm.CASES, **gfx942_attention.CASES}


@pytest.mark.parametrize("name", CASES)
def test_equals_float64(name):
    case = CASES[name]
    torch.manual_seed(0)
    with executed_on_gfx942(units=4, count=False, copies=case.copies) as done:
        check = case.run()
    check()
    assert done.kernels == list(case.kernels)
    notes = [note for launch in done.launches for note in launch.result.notes]
    assert bool(notes) == bool(case.copies) if HAS_COPIES else not notes or case.copies


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
