# SPDX-License-Identifier: MIT
"""Kernels of notebook cells in the interpreter and in the compiler; whatever goes wrong names the reader's line."""

from __future__ import annotations

import re

import pytest
import torch

from cdna.children import call_in_child
from cdna.compile import CompileError, compile_kernel
from cdna.compile_errors import foreign_assembly
from cdna.interpret import InterpretError, explain_error, interpret, launch_anywhere, time_limit
from cdna.kernel_source import SourceError, pack_objects, unpack_objects
from cdna.testing import HEAD, run_cell

SCALE = (
    HEAD
    + """
FACTOR = tl.constexpr(3)
x = "a notebook has globals that are called like parameters"

@triton.jit
def times(v, by: tl.constexpr):
    return v * by

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr = 4):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    tl.store(y + o, times(v, FACTOR), mask=o < n)

def scaled(t, grid=None):
    out = torch.full_like(t, float("nan"))
    scale[(-(-t.numel() // 4),)](t, out, t.numel())
    return out
"""
)


def test_a_kernel_of_a_cell_runs_and_compiles():
    cell = run_cell(SCALE)
    data = torch.arange(10.0)
    out = torch.full((12,), 7.0)
    tuned = run_cell(
        "tuned = triton.autotune([triton.Config({'BLOCK': 8}), triton.Config({'BLOCK': 4})], key=[])(scale)", cell
    )["tuned"]
    again = torch.full((12,), 7.0)
    interpret([(cell["scale"], (3,), (data, out, 10), {"num_warps": 1}), (tuned, (2,), (out, again, 12), {})])
    assert out.tolist() == [*(data * 3).tolist(), 7.0, 7.0]
    assert again.tolist() == [v * 3 for v in out.tolist()], "the second launch sees what the first wrote"
    compiled = compile_kernel(cell["scale"], [data, data, 10])
    assert "scale" in compiled.name and "s_endpgm" in compiled.assembly


FAULTS = (
    HEAD
    + """
@triton.jit
def past(x, y, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o % 10))

@triton.jit
def wrong_mask(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, 1.0, mask=o <= n)

@triton.jit
def before(x, y, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.atomic_add(y + o - 3, 1.0)

@triton.jit
def unknown(x, y, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + oo))

@triton.jit
def endless(x, y, BLOCK: tl.constexpr):
    i = 0
    while i < 1:
        i = i * 2
    tl.store(y, 1.0)
"""
)


SAID = [
    (
        "past",
        {},
        r"past, line 8 of the cell \(tl.store\(y \+ o, .*: tl.store outside its tensor: element 10 of y, "
        r"whose elements are 0 to 9 \(position \[2\] of the block, program \(2, 0, 0\)\); add a mask",
    ),
    ("wrong_mask", {"n": 10}, r"wrong_mask, line 13 .* element 10 of y.*its mask lets it through"),
    ("before", {}, r"before, line 18 .* tl.atomic_rmw .* element -3 of y.*negative"),
    ("unknown", {}, r"unknown, line 23 of the cell .*NameError: name 'oo' is not defined"),
    ("endless", {}, r"endless, line 2[89] of the cell .*still running after 1 s of processor time"),
]


def faults_of_all_kernels():
    """In a process with the interpreter on: what each kernel of FAULTS says, and what it left in its output."""
    from cdna.guard import watch_memory

    cell, found = run_cell(FAULTS), []
    for kernel, arguments, _ in SAID:
        data, out = torch.zeros(10), torch.zeros(10)
        try:
            with time_limit(1), watch_memory():
                cell[kernel][(3,)](data, out, **arguments, BLOCK=4)
        except Exception as e:  # noqa: BLE001  each fault is another type
            found.append((explain_error(e, [cell[kernel].fn.__code__.co_filename]), out.tolist()))
    return found


def test_a_fault_names_the_readers_line(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = call_in_child(faults_of_all_kernels)
    assert len(found) == len(SAID)
    for (_, _, said), (line, out) in zip(SAID, found, strict=True):
        assert re.match(said, line), line
        assert out == [0.0] * 10, "a launch that failed leaves its tensors alone"


def test_a_fault_reaches_the_caller():
    cell, out = run_cell(FAULTS), torch.zeros(10)
    with pytest.raises(InterpretError, match=r"^past failed in the interpreter: " + SAID[0][2]):
        interpret([(cell["past"], (3,), (torch.zeros(10), out), {"BLOCK": 4})])


def test_what_cannot_be_sent_is_refused_by_name():
    cell = run_cell(HEAD + "class Config: pass\ndef g(t): Config()")
    with pytest.raises(SourceError, match=r"g reads Config \(class Config\)"):
        pack_objects([cell["g"]])
    space = run_cell(SCALE)
    space["FACTOR"] = space["torch"].zeros(1)
    with pytest.raises(InterpretError, match="scale reads FACTOR"):
        launch_anywhere(space["scale"], (1,), torch.zeros(4), torch.zeros(4), 4)


def test_closures_defaults_and_recursion_travel():
    cell = run_cell(
        "import math\n"
        "def outer(k):\n"
        "    def inner(n, *, step=(1, 2), how=max):\n"
        "        return 0 if n == 0 else k + how(step) + math.floor(0.5) + inner(n - 1)\n"
        "    return inner\n"
        "fn = outer(10)\n"
    )
    (again,) = unpack_objects(pack_objects([cell["fn"]]))
    assert again is not cell["fn"] and again(3) == cell["fn"](3) == 36
    assert again.__code__.co_firstlineno == 3


def test_a_kernel_that_travelled_can_be_compiled():
    """What its ``def`` line says is there when it is decorated: constants, and defaults that are used."""
    cell = run_cell(
        HEAD + "@triton.jit\ndef k(x, BLOCK: tl.constexpr, BY: tl.constexpr = 2):\n"
        "    i = tl.arange(0, BLOCK)\n    tl.store(x + i, tl.load(x + i) * BY)\n"
    )
    (again,) = unpack_objects(pack_objects([cell["k"]]))
    made = [compile_kernel(k, ["*fp32:16"], {"BLOCK": 64, "BY": 2}).assembly for k in (cell["k"], again)]
    assert "v_add_f32" in made[0] and len(made[0].splitlines()) == len(made[1].splitlines())
    assert [p.default for p in again.params] == [p.default for p in cell["k"].params]
    assert [p.is_constexpr for p in again.params] == [False, True, True]


def test_the_compiler_names_the_readers_line():
    cell = run_cell(FAULTS)
    with pytest.raises(CompileError, match=r"unknown, line 23 of the cell \(.*\): NameError.*oo is not defined"):
        compile_kernel(cell["unknown"], ["*fp32", "*fp32"], {"BLOCK": 64})
    inner = run_cell(
        HEAD + "@triton.jit\ndef f(v):\n    return v + w\n\n@triton.jit\ndef k(x):\n    tl.store(x, f(1.0))"
    )
    with pytest.raises(CompileError, match=r"f, line 6 of the cell \(return v \+ w\)"):
        compile_kernel(inner["k"], ["*fp32"])


def test_assembly_for_another_gpu_is_refused():
    """LLVM reports it on stderr and goes on; the code that it makes is wrong."""
    cell = run_cell(
        HEAD + "@triton.jit\ndef k(x):\n    v = tl.load(x)\n"
        '    v = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [v], tl.float32, True, 1)\n'
        "    tl.store(x, v)\n"
    )
    # From the source alone: Tritons before 3.9 end the process while they compile it.
    assert re.match(r"k, line 7 of the cell .*'=f'", foreign_assembly(cell["k"]))
    with pytest.raises(CompileError, match=r"k, line 7 of the cell .*NVIDIA.*'=f'"):
        compile_kernel(cell["k"], ["*fp32"])
