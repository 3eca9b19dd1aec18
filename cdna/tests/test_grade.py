# SPDX-License-Identifier: MIT
"""A teacher's own puzzle, as the README shows it, by the command and in Python."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdna.grade import Expect, GradeError, Puzzle
from cdna.grade.puzzle import find_puzzle, puzzles_of
from cdna.grade.structure import judge_execution
from cdna.run.counters import Counters

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PUZZLE = re.search(r"```python\n(import torch\n\nfrom cdna\.grade.*?)```", README, re.S)[1]
SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, FACTOR * tl.load(x + i, mask=i < n), mask=i < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "puzzle.py").write_text(PUZZLE)
    (tmp_path / "right.py").write_text(SOLUTION.replace("FACTOR", "2"))
    (tmp_path / "wrong.py").write_text(SOLUTION.replace("FACTOR *", "2 +"))
    return tmp_path


def command(folder, *words):
    line = [sys.executable, "-m", "cdna.cli.main", "grade", *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True)


def test_the_command_judges_by_a_file(folder):
    done = command(folder, "right.py::double", "puzzle.py", "--json")
    assert done.returncode == 0, done.stderr
    found = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert {"result", "bytes", "loads", "executed"} <= set(found) and set(found.values()) == {"OK"}
    done = command(folder, "wrong.py::double", "puzzle.py")
    assert done.returncode == 1 and "double: not yet" in done.stdout
    assert "-> x + 2 is something else" in done.stdout, "a fault of the puzzle is known by its result"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("right.py", "puzzle.py"), "right.py: write FILE.py::FUNCTION, as copy.py::copy"),
        (("no.py::double", "puzzle.py"), "no.py: no such file"),
        (("right.py::triple", "puzzle.py"), "right.py: has no triple"),
        (("right.py::double", "none.py"), "none.py: no such file; give the file in which the puzzle stands"),
        (("right.py::double", "right.py"), "right.py: which puzzle?; there are none"),
        (("right.py::double", "puzzle.py", "--name", "triple"), "puzzle.py: no puzzle 'triple'; there are double"),
    ],
)
def test_bad_input_is_one_line(folder, words, said):
    done = command(folder, *words)
    assert done.returncode == 2 and done.stderr.strip().endswith(said) and "\n" not in done.stderr.strip()


def test_puzzles_stand_at_the_top_or_in_a_dictionary(tmp_path):
    place = tmp_path / "several.py"
    place.write_text(PUZZLE + "\nfrom dataclasses import replace\nPUZZLES = {'other': replace(DOUBLE, name='other')}\n")
    assert set(puzzles_of(str(place))) == {"double", "other"}
    assert isinstance(find_puzzle(str(place), "other"), Puzzle)
    with pytest.raises(GradeError, match=r"which puzzle.*double, other"):
        find_puzzle(str(place))
    place.write_text(PUZZLE.replace("4,096 elements", "another"))
    assert find_puzzle(str(place)).cases[0].name == "another", "a file is read as it is now"
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(GradeError, match=r"broken.py: cannot be read \(ZeroDivisionError"):
        puzzles_of(str(tmp_path / "broken.py"))


@pytest.mark.parametrize(
    ("counted", "lds", "said"),
    [
        ({"lds_cycles": 150, "lds_ideal": 100}, True, "[OK]   banks"),
        ({"lds_cycles": 151, "lds_ideal": 100}, True, "[FAIL] banks        151 .* another order"),
        ({"lds_cycles": 151, "lds_ideal": 100}, None, "[WARN] banks        151 .* differs by release"),
        ({"lines": 6, "lines_stored": 3, "loaded": 128, "stored": 384}, None, "[FAIL] lines read   3.0 times"),
        ({"lines": 4, "lines_stored": 3, "loaded": 128, "stored": 128}, None, "[FAIL] lines stored 3.0 times"),
        ({"lines": 4, "lines_stored": 2, "loaded": 128, "stored": 128}, None, "[OK]   lines stored 2.0 times"),
    ],
)
def test_what_an_execution_shows(counted, lds, said):
    result = SimpleNamespace(counters=Counters(**counted))
    code = SimpleNamespace(ttir="a module")
    done = SimpleNamespace(launches=[SimpleNamespace(result=result, compiled=code)])
    expect = Expect(load_bits=128, waves=1, workgroups=1, traffic=1, lds=lds)
    found = "\n".join(map(str, judge_execution(done, expect)))
    assert re.search(said.replace("[", r"\["), found), found
