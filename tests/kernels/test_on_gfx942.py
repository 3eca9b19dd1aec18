# SPDX-License-Identifier: MIT
"""Every Triton kernel of the course as gfx942 machine code, executed here and compared with float64.

Shapes are small, and have ends of tiles in them. The same tests as on a GPU, with all their shapes, run with
``-p executed_gfx942`` (executed_gfx942.py), which takes much longer.
"""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.resource_table import read_rows
from rocm_guide.mi300x.run import RunError
from rocm_guide.mi300x.run.launches import executed_on_gfx942
from tests.kernels import gfx942_attention, gfx942_gemm, gfx942_rows

CASES = {**gfx942_rows.CASES, **gfx942_gemm.CASES, **gfx942_attention.CASES}

#: Cases that cannot be executed yet: part of the message, and why. Taken out as soon as they can.
CANNOT: dict[str, tuple[str, str]] = {}


@pytest.mark.parametrize("name", [n for n in CASES if n not in CANNOT])
def test_equals_float64(name):
    case = CASES[name]
    torch.manual_seed(0)
    with executed_on_gfx942(units=4, count=False) as done:
        check = case.run()
    check()
    assert done.kernels == list(case.kernels)


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_executed(name):
    with pytest.raises(RunError, match=CANNOT[name][0]), executed_on_gfx942(units=4, count=False):
        CASES[name].run()


def test_every_kernel_of_the_table_is_here():
    """All but a dozen-line example of the notebooks, which has no module of its own."""
    table = {row.kernel for row in read_rows()[1]}
    assert not table - {k for case in CASES.values() for k in case.kernels}
