# SPDX-License-Identifier: MIT
"""Loops, FNUZ types and bf16 constants run in the interpreter of each Triton that pyproject allows (`make worlds`)."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from cdna.interpret import interpret
from cdna.interpreter.patches import complete_interpreter


@triton.jit
def loop_sum(x, y, K, BK: tl.constexpr):
    total = 0.0
    for k in range(0, K, BK):
        i = k + tl.arange(0, BK)
        total += tl.sum(tl.load(x + i, mask=i < K, other=0.0), 0)
    tl.store(y, total)


@triton.jit
def widen(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n).to(tl.float32), mask=i < n)


@triton.jit
def half_of(y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.full((BLOCK,), 0.5, tl.bfloat16), mask=i < n)


def test_a_loop_over_an_argument():
    x, y = torch.arange(100.0), torch.zeros(1)
    interpret([(loop_sum, (1,), [x, y, 100], {"BK": 16})])
    assert y.item() == 4950


@pytest.mark.parametrize("kind", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_fnuz_numbers_are_read(kind):
    x, y = torch.tensor([0.5, -1.75, 224.0, 0.0]).to(kind), torch.full((4,), float("nan"))
    interpret([(widen, (1,), [x, y, 4], {"BLOCK": 8})])
    assert torch.equal(y, x.float())


def test_a_constant_in_bf16():
    y = torch.zeros(4, dtype=torch.bfloat16)
    interpret([(half_of, (1,), [y, 3], {"BLOCK": 4})])
    assert y.tolist() == [0.5, 0.5, 0.5, 0.0]


def test_nothing_stays_replaced():
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor, interpreter._patch_lang_core
    with complete_interpreter():
        pass
    assert before == (interpreter._patch_lang_tensor, interpreter._patch_lang_core)
