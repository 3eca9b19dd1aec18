# SPDX-License-Identifier: MIT
"""Gluon kernels go wherever Triton's go: compiled, inspected, stepped, executed, sent to another process; and an error
of a layout names the reader's line.
"""

from __future__ import annotations

import contextlib
import re
import sys
import types
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton.experimental.gluon.language.amd.cdna3")

from cdna.cli.main import main
from cdna.compile import CompileError, compile_kernel
from cdna.compile_errors import explain_compile_error
from cdna.dry_run import dry_run
from cdna.grade import grade
from cdna.inspection import inspect_launch
from cdna.interpret import InterpretError, launch_anywhere
from cdna.kernel_source import pack_objects, unpack_objects
from cdna.report import kernel_report
from cdna.run import executed_on_gfx942, run
from cdna.testing import run_cell

CELL = """import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import cdna3

ROW = gl.constexpr(gl.BlockedLayout([1, 4], [4, 16], [4, 1], [1, 0]))
COLUMN = gl.constexpr(gl.BlockedLayout([4, 1], [16, 4], [1, 4], [0, 1]))

@gluon.jit
def places(N: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, N, layout=gl.SliceLayout(1, layout))
    j = gl.arange(0, N, layout=gl.SliceLayout(0, layout))
    return i, j

@gluon.jit
def turn(x, y, N: gl.constexpr, LDS: gl.constexpr):
    i, j = places(N, ROW)
    tile = gl.allocate_shared_memory(gl.float32, [N, N], LDS)
    tile.store(cdna3.buffer_load(x, i[:, None] * N + j[None, :]))
    i, j = places(N, COLUMN)
    cdna3.buffer_store(tile.load(COLUMN), y, j[None, :] * N + i[:, None])

def turned(x):
    y = torch.empty_like(x)
    turn[(1,)](x, y, N=64, LDS=gl.SwizzledSharedLayout(4, 1, 16, [1, 0]))
    return y

def example():
    turned(torch.zeros(64, 64))
"""
WRONG = {
    "[1], [32], [4], [0]": "Layout has 32 threads per warp, but the module specifies 64 threads per warp.",
    "[1], [64], [2], [0]": "Layout has 2 warps per CTA, but the context requires 4 warps per CTA.",
}
COPY = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def copy(x, y, N: gl.constexpr):
    i = gl.arange(0, N, layout=gl.BlockedLayout(LAYOUT))
    gl.store(y + i, gl.load(x + i))
"""
X = torch.arange(4096.0).reshape(64, 64)


def test_a_kernel_is_compiled_by_types_and_executed():
    cell = run_cell(CELL)
    constants = {"N": 64, "LDS": cell["gl"].SwizzledSharedLayout(4, 1, 16, [1, 0])}
    k = compile_kernel(cell["turn"], ["*fp32:16:2g"] * 2, constants)
    assert k.ttir == "" and "#ttg.swizzled_shared" in k.ttgir and k.shared == 64 * 64 * 4
    assert k.assembly.count("buffer_load_dwordx4") == k.assembly.count("buffer_store_dwordx4") == 4
    y = torch.zeros_like(X)
    run(k, (1,), [X, y])
    assert torch.equal(y, X.T)
    seen = inspect_launch(kernel_report(k), k)
    assert seen.lds == 16384 and seen.threads == 256 and seen.program.layouts


def test_ordinary_launches_are_compiled_and_executed_and_banks_are_counted():
    cell = run_cell(CELL)
    with dry_run("gfx942", device="meta") as dry:
        cell["turned"](torch.empty(64, 64))
    assert dry.kernels == ["turn"] and dry.launches[0].report.lds == 16384
    with executed_on_gfx942() as done:
        assert torch.equal(cell["turned"](X), X.T)
        plain = torch.empty_like(X)
        cell["turn"][(1,)](X, plain, N=64, LDS=cell["gl"].SwizzledSharedLayout(1, 1, 1, [1, 0]))
    assert torch.equal(plain, X.T)
    swizzled, plain = (x.result.counters for x in done.launches)
    assert plain.lds_cycles > 1.8 * swizzled.lds_cycles


def test_a_reason_of_one_line_is_found():
    cell = run_cell(
        CELL + "from triton.experimental.gluon.language.amd import AMDMFMALayout\n"
        "@gluon.jit\n"
        "def tile(x, y):\n"
        "    M: gl.constexpr = AMDMFMALayout(3, [16, 16, 16], True, [2, 2])\n"
        "    tile = gl.allocate_shared_memory(gl.float16, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))\n"
        "    a, b = tile.load(gl.DotOperandLayout(0, M, 4)), tile.load(gl.DotOperandLayout(1, M, 8))\n"
        "    cdna3.mfma(a, b, gl.zeros([64, 64], gl.float32, layout=M))\n"
    )
    with pytest.raises(
        CompileError, match=r"^tile for .*line \d+ of the cell.*: mismatching kWidth between A and B .*s$"
    ):
        compile_kernel(cell["tile"], ["*fp16"] * 2)


@pytest.mark.parametrize("layout", WRONG)
def test_a_wrong_layout_names_the_line_and_the_reason(layout, capfd):
    cell = run_cell(COPY.replace("LAYOUT", layout))
    with pytest.raises(CompileError) as e:
        compile_kernel(cell["copy"], ["*fp32"] * 2, {"N": 256})
    said = str(e.value)
    assert said.startswith("copy for gfx942: copy, line 6 of the cell (i = gl.arange(") and said.endswith(WRONG[layout])
    with dry_run("gfx942"), pytest.raises(RuntimeError) as e:
        cell["copy"][(1,)](X, X, N=256)
    assert explain_compile_error(cell["copy"], e.value).endswith(WRONG[layout])
    assert "error:" not in capfd.readouterr().err, "it is said once"


def test_what_the_compiler_prints_without_an_error_comes_through(capfd, monkeypatch):
    cell = run_cell(COPY.replace("LAYOUT", "[1], [64], [4], [0]"))
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "1")
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    compile_kernel(cell["copy"], ["*fp32"] * 2, {"N": 256})
    assert "IR Dump" in capfd.readouterr().err


def test_a_kernel_travels_with_its_layouts_and_the_functions_that_it_calls():
    cell = run_cell(CELL)
    (again,) = unpack_objects(pack_objects([cell["turned"]]))
    assert again is not cell["turned"]
    with executed_on_gfx942():
        assert torch.equal(again(X), X.T)


def test_the_interpreter_says_what_to_do_instead():
    cell = run_cell(CELL)
    said = r"^turn is a Gluon kernel.*with cdna\.run\.executed_on_gfx942\(\):"
    with pytest.raises(InterpretError, match=said):
        launch_anywhere(cell["turn"], (1,), X, torch.empty_like(X), N=64, LDS=None)


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["cdna", *words])
    with contextlib.suppress(SystemExit):
        main()


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "FILE"],
        ["inspect", "FILE::turn", "--call", "turned(torch.zeros(64, 64))"],
        ["step", "FILE", "--steps", "3"],
    ],
)
def test_commands_take_them(words, tmp_path, capsys, monkeypatch):
    file = tmp_path / "turn.py"
    file.write_text(CELL)
    command(monkeypatch, *(str(file) + w[4:] if w.startswith("FILE") else w for w in words))
    assert re.search(r"\bturn\b", capsys.readouterr().out)


def test_inspect_takes_types(tmp_path, capsys, monkeypatch):
    file = tmp_path / "copy.py"
    file.write_text(COPY.replace("LAYOUT", "[4], [64], [4], [0]"))
    words = ["--arg", "x=*fp32:16", "--arg", "y=*fp32:16", "--const", "N=1024"]
    command(monkeypatch, "inspect", f"{file}::copy", *words)
    assert re.search(r"global load +128 +1 ", capsys.readouterr().out)


README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PUZZLE, SOLUTION = re.findall(r"```python\n(import torch\n.*?)```", README, re.S)


@pytest.fixture
def puzzle(tmp_path):
    file = tmp_path / "puzzle.py"
    file.write_text(PUZZLE)
    return file


def graded(puzzle, *pairs, name="double"):
    code = SOLUTION
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return grade(run_cell(code)[name], str(puzzle))


def test_a_teachers_puzzle_is_solved_in_gluon(puzzle):
    done = str(graded(puzzle))
    assert "double: passed" in done and "equals 2 * x in all 2 cases" in done and "1.00 times the floor" in done
    assert re.search(r"loads +1 of 128 bits", done) and "the same result from" in done


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", mask=i < n)\n", ")\n", r"1,000 elements: double_kernel, line \d+ of the cell.*outside its tensor: .* of y"),
        ("2 * gl.load", "2 + gl.load", "4,096 elements: element .* -> x . 2 is something else"),
        ("BLOCK + gl.arange", "8 + gl.arange", r"a race: writes byte \d+ of y, which workgroup .* -> .*gl.atomic_add"),
        (
            "[4], [64], [4]",
            "[4], [32], [4]",
            r"compiles .*double_kernel, line \d+ of the cell.*Layout has 32 threads per",
        ),
        ("    return y", "    return 2 * x", "stays the same when the kernels store nothing"),
        ("    return y", "    x.zero_()\n    return y", "changes its argument"),
        ("    y = torch", "    x = 1 * x\n    y = torch", r"PyTorch computes with the arguments \(mul\)"),
        ("[4], [64], [4], [0]", "[1], [64], [4], [0]", r"32 bits -> 128 bits for each lane: .*size_per_thread"),
        ("    double_kernel", "    print(undefined)\n    double_kernel", r"double, line \d+ of the cell.*NameError"),
    ],
)
def test_a_wrong_gluon_solution_is_refused_in_one_line(puzzle, old, new, said):
    done = graded(puzzle, (old, new))
    assert not done.passed and re.search(said, str(done)), str(done)
    assert all("\n" not in check.found for check in done.checks)


def test_a_puzzle_may_ask_for_gluon(puzzle):
    puzzle.write_text(PUZZLE.replace('name="double",', 'name="double",\n    gluon=True,'))
    assert graded(puzzle).passed
    layout = ", layout=gl.BlockedLayout([4], [64], [4], [0])"
    said = str(
        graded(
            puzzle,
            (layout, ""),
            ("gluon.jit", "triton.jit"),
            ("gl.", "tl."),
            ("gluon import language as gl", "gluon import language as gl\nimport triton.language as tl"),
        )
    )
    assert (
        "double_kernel is written in Triton's language, and Gluon is asked for -> decorate it with @gluon.jit" in said
    )


def test_what_a_solution_may_not_do_is_named_where_it_is_executed_too(puzzle):
    assert "(code 7)" in str(graded(puzzle, ("    y = torch", "    __import__('os')._exit(7)\n    y = torch")))
    assert "another process" in str(graded(puzzle, ("    y = torch", "    __import__('os').fork()\n    y = torch")))
    endless = ("    gl.store", "    while n > 0:\n        gl.store(y + i, 1.0, mask=i < n)\n    gl.store")
    code = SOLUTION.replace(*endless)
    done = grade(run_cell(code)["double"], str(puzzle), seconds=2)
    assert re.search("does this loop end|does not end on the GPU", str(done)), str(done)


def test_without_gluon_a_puzzle_is_stepped_over(puzzle, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon.language.amd.cdna3", None)
    done = graded(puzzle)
    assert not done.passed and not done.checks
    assert re.fullmatch(r"double: stepped over: Triton 3\.\S+ has no Gluon for gfx942 \(.*cdna3.*\)", str(done))
    assert "stepped over" in done._repr_html_()
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon.language.amd.cdna3", types.ModuleType("cdna3"))
    assert str(graded(puzzle)).endswith("has Gluon for gfx942 without mfma, buffer_load")
