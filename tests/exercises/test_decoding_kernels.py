# SPDX-License-Identifier: MIT
"""The tile of notebook 39: the check accepts one that holds and refuses the obvious others, each with its own hint."""

from __future__ import annotations

import re

import pytest

from rocm_guide.exercises.decoding_kernels import check_mla_tile


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"block": 16, "num_warps": 4}, "the needed work"),
        ({"block": 64, "num_warps": 4}, "wave per SIMD"),
        ({"block": 128, "num_warps": 4}, "LDS|spill"),
        ({"block": 32}, "num_warps=None"),
    ],
)
def test_mla_tile_hints(config, hint, capsys):
    assert not check_mla_tile(config)
    assert re.search(hint, capsys.readouterr().out)


def test_mla_tile_solution():
    assert check_mla_tile({"block": 32, "num_warps": 4})
