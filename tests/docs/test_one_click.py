# SPDX-License-Identifier: MIT
"""Links for Colab, Codespaces and Binder are written by a command, and the notebooks keep to their rules with them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course.lint import lint_notebook
from docs.one_click import OneClickError, main, write_links
from docs.site.sources import prepared

ROOT = Path(__file__).parents[2]
NAMES = ("01_lora_from_scratch.ipynb", "34_attention_kernels.ipynb")


@pytest.fixture
def course(tmp_path):
    """A small copy of the repository: README and two notebooks, one with as many cells as are allowed."""
    (tmp_path / "notebooks").mkdir()
    for name in ("README.md", *(f"notebooks/{n}" for n in NAMES)):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def source(cell):
    return "".join(cell["source"])


def test_links_are_written_once_and_can_be_changed(course):
    before = {n: json.loads((course / "notebooks" / n).read_text()) for n in NAMES}
    assert len(write_links("someone/course", course)) == 3
    assert write_links("someone/course", course) == []
    assert len(write_links("other/guide", course)) == 3
    for name in NAMES:
        nb = json.loads((course / "notebooks" / name).read_text())
        line = source(nb["cells"][0]).splitlines()[-1]
        assert line.count("other/guide") == 3 and "someone" not in json.dumps(nb)
        assert f"colab.research.google.com/github/other/guide/blob/HEAD/notebooks/{name}" in line
        assert nb["cells"][1]["metadata"]["tags"] == ["colab"]
        # Nothing else changed.
        assert nb["cells"][2:] == before[name]["cells"][1:] and nb["metadata"] == before[name]["metadata"]
    readme = (course / "README.md").read_text()
    assert readme.count("https://codespaces.new/other/guide") == 1 and "img.shields" not in readme


def test_the_rules_of_a_notebook_hold_with_the_cell_for_colab(course):
    """Its outputs are stale until `python -m course store` has run; no other rule minds it."""
    path = course / "notebooks" / NAMES[1]
    before = {str(f) for f in lint_notebook(path) if f.level == "error"}
    write_links("someone/course", course)
    new = {str(f) for f in lint_notebook(path) if f.level == "error"} - before
    assert new and all("python -m course store" in f for f in new)


def test_the_cell_for_colab_does_nothing_where_the_course_is(course, tmp_path):
    write_links("someone/course", course)
    code = source(json.loads((course / "notebooks" / NAMES[0]).read_text())["cells"][1])
    guarded = "import subprocess\ndef no(*a, **k): raise SystemExit('installs')\nsubprocess.run = no\n" + code
    done = subprocess.run([sys.executable, "-c", guarded], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # Without it, one call of pip, which must not touch the torch that is there.
    missing = "import importlib.util, subprocess\nimportlib.util.find_spec = lambda n: None\n"
    code = missing + "subprocess.run = lambda a, check: print(*a[1:])\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    where = "git+https://github.com/someone/course"
    expected = f"-m pip install -q -c torch.txt cdna @ {where}#subdirectory=cdna rocm-guide[course] @ {where}"
    assert done.stdout.strip() == expected, done.stderr
    assert (tmp_path / "torch.txt").read_text().startswith("torch==")


def test_the_site_shows_no_cell_for_colab_and_closes_solutions(course):
    write_links("someone/course", course)
    nb = prepared(json.loads((course / "notebooks" / NAMES[0]).read_text()))
    tags = [c["metadata"].get("tags", []) for c in nb["cells"]]
    assert not any("colab" in t for t in tags)
    assert sum("solution" in t for t in tags) >= 3 and all("hide-cell" in t for t in tags if "solution" in t)


@pytest.mark.parametrize("address", ["", "course", "https://github.com/a/b", "a/b/c", "a b/c", "-a/b", "a/b;rm"])
def test_what_is_no_address_changes_nothing(course, address):
    before = {p: p.read_bytes() for p in course.rglob("*.*") if p.is_file()}
    with pytest.raises(OneClickError, match="OWNER/REPOSITORY"):
        write_links(address, course)
    assert before == {p: p.read_bytes() for p in course.rglob("*.*") if p.is_file()}


def test_a_broken_notebook_stops_before_anything_is_written(course, capsys):
    (course / "notebooks/21_broken.ipynb").write_text('{"cells": [')
    before = (course / "README.md").read_bytes()
    with pytest.raises(OneClickError, match=r"21_broken.ipynb: is no notebook"):
        write_links("a/b", course)
    assert (course / "README.md").read_bytes() == before
    assert main(["not an address"]) == 2 and main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_machines_of_others_get_what_the_course_needs():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    torch = (ROOT / "binder/requirements.txt").read_text().splitlines()[-2:]
    pinned = next(
        p for p in (ROOT / "rocm_guide/data/constraints.txt").read_text().splitlines() if p.startswith("torch=")
    )
    # Neither machine has a GPU: the build for a CPU is 3 GB smaller. The Dockerfile and compose.yaml name the same one.
    assert torch == ["--extra-index-url https://download.pytorch.org/whl/cpu", f"{pinned}+cpu"]
    assert container["onCreateCommand"] == f"make install ROCM_GUIDE_TORCH='{torch[1]} {torch[0]}'"
    for file, form in (
        ("course.Dockerfile", 'ARG ROCM_GUIDE_TORCH="{}"'),
        ("compose.yaml", "${{ROCM_GUIDE_TORCH:-{}}}"),
    ):
        assert form.format(f"{torch[1]} {torch[0]}") in (ROOT / "docker" / file).read_text(), file
    assert container["hostRequirements"] == {"cpus": 4, "memory": "8gb", "storage": "32gb"}
    assert "make install VENV=none" in (ROOT / "binder/postBuild").read_text()
    wanted = (ROOT / "binder/runtime.txt").read_text().strip().removeprefix("python-")
    low, high = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].split(",")
    low, wanted, high = (tuple(map(int, text.strip("<>=").split("."))) for text in (low, wanted, high))
    assert low <= wanted < high
    assert (ROOT / "binder/postBuild").stat().st_mode & 0o100


def test_badges_are_pictures_of_the_repository_that_say_what_they_are():
    for name in ("colab", "codespaces", "binder"):
        picture = ElementTree.parse(ROOT / f"docs/badges/{name}.svg").getroot()
        assert name in picture.attrib["aria-label"].lower()
