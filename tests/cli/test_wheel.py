# SPDX-License-Identifier: MIT
"""The wheel alone, far from a clone: every command of the README finds what it needs inside it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

KERNEL = """import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of what it is made of: building leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rocm_guide", folder / "rocm_guide", symlinks=True, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--no-deps", "--no-build-isolation", "-w", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return next((folder / "out").glob("*.whl"))


@pytest.fixture(scope="module")
def cli(wheel, tmp_path_factory):
    """Run a command of the unpacked wheel in a folder that has nothing to do with the course."""
    place, elsewhere = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    (elsewhere / "mine.py").write_text(KERNEL)

    def run(*arguments, module="rocm_guide.cli.main", code=None):
        command = [sys.executable, *(["-c", code] if code else ["-m", module]), *arguments]
        env = {**os.environ, "PYTHONPATH": str(place)}
        return subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True)

    where = run(code="import rocm_guide; print(rocm_guide.__file__)").stdout
    assert where.startswith(str(place)), where
    run.place, run.elsewhere = place, elsewhere
    return run


def test_the_wheel_carries_every_notebook_and_data_file(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = {n for n in packed.namelist() if not n.endswith("/")}
    tracked = subprocess.run(
        ["git", "ls-files", "rocm_guide", "notebooks"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    inside = [p for p in tracked if p != "rocm_guide/notebooks"] or [
        str(p.relative_to(ROOT)) for p in (ROOT / "rocm_guide").rglob("*.py")
    ]
    wanted = {f"rocm_guide/{p}" if p.startswith("notebooks/") else p for p in inside}
    assert wanted <= names, sorted(wanted - names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["doctor"], "[OK]"),
        (["list"], "Start here"),
        (["copy", "tunableop.plan"], "def plan("),
        (["fit", "llama-2-7b"], "llama-2-7b"),
        (
            [
                "inspect",
                "mine.py::twice",
                "--arg",
                "x=*fp32:16",
                "--arg",
                "y=*fp32:16",
                "--arg",
                "n=i32:16",
                "--const",
                "BLOCK=1024",
            ],
            "twice",
        ),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_a_command_works_anywhere(cli, words, said):
    done = cli(*words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout


@pytest.mark.slow
def test_a_notebook_of_the_wheel_runs_and_its_results_go_where_the_reader_is(cli):
    before = {p: p.stat().st_mtime_ns for p in (cli.place / "rocm_guide" / "notebooks").iterdir()}
    done = cli("run", "00")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (cli.elsewhere / "runs" / "00_start_here.html").is_file()
    assert {p: p.stat().st_mtime_ns for p in before} == before and "ran in" in done.stdout


def test_without_notebooks_the_line_says_where_to_get_them(cli, tmp_path):
    code = "import rocm_guide.course.lessons as c\nfrom pathlib import Path\n"
    code += f"c.package_folder = lambda: Path({str(tmp_path / 'rocm_guide')!r})\n"
    code += "try: c.notebooks_folder()\nexcept c.GuideError as e: print(e)"
    said = cli(code=code).stdout
    assert said.count("\n") == 1 and "no folder notebooks/ here or above" in said and "clone of the course" in said
