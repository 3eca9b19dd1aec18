# SPDX-License-Identifier: MIT
"""One other world of Triton and numpy in each run of the tests, in turn, with a sixth of its notebooks.

`make worlds` runs all of them whole.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import worlds
from tests.in_turn import in_turn

ROOT = Path(__file__).parents[1]
SIXTHS = 6
COMPILES = re.compile(
    r"(?:from|import) (?:triton|cdna\.(?!predict|base|children)"
    r"|rocm_guide\.(?:dojo|kernels|quantize\.smoothquant|tune\.attention|tune\.compilation)\b)"
)
#: What every world runs in `make test`; `make worlds` runs all of worlds.TESTS.
QUICK_TESTS = [f"cdna/tests/test_{name}.py" for name in ("compile", "guard", "older_interpreter")]


def allowed(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = (x for x in project["optional-dependencies"]["course"] if x.startswith(name))
    return Requirement(line).specifier


def test_there_is_a_world_for_every_triton_that_is_allowed():
    pinned = re.search(r"^triton==3\.(\d+)", (ROOT / "rocm_guide/data/constraints.txt").read_text(), re.M)[1]
    minors = {str(n) for n in range(40) if allowed("triton").contains(f"3.{n}.0")}
    assert {name.removeprefix("triton-3.") for name in worlds.WORLDS if name.startswith("triton")} == minors - {pinned}
    numpys = {r for packages in worlds.WORLDS.values() for r in packages if r.startswith("numpy")}
    assert numpys == {"numpy", worlds.OLDEST_NUMPY} and allowed("numpy").contains("2.0.0")


def test_every_notebook_that_compiles_is_in_the_list():
    found = set()
    for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        found |= {path.name[:2]} if COMPILES.search(code) else set()
    # 36 reads and executes what Composable Kernel's own compiler has written
    assert found - {"36"} == set(worlds.NOTEBOOKS)


def test_the_tests_of_a_world_are_there():
    folders = [ROOT / path for paths in worlds.TESTS for path in paths] + [ROOT / path for path in QUICK_TESTS]
    assert [f for f in folders if not f.exists()] == []


def test_a_package_that_nobody_has_is_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(worlds, "ROOT", tmp_path)
    monkeypatch.setitem(worlds.WORLDS, "none", (f"{tmp_path}/no-such.whl",))
    with pytest.raises(worlds.WorldError, match=r"no-such.whl cannot be had: ERROR") as caught:
        worlds.world("none")
    assert "\n" not in str(caught.value) and not list((tmp_path / "build").rglob("made"))


def test_a_name_that_is_no_world_is_refused(capsys):
    assert worlds.main(["triton-2.0"]) == 2 and "choose from triton-3.6" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize(
    ("name", "share"),
    [
        pytest.param(name, share, marks=in_turn(n + len(worlds.WORLDS) * share, SIXTHS * len(worlds.WORLDS)))
        for n, name in enumerate(worlds.WORLDS)
        for share in range(SIXTHS)
    ],
)
def test_the_notebooks_that_compile_run_in_another_world(name, share):
    try:
        environment = worlds.world(name)
    except worlds.WorldError as e:
        pytest.skip(str(e))
    said = dict(part.split() for part in worlds.versions(environment).split(", "))
    for wanted in map(Requirement, worlds.WORLDS[name]):
        assert wanted.specifier.contains(said[wanted.name]), f"{name} imports {said}"
    command = [sys.executable, "-m", "pytest", "-n", "0", *QUICK_TESTS]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert worlds.run_notebooks(name, environment, worlds.NOTEBOOKS[share::SIXTHS], jobs=1) == 0
