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

#: A race on hardware too, if a harmless one: two waves hold copies of one sum
#: whose last bit differs, and both store it to the same word of LDS before one barrier. Either is right in itself.
COPIES = ("race: .* writes byte 0 of LDS, which wave 0 writes", "copies of one sum in two waves differ by a rounding")
#: Cases that cannot be executed: part of the message, and why. The test below fails as soon as one can.
CANNOT: dict[str, tuple[str, str]] = {f"decode, int{bits} cache, heads of 256, float16": COPIES for bits in (8, 4)}


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
