# SPDX-License-Identifier: MIT
"""The grader's manners: what it refuses, how it shows, and that nothing of a solution reaches the next one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cdna.testing import HEAD, run_cell
from rocm_guide.common.checks import Check
from rocm_guide.dojo import PUZZLES, DojoError, grade, grading
from rocm_guide.dojo.grading import Grade
from rocm_guide.dojo.puzzle import rows_far_apart
from rocm_guide.exercises.kernel_dojo import check_banks, check_puzzle, check_round_trip, check_waits
from tests.dojo.solutions import SOLUTIONS
from tests.dojo.test_listings import BANKS, RIGHT, WAIT


def changed(name, *pairs):
    code = SOLUTIONS[name]
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return run_cell(HEAD + code)[name]


def test_what_cannot_be_graded_is_refused_in_one_line():
    with pytest.raises(DojoError, match="puzzle 'copi': there are add, copy, strided_copy"):
        grade(torch.clone, "copi")
    with pytest.raises(DojoError, match="give the function that launches your kernel"):
        grade(torch.zeros(3), "copy")
    cell = run_cell(HEAD + SOLUTIONS["copy"])
    with pytest.raises(DojoError, match="not the kernel"):
        grade(cell["copy_kernel"], "copy")
    table = run_cell("table = __import__('torch').zeros(3)\ndef copy(x):\n    return x + table\n")
    assert "copy reads table (Tensor)" in str(grade(table["copy"], "copy"))


def test_a_solution_that_ends_its_process_is_named_and_the_next_one_runs():
    gone = run_cell("import os\ndef copy(x):\n    os._exit(7)\n")["copy"]
    assert "the solution ended its process (code 7)" in str(grade(gone, "copy"))
    crash = run_cell("import ctypes\ndef copy(x):\n    ctypes.string_at(0)\n")["copy"]
    assert "(code -11)" in str(grade(crash, "copy"))
    loud = run_cell("def copy(x):\n    print('0')\n    x.zero_()\n    return x.clone()\n")["copy"]
    assert "4,096 elements: changes its argument" in str(grade(loud, "copy"))
    assert "no Triton kernel" in str(grade(torch.clone, "copy"))


def test_the_compilers_refusal_names_the_line():
    """Right in the interpreter, which is Python; refused by the compiler."""
    bad = changed("copy", ("tl.arange(0, BLOCK)", "(lambda: tl.arange(0, BLOCK))()"))
    said = str(grade(bad, "copy"))
    assert "[FAIL] compiles" in said and "copy_kernel, line 7 of the cell" in said


def test_how_a_grade_shows():
    shown = Grade("copy", (Check("OK", "result", "a < b"), Check("FAIL", "loads", "1 of 16 bits", "wider")))
    assert not shown.passed and str(shown) == repr(shown)
    page = shown._repr_html_()
    assert "a &lt; b" in page and "wider" in page and "not yet" in page
    assert Grade("copy", (Check("WARN", "time", "slow"),)).passed


def test_puzzles_say_what_they_want():
    for puzzle in PUZZLES.values():
        assert puzzle.task.startswith(puzzle.name + "(") and len(puzzle.cases) >= 4
        assert len({c.name for c in puzzle.cases}) == len(puzzle.cases) and all(c.hint for c in puzzle.cases)
        assert bool(puzzle.expect.traffic) == any(c.traffic for c in puzzle.cases), puzzle.name
    far = rows_far_apart(4)
    assert 2 * far.stride(0) == 1 << 31, "the second row's offset fits into 32 bits, the third's does not"


def test_exercises_accept_the_repair_and_refuse_the_fault(capsys):
    assert check_round_trip(run_cell(HEAD + SOLUTIONS["scale_columns"])["scale_columns"])
    assert not check_round_trip(run_cell(HEAD + PUZZLES["scale_columns"].starter)["scale_columns"])
    # Without LDS, and each lane stores 16 bits: the trip is gone, and so is the width.
    assert not check_round_trip(changed("scale_columns", ("M, 32)", "M, 1)"), ("BM=32, BN=64", "BM=1, BN=64")))
    assert check_waits(RIGHT["missing_wait"][0]) and not check_waits(WAIT)
    assert check_banks(RIGHT["bank_conflicts"][0]) and not check_banks(BANKS)
    assert not check_puzzle(changed("row_sum", (".to(tl.float32)", "")), "row_sum")
    assert "128 bits for each lane" in capsys.readouterr().out


def test_a_gpu_that_lacks_a_type_is_no_fault_of_the_solution(monkeypatch):
    from triton.compiler.errors import CompilationError

    def solution(x):
        raise CompilationError(None, None, "type fp8e4b8 not supported in this architecture")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    puzzle = SimpleNamespace(shape=lambda device: [torch.zeros(4)], reference=torch.clone)
    (check,) = grading._time_check(solution, puzzle)
    assert check.status == "WARN"
    assert check.found == "not measured, NVIDIA H100 cannot run it: type fp8e4b8 not supported in this architecture"


def test_random_numbers_go_where_numbers_are_and_a_page_table_stays(monkeypatch):
    given = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr("rocm_guide.common.device.time_call", lambda call: SimpleNamespace(median=1e-6))
    table = torch.arange(4, dtype=torch.int32)
    puzzle = SimpleNamespace(shape=lambda device: [torch.zeros(4), table, 8], reference=torch.clone)
    (check,) = grading._time_check(lambda *a: given.extend(a), puzzle)
    assert check.found == "1.0 us, the reference in PyTorch 1.0 us (a GPU)"
    assert given[0].any() and given[1].tolist() == [0, 1, 2, 3] and given[2] == 8
