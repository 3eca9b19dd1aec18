# SPDX-License-Identifier: MIT
"""The grader's manners: what it refuses, how it shows, and that nothing of a solution reaches the next one."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cdna.checks import Check
from cdna.grade import GradeError
from cdna.grade.puzzle import far_apart
from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import PATH, PUZZLES, grade, grading, start
from rocm_guide.dojo.grading import Grade
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
    with pytest.raises(GradeError, match="puzzle 'copi': there are add, copy, strided_copy"):
        grade(torch.clone, "copi")
    with pytest.raises(GradeError, match="give the function that launches your kernel"):
        grade(torch.zeros(3), "copy")
    cell = run_cell(HEAD + SOLUTIONS["copy"])
    with pytest.raises(GradeError, match="not the kernel"):
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
        e = puzzle.expect
        assert e.load_bits and e.waves and e.workgroups and e.traffic, "every puzzle states what it expects"
        assert any(c.traffic for c in puzzle.cases) and f"{e.workgroups:,} workgroups" in str(e)
        assert "# Expected: loads of" in start(puzzle.name).text
    far = far_apart(4)
    assert 2 * far.stride(0) == 1 << 31, "the second row's offset fits into 32 bits, the third's does not"


def longest(arguments):
    """Elements of the longest row, sequence or K: the first dimension counts only where it is all, also of others."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    rows = {a.shape[0] for a in tensors if a.dim() > 1}
    return max(max(a.shape[1:] or a.shape) for a in tensors if a.dim() > 1 or a.shape[0] not in rows)


def beyond(tensor):
    """Return whether the last element lies 2^31 elements or more from the first."""
    return sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) >= 1 << 31


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=lambda p: p.name)
def test_cases_reach_what_small_ones_hide(puzzle):
    """The true length, offsets beyond 2^31, views; none where the task says that there are none."""
    made = [(c, c.arguments()) for c in puzzle.cases]
    true = min(longest(puzzle.shape("meta")), 100_000)
    if puzzle.name == "naive_matmul":
        true = 1024  # each step along K takes a millisecond in the interpreter
    assert max(longest(a) for c, a in made if not c.last or c.wanted) >= true
    tensors = [a for _, arguments in made for a in arguments if isinstance(a, torch.Tensor)]
    if "2^31" not in puzzle.task:
        assert any(map(beyond, tensors)) or any(c.last and not c.wanted for c in puzzle.cases)
    for i, name in enumerate(puzzle.task.split("(")[1].split(")")[0].split(", ")):
        given = [a[i] for c, a in made if isinstance(a[i], torch.Tensor) and a[i].dim() > 1 and not c.last]
        said = re.search(rf"contiguous fp16|\b{name}( \[heads, D\])? contiguous", puzzle.task)
        assert said or not given or any(not t.is_contiguous() for t in given), f"{name} is contiguous in every case"


def test_a_loop_that_ends_an_element_early_meets_a_length_of_one():
    """Range(0, n - 1, BLOCK) is right for every n but those that are 1 more than some blocks."""
    looped = [p for p in PUZZLES.values() if any(p.name == s.puzzle and s.family in ("rows", "products") for s in PATH)]
    for puzzle in [*looped, *(PUZZLES[n] for n in ("block_scaled_matmul", "grouped_matmul", "linear_cross_entropy"))]:
        made = [c.arguments() for c in puzzle.cases if not c.last]
        assert any(arguments[0].shape[1] == 1 for arguments in made), puzzle.name


@pytest.mark.parametrize("name", ["rope_cache", "block_scaled_matmul", "grouped_matmul", "linear_cross_entropy"])
def test_a_reference_is_timed_with_the_types_of_the_puzzle(name):
    """On a GPU it is timed on the arguments as they are, FP8 and a cache in 16 bits among them."""
    puzzle = PUZZLES[name]
    arguments = next(c for c in puzzle.cases if not c.last).arguments()
    results = puzzle.reference(*arguments)
    for result in results if isinstance(results, list | tuple) else [results]:
        assert result.isfinite().all()


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
        raise CompilationError(None, None, 'ValueError("type fp8e4b8 not supported in this architecture. The supported')

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    (check,) = grading._time_check(solution, fake_puzzle([torch.zeros(4)]))
    assert check.status == "WARN"
    assert check.found == "not measured, NVIDIA H100 cannot run it: type fp8e4b8 not supported in this architecture"


class FakeGpu:
    """A GPU that is this CPU: its clock says a microsecond, and two repeats are run."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
        monkeypatch.setattr(grading, "time_call", self.time_call)
        monkeypatch.setattr(grading, "_CACHES", 4)

    @staticmethod
    def time_call(call, before):
        for _ in range(2):
            before()
            call()
        return SimpleNamespace(median=1e-6)


def fake_puzzle(arguments):
    return replace(PUZZLES["copy"], shape=lambda device: arguments, reference=lambda x, *_: x.clone())


def test_random_numbers_go_where_numbers_are_and_a_page_table_stays(monkeypatch):
    FakeGpu(monkeypatch)
    given, table = [], torch.arange(4, dtype=torch.int32)
    puzzle = fake_puzzle([torch.zeros(4, dtype=torch.float16), table, 8])

    def call(x, pages, length):
        given.append((x.clone(), pages.tolist(), length))
        return x.clone()

    (check,) = grading._time_check(call, puzzle)
    assert check.found == "1.0 us, the reference in PyTorch 1.0 us (a GPU)"
    assert given[0][0].any() and given[0][1:] == ([0, 1, 2, 3], 8)
    assert len({tuple(x.tolist()) for x, *_ in given}) == len(given) == 3, "each repeat has numbers of its own"


def test_a_result_that_was_kept_on_a_gpu_is_found_after_the_clock_has_stopped(monkeypatch):
    FakeGpu(monkeypatch)
    kept = []

    def call(x):
        kept.append(x.clone())
        return kept[0]

    (check,) = grading._time_check(call, fake_puzzle([torch.zeros(4, dtype=torch.float16)]))
    assert check.status == "FAIL" and "the last timed call on a GPU: element" in check.found
