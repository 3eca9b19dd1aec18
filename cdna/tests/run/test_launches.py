# SPDX-License-Identifier: MIT
"""Launches executed one workgroup at a time, in memory that is too large to copy; what they read is known."""

from __future__ import annotations

import pytest
import torch

from cdna.grade.puzzle import far_apart
from cdna.run import executed_on_gfx942
from cdna.run.errors import RunError
from cdna.testing import HEAD, run_cell

CELL = """@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def row_kernel(x, y, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)ROW
    j = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * BLOCK + j, tl.load(x + row * stride + j))


def copy(x, n=None):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, n or x.numel(), BLOCK=256)
    return y


def rows(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    row_kernel[(len(x),)](x, y, x.stride(0), BLOCK=64)
    return y
"""
CALLS = run_cell(HEAD + CELL.replace("ROW", ".to(tl.int64)"))
X = torch.arange(1024.0)


@pytest.mark.parametrize(("back", "first"), [(0, 768), (1, 512), (3, 0), (9, 0)])
def test_one_workgroup_runs_alone(back, first):
    with executed_on_gfx942(back=back) as done:
        y = CALLS["copy"](X)
    written = (~y.isnan()).nonzero().flatten().tolist()
    assert written == [*range(first, first + 256)] and torch.equal(y[written], X[written])
    assert done.launches[0].grid == (4, 1, 1) and done.launches[0].result.counters.stored == 1024


def test_it_is_known_what_was_read():
    with executed_on_gfx942() as done:
        y = CALLS["copy"](X)
    (launch,) = done.launches
    assert launch.read == {X.untyped_storage().data_ptr()} and y.data_ptr() not in launch.read


def test_memory_of_gigabytes_is_used_where_it_lies():
    x = far_apart(64)
    with executed_on_gfx942() as done:
        y = CALLS["rows"](x)
    assert torch.equal(y, torch.stack([*x]))
    small, large = sorted(done.launches[0].result.machine.memory.allocations, key=lambda a: a.size)[-2:]
    assert (small.name, small.copied, large.name, large.copied) == ("y", True, "x", False)


def test_an_offset_of_32_bits_leaves_memory_and_the_error_names_the_kernels_line():
    narrow = run_cell(HEAD + CELL.replace("ROW", ""))
    with executed_on_gfx942(), pytest.raises(RunError, match=r"row_kernel, launch 1: .* reads") as caught:
        narrow["rows"](far_apart(64))
    assert caught.value.rule == "bounds" and caught.value.source.split(":")[-2] == "14"


def test_new_memory_holds_what_was_asked_for():
    with executed_on_gfx942(poison=0x3C):
        assert torch.empty(4, dtype=torch.uint8).tolist() == [0x3C] * 4
