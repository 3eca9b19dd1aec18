# SPDX-License-Identifier: MIT
"""The two wheels alone, far from a clone: every command of the README finds what it needs inside it."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rocm_guide.cli.lessons import catalogue, cell_source
from tests.in_turn import in_shares

ROOT = Path(__file__).parents[2]
LESSONS = catalogue(ROOT / "notebooks")
#: Links in a clone, folders in the wheel: where in the package, and what they lead to.
LINKS = {"rocm_guide/notebooks": "notebooks", "rocm_guide/data/measured": "benchmarks/results"}

KERNEL = """import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, with that of cdna beside it, built from a copy of what they are made of: building leaves folders."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    shutil.copytree(ROOT / "benchmarks/results", folder / "benchmarks/results")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rocm_guide", folder / "rocm_guide", symlinks=True, ignore=ignored)
    shutil.copytree(ROOT / "cdna", folder / "cdna", ignore=shutil.ignore_patterns("__pycache__", "build", "tests"))
    command = [sys.executable, "-m", "pip", "wheel", "./cdna", ".", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "-w", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return next((folder / "out").glob("rocm_guide-*.whl"))


@pytest.fixture(scope="module")
def cli(wheel, tmp_path_factory):
    """Run a command of the unpacked wheel in a folder that has nothing to do with the course."""
    place, elsewhere = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("elsewhere")
    for file in wheel.parent.glob("*.whl"):
        with zipfile.ZipFile(file) as packed:
            packed.extractall(place)
    (elsewhere / "mine.py").write_text(KERNEL)

    def run(*arguments, module="rocm_guide.cli.main", code=None, cwd=elsewhere):
        command = [sys.executable, *(["-c", code] if code else ["-m", module]), *arguments]
        env = {**os.environ, "PYTHONPATH": str(place)}
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)

    where = run(code="import cdna, rocm_guide; print(cdna.__file__, rocm_guide.__file__)").stdout
    assert where.count(str(place)) == 2, where
    run.place, run.elsewhere = place, elsewhere
    return run


def test_the_wheel_carries_every_notebook_and_data_file(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = {n for n in packed.namelist() if not n.endswith("/")}
    tracked = subprocess.run(
        ["git", "ls-files", "rocm_guide", "notebooks"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    inside = [p for p in tracked if p not in LINKS] or [
        str(p.relative_to(ROOT)) for p in (ROOT / "rocm_guide").rglob("*.py")
    ]
    wanted = {f"rocm_guide/{p}" if p.startswith("notebooks/") else p for p in inside}
    assert wanted <= names, sorted(wanted - names)
    with zipfile.ZipFile(next(wheel.parent.glob("cdna-*.whl"))) as packed:
        names = {n for n in packed.namelist() if not n.endswith("/")}
    tracked = subprocess.run(["git", "ls-files", "cdna/cdna"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert {p.removeprefix("cdna/") for p in tracked} <= names and not any("tests" in n for n in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["doctor"], "[OK]"),
        (["list"], "Start here"),
        (["copy", "device.seed_all"], "def seed_all("),
        (["script", "02"], "trainer = SFTTrainer("),
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
    done = cli(*words, module="cdna.cli.main" if words[0] == "inspect" else "rocm_guide.cli.main")
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout


def names_of_files(lesson):
    """What the cells of a notebook that read recorded files name: every text in them, alone and with an ending."""
    for cell in json.loads(lesson.path.read_text(encoding="utf-8"))["cells"]:
        source = cell_source(cell)
        if cell["cell_type"] == "code" and "recorded(" in source:
            texts = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
            words = {t for t in texts if isinstance(t, str) and re.fullmatch(r"\w[\w.-]*", t)}
            yield from words | {f"{t}.json" for t in words}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda x: x.number)
def test_what_a_notebook_reads_is_in_the_wheel(wheel, lesson):
    with zipfile.ZipFile(wheel) as packed:
        inside = packed.namelist()
    homes = {"rocm_guide/notebooks/recorded": ROOT / "notebooks/recorded", "rocm_guide/data/measured": ROOT}
    homes["rocm_guide/data/measured"] /= "benchmarks/results"
    missing = [
        f"{place}/{name}"
        for name in names_of_files(lesson)
        for place, home in homes.items()
        if (home / name).exists() and not any(n.startswith(f"{place}/{name}") for n in inside)
    ]
    assert not missing
    for index, cell in enumerate(json.loads(lesson.path.read_text(encoding="utf-8"))["cells"]):
        source = cell_source(cell) if cell["cell_type"] == "code" else ""
        beside = re.search(r"rocm_guide\.__file__|benchmarks/results|\.\./benchmarks", source)
        assert not beside, (
            f"cell {index} reads beside the package ({beside[0]}): use rocm_guide.observe.profiling.recorded"
        )


def test_the_library_looks_beside_itself_for_no_file():
    """Beside an installed package lies nothing of ours: these few ask for a clone, or put the package on a path."""
    known = {
        "cli/lessons.py": "notebooks of a clone come before those in the package",
        "observe/doctor/own_folders.py": "PYTHONPATH of a child",
        "finetune/nodes.py": "PYTHONPATH of a child",
    }
    found = {
        path.relative_to(ROOT / "rocm_guide").as_posix()
        for path in (ROOT / "rocm_guide").rglob("*.py")
        if re.search(r"package_folder\(\)\.parent|rocm_guide\.__file__", path.read_text(encoding="utf-8"))
    }
    assert found == set(known)


def test_the_links_lead_where_the_wheel_has_folders():
    for link, target in LINKS.items():
        assert (ROOT / link).is_symlink() and (ROOT / link).resolve() == ROOT / target


def test_libraries_of_their_own_folder_are_not_put_beside_the_package(cli):
    code = "from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS as o\nimport sys\nsys.prefix = '/nowhere'\n"
    code += "f = o['quantization']\nprint(f.path)\nprint(f.fix)"
    path, fix = cli(code=code).stdout.splitlines()
    assert not path.startswith(str(cli.place)) and Path(path).name.startswith("quantization-")
    assert fix == "run python -m rocm_guide.observe.doctor.own_folders quantization", "no make where there is no clone"


@pytest.mark.slow
@pytest.mark.parametrize("number", in_shares([x.number for x in LESSONS], len(LESSONS)))
def test_a_notebook_of_the_wheel_runs_in_an_empty_folder(cli, number, tmp_path):
    """One in each run, in turn; ROCM_GUIDE_ALL=1 runs them all. Results go where the reader is, the package stays."""

    def files():
        folder = cli.place / "rocm_guide"
        return {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}

    before = files()
    (notebook,) = (cli.place / "rocm_guide/notebooks").glob(f"{number}_*.ipynb")
    command = ["-k", "python3", "--no-progress-bar", str(notebook), f"{number}.ipynb"]
    done = cli(*command, module="papermill", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert files() == before and {p.name for p in tmp_path.iterdir()} <= {"runs", f"{number}.ipynb"}


def test_the_runner_says_where_it_is(cli):
    without = f"import sys\nsys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]\n"
    without += "sys.argv = ['rocm-guide', *sys.argv[1:]]\nfrom rocm_guide.cli.main import main\nmain()"
    done = cli("run", "00", code=without)
    line = "run: works in a clone of the course; elsewhere run: papermill IN.ipynb OUT.ipynb\n"
    assert (done.returncode, done.stderr) == (2, line)
    assert " run " not in cli("--help", code=without).stdout


def test_without_notebooks_the_line_says_where_to_get_them(cli, tmp_path):
    code = "import rocm_guide.cli.lessons as c\nfrom pathlib import Path\n"
    code += f"c.package_folder = lambda: Path({str(tmp_path / 'rocm_guide')!r})\n"
    code += "try: c.notebooks_folder()\nexcept c.GuideError as e: print(e)"
    said = cli(code=code).stdout
    assert said.count("\n") == 1 and "no folder notebooks/ here or above" in said and "clone of the course" in said
