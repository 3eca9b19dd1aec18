# SPDX-License-Identifier: MIT
"""The course itself: every notebook keeps the rules, is stored fresh, and runs from top to bottom at tiny scale."""

import re
import shutil
from pathlib import Path

import pytest

from course.lint import lint_notebook
from course.run import run_course
from course.store import PARTS_TABLE, TABLE, course_table, machines, parts_table, pictures
from rocm_guide.cli.lessons import catalogue, read_notebook
from tests.notebooks.my_model import TRAINS, trained_runs

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
LESSONS = catalogue(FOLDER) if any(FOLDER.glob("*.ipynb")) else []
IDS = [x.path.stem for x in LESSONS]
#: A stage of the passport in one line, as passport_line writes it, and one of its figures.
LINE = re.compile(r"^(?P<stage>[\w.-]+): (?P<figures>\S.*); rocm-guide passport \S+ shows all stages$", re.M)
FIGURE = re.compile(
    r"(?P<name>[a-z/ ]+) (?P<value>[\d,.%]+(?: [kMG]?B)?)(?: \((?P<of>\S+) (?P<before>[^)]+?)(?:, worse)?\))?"
)


def test_there_is_a_course():
    assert LESSONS and LESSONS[0].number == "00"


@pytest.mark.parametrize("lesson", LESSONS, ids=IDS)
def test_keeps_the_rules(lesson):
    errors = [str(f) for f in lint_notebook(lesson.path) if f.level == "error"]
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize("lesson", LESSONS, ids=IDS)
def test_fits_into_four_gibibytes(lesson):
    assert lesson.peak_mib and lesson.peak_mib <= 4096


def test_readmes_show_every_notebook_and_what_it_took():
    parts = PARTS_TABLE.search((FOLDER.parent / "README.md").read_text(encoding="utf-8"))
    assert parts and parts_table(LESSONS) in parts[0], "stale; run: python -m course store"
    place = TABLE.search((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert place, "notebooks/README.md has no <!-- course-table --><!-- /course-table -->"
    assert course_table(LESSONS) in place[0], "stale; run: python -m course store"
    assert machines(LESSONS) in place[0], "stale; run: python -m course store"


def test_readme_is_one_page():
    assert len((FOLDER.parent / "README.md").read_bytes()) <= 6500


def test_readme_shows_pictures_of_the_course():
    found = pictures((FOLDER.parent / "README.md").read_text(encoding="utf-8"), LESSONS)
    assert found, "README.md shows no picture that a notebook made"
    for file, data in found.items():
        assert (FOLDER.parent / file).read_bytes() == data, f"{file} is stale; run: python -m course store"


def test_the_thread_is_stored_as_one_run():
    """In brackets each line of the passport shows the figures of the stage before, as that one's line has them."""
    shown: dict[str, dict[str, str]] = {}  # stage -> figure -> value
    followed, numbers = [], []
    for lesson in LESSONS:
        for cell in read_notebook(lesson.path)["cells"]:
            for output in cell.get("outputs", []):
                for line in LINE.finditer("".join(output.get("text", ""))):
                    numbers.append(lesson.number)
                    figures = [FIGURE.fullmatch(text) for text in re.split(r", (?![^(]*\))", line["figures"])]
                    shown[line["stage"]] = {f["name"]: f["value"] for f in figures}
                    followed += [(lesson.number, f["of"], f["name"], f["before"]) for f in figures if f["of"]]
    assert list(dict.fromkeys(numbers)) == ["02", "03", "08", "10", "11", "12", "16", "18"]
    assert {of for _, of, *_ in followed} == {"base", "adapter", "merged"} and len(followed) > 20
    fix = "store them in one call: python -m course store 02 03 08 10 11 12 16 17 18"
    for number, of, name, before in followed:
        assert shown[of][name] == before, f"{number} does not go on with {of} of the run ({name} {before}); {fix}"


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize("lesson", LESSONS, ids=IDS)
def test_runs_from_top_to_bottom(lesson, tmp_path, tmp_path_factory, monkeypatch):
    """Each alone, but for the adapter of notebook 02: once a run it is trained as where none is there."""
    if TRAINS.search(lesson.path.read_text(encoding="utf-8")):
        shutil.copytree(trained_runs(tmp_path_factory), tmp_path / "runs")
        monkeypatch.setenv("ROCM_GUIDE_RUNS", str(tmp_path / "runs"))
    before = set(FOLDER.iterdir())
    entry = run_course([lesson], tmp_path)["notebooks"][lesson.number]
    assert entry["status"] == "ok", (entry["failure"]["message"], entry["failure"]["traceback"])
    assert entry["peak_mib"] <= 4096
    page = (tmp_path / entry["html"]).read_text(encoding="utf-8")
    assert lesson.title.split("&")[0][:20] in page
    assert set(FOLDER.iterdir()) - before == set(), "a notebook leaves nothing beside itself"
