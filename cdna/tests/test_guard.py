# SPDX-License-Identifier: MIT
"""Races, undefined lanes, counted bytes and exact conversions in the interpreter; all in one process of its own."""

from __future__ import annotations

import torch

from cdna.children import call_in_child
from cdna.testing import HEAD, run_cell

KERNELS = (
    HEAD
    + """
@triton.jit
def same_place(x, y, n):
    tl.store(y, tl.load(x + tl.program_id(0)))

@triton.jit
def same_value(x, y, n):
    tl.store(y, tl.load(x))

@triton.jit
def neighbour(x, y, n):
    p = tl.program_id(0)
    tl.store(y + p, tl.load(x + p))
    tl.store(y + 4 + p, tl.load(y + (p + n - 1) % n))

@triton.jit
def in_place(x, y, n):
    p = tl.program_id(0)
    tl.store(x + p, tl.load(x + p) + 1)

@triton.jit
def reverse_in_place(x, y, n):
    p = tl.program_id(0)
    tl.store(x + n - 1 - p, tl.load(x + p))

@triton.jit
def shift_in_place(x, y, n):
    p = tl.program_id(0)
    v = tl.load(x + p)
    if p > 0:
        tl.store(x + p - 1, v)

@triton.jit
def with_flag(x, y, n):
    p = tl.program_id(0)
    if p == 0:
        tl.store(y, tl.load(x))
    count = tl.atomic_add(y + 7, 1.0)
    if p == n - 1:
        tl.store(y + 1, tl.load(y))

@triton.jit
def convert(x, bf, fp8, product):
    i = tl.arange(0, 16)
    v = tl.load(x + i[:, None] * 16 + i[None, :])
    tl.store(bf + i[:, None] * 16 + i[None, :], v.to(tl.bfloat16))
    tl.store(fp8 + i[:, None] * 16 + i[None, :], v.to(tl.float8e4b8))
    b = v.to(tl.bfloat16)
    tl.store(product + i[:, None] * 16 + i[None, :], tl.dot(b, b))

@triton.jit
def masked(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y, tl.sum(v, 0) + tl.max(v, 0))
"""
)


def judged():
    """What each kernel says in a strict watch, and what the conversions give."""
    from cdna.guard import watch_memory
    from cdna.interpret import explain_error
    from cdna.interpreter.patches import exact_conversions

    cell, said = run_cell(KERNELS), {}
    for name in (
        "same_place",
        "same_value",
        "neighbour",
        "in_place",
        "reverse_in_place",
        "shift_in_place",
        "with_flag",
    ):
        x, y = torch.arange(1.0, 5), torch.zeros(8)
        try:
            with watch_memory(strict=True) as watch:
                cell[name][(4,)](x, y, 4)
            said[name] = (watch.loaded, watch.stored, x.tolist())
        except Exception as e:  # noqa: BLE001  whatever the guard and the interpreter make of it
            said[name] = explain_error(e)
    y = torch.zeros(1)
    with watch_memory(strict=True) as watch:
        cell["masked"][(1,)](torch.ones(4), y, 3, BLOCK=4)
    said["masked"] = (bool(y.isnan()), watch.undefined, watch.loaded)
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)) * 3
    bf, fp8 = x.to(torch.bfloat16) * 0, x.to(torch.float8_e4m3fnuz)
    wanted, product = fp8.clone(), torch.zeros(16, 16)
    fp8.view(torch.uint8).zero_()
    with exact_conversions():
        cell["convert"][(1,)](x, bf, fp8, product)
    right = x.to(torch.bfloat16)
    error = (product - right.double() @ right.double()).abs().max().item()
    said["convert"] = (torch.equal(bf, right), torch.equal(fp8.view(torch.uint8), wanted.view(torch.uint8)), error)
    return said


def described():
    """What the types of blocks say of themselves, and what a shape that is refused says."""
    import triton.language as tl

    said = [str(tl.block_type(kind, [16, 4])) for kind in (tl.float16, tl.int32, tl.pointer_type(tl.float16))]
    try:
        tl.block_type(tl.float16, [16, 4.0])
    except (TypeError, ValueError) as e:
        said.append(str(e))
    return said


def judged_twice():
    """The same in the quick interpreter, how often each replaced Triton's language, and whether it was put back."""
    from unittest import mock

    import triton.language as tl
    from triton.runtime import interpreter

    from cdna.interpreter.patches import complete_interpreter, quick_interpreter

    before, replace = (tl.load, tl.sum, tl.tensor.__add__), interpreter._patch_lang
    with mock.patch.object(interpreter, "_patch_lang", side_effect=replace) as plainly, complete_interpreter():
        plain = judged()
    with mock.patch.object(interpreter, "_patch_lang", side_effect=replace) as quickly, quick_interpreter():
        quick = judged()
        shapes = described()
    same = before == (tl.load, tl.sum, tl.tensor.__add__) and interpreter.interpreter_builder.options.sanitize_overflow
    return plain, quick, plainly.call_count, quickly.call_count, same and shapes == described()


def operands_of_all_kinds():
    """Of every pair of operands what Triton makes of them, types and bytes, or its refusal; each pair twice."""
    import numpy as np
    import triton.language as tl
    from triton.language.semantic import IncompatibleTypeErrorImpl
    from triton.runtime import interpreter

    semantic = interpreter.interpreter_semantic
    kinds = (tl.uint8, tl.int32, tl.float16, tl.bfloat16)

    def tensor(kind, shape):
        data = np.arange(1, 1 + max(1, int(np.prod(shape))), dtype=np.uint64).astype(interpreter._get_np_dtype(kind))
        handle = interpreter.TensorHandle(data.reshape(shape or (1,)), kind)
        return tl.core.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)

    shapes = ((), (1,), (4,), (4, 1), (1, 4), (2, 2))
    every = [tensor(k, s) for k in (*kinds, tl.pointer_type(tl.float16)) for s in shapes]
    said = []
    for _ in range(2):
        for a in every:
            for b in [*every, 3, -1, 2.5]:
                for flags in ({}, {"div_or_mod": True}, {"allow_lhs_ptr": True}):
                    try:
                        made = semantic.binary_op_type_checking_impl(a, b, **flags)
                        said.append([(str(x.type), list(x.shape), x.handle.data.tobytes()) for x in made])
                    except (TypeError, ValueError, AssertionError, IncompatibleTypeErrorImpl) as e:
                        said.append(f"{type(e).__name__}: {e}")
    return said


def operands_both_ways():
    from cdna.interpreter.patches import complete_interpreter, quick_interpreter

    with complete_interpreter():
        plain = operands_of_all_kinds()
    with quick_interpreter():
        return plain, operands_of_all_kinds()


def test_the_quick_interpreter_makes_the_same_of_two_operands(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    plain, quick = call_in_child(operands_both_ways)
    assert plain == quick
    refused = [s for s in plain if isinstance(s, str)]
    assert 500 < len(refused) < len(plain) / 2, "both happen"


def test_what_the_guard_says(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    said, quick, plainly, quickly, put_back = call_in_child(judged_twice)
    assert quick == said and put_back and quickly == 10 < plainly, "one for each launch, and one for tl.sum and tl.max"
    assert "programs 0 and 1 write different values to element 0 of y" in said["same_place"]
    assert "program 1 reads element 0 of y, which program 0 writes" in said["neighbour"]
    assert "program 2 reads element 2 of x, which program 1 writes" in said["reverse_in_place"]
    assert "program 1 overwrites element 0 of x, which program 0 reads" in said["shift_in_place"]
    assert said["same_value"] == (16, 16, [1, 2, 3, 4])
    assert said["in_place"] == (16, 16, [2, 3, 4, 5]), "what was written between the margins came back"
    assert said["with_flag"][2] == [1, 2, 3, 4], "a program that used an atomic may have waited"
    assert said["masked"] == (True, True, 12)
    assert said["convert"][:2] == (True, True) and said["convert"][2] < 1e-4
