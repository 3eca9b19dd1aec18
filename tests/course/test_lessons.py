# SPDX-License-Identifier: MIT
"""The catalogue of notebooks and the parameters given to them."""

import json
from pathlib import Path

import pytest

from course.parameters import parameters_for, parameters_of
from rocm_guide.cli.lessons import catalogue, find_lessons, notebooks_folder, read_notebook, source_hash
from rocm_guide.common.base import GuideError

COURSE = Path(__file__).parents[2] / "notebooks"


def test_a_notebook_describes_itself(make_notebook):
    path = make_notebook("02_lora", "x = 1")
    (lesson,) = catalogue(path.parent)
    assert (lesson.number, lesson.topic, lesson.title, lesson.covers) == ("02", "lora", "lora", "S0 setup")
    assert lesson.seconds is None and not lesson.fresh


def test_freshness_follows_the_source_only(make_notebook):
    path = make_notebook("02_lora", "x = 1")
    nb = read_notebook(path)
    nb["metadata"]["rocm_guide"] = {"source": source_hash(nb), "seconds": 3, "peak_mib": 9}
    nb["cells"][3]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1"}]
    first = nb["cells"][0]
    first["source"] = first["source"].replace("<!-- measured -->", "<!-- measured -->3 s")
    path.write_text(json.dumps(nb))
    assert catalogue(path.parent)[0].fresh
    nb["cells"][3]["source"] += " "
    path.write_text(json.dumps(nb))
    assert not catalogue(path.parent)[0].fresh


@pytest.mark.parametrize("change", ["source", "tags", "cell_type", "order"])
def test_every_part_of_the_source_counts(make_notebook, change):
    nb = read_notebook(make_notebook("02_lora", "x = 1"))
    before, cell = source_hash(nb), nb["cells"][3]
    match change:
        case "source":
            cell["source"] = "x = 2"
        case "tags":
            cell["metadata"]["tags"] = ["solution"]
        case "cell_type":
            cell["cell_type"] = "markdown"
        case "order":
            nb["cells"].reverse()
    assert source_hash(nb) != before


def test_lessons_are_found_by_number_and_name(make_notebook):
    for stem in ("00_start", "02_lora", "11_tunableop"):
        folder = make_notebook(stem).parent
    lessons = catalogue(folder)
    assert [x.number for x in find_lessons([], lessons)] == ["00", "02", "11"]
    assert [x.number for x in find_lessons(["11", "0", "11_tunableop.ipynb", "11"], lessons)] == ["00", "11"]
    with pytest.raises(GuideError, match="notebook 99: there is none with that number; choose from 00, 02, 11"):
        find_lessons(["02", "99"], lessons)


def test_folder_problems_are_one_line(tmp_path, make_notebook):
    with pytest.raises(GuideError, match="no such folder"):
        catalogue(tmp_path / "nowhere")
    with pytest.raises(GuideError, match="no notebooks there"):
        catalogue(tmp_path)
    folder = make_notebook("02_lora").parent
    (folder / "03_broken.ipynb").write_text("{")
    with pytest.raises(GuideError, match=r"03_broken.ipynb: not a notebook.*git checkout"):
        catalogue(folder)
    (folder / "03_broken.ipynb").unlink()
    make_notebook("02_other")
    with pytest.raises(GuideError, match="number 02 is taken by 02_lora"):
        catalogue(folder)


def test_the_folder_is_found_from_below(make_notebook):
    folder = make_notebook("02_lora").parent
    below = folder.parent / "a" / "b"
    below.mkdir(parents=True)
    assert notebooks_folder(below) == folder == notebooks_folder(folder)


KNOBS = """MODEL = 'tiny'
MODE = 'fast'  # one of: fast, exact
SCALE: str = 'auto'  # tiny: nothing; auto or full: true sizes
RANK = 16
SEED = 0
ROWS = 8  # at least 3: of the table
LR = 1e-3
FAST = True
DEVICE = None
SIZES = [1, 2]"""


def lessons_with(make_notebook):
    make_notebook("01_other", parameters="SCALE = 'auto'\nSTEPS = 10")
    return catalogue(make_notebook("02_lora", parameters=KNOBS).parent)


def test_parameters_go_where_they_are_known(make_notebook):
    given = [("RANK", "8"), ("SCALE", "tiny"), ("LR", "1"), ("FAST", "no"), ("DEVICE", "cuda"), ("SIZES", "[3]")]
    given += [("SEED", "0"), ("ROWS", "3")]
    taken = parameters_for(lessons_with(make_notebook), given)
    assert taken["01"] == {"SCALE": "tiny"}
    assert taken["02"] == {
        "RANK": 8,
        "SCALE": "tiny",
        "LR": 1.0,
        "FAST": False,
        "DEVICE": "cuda",
        "SIZES": [3],
        "SEED": 0,
        "ROWS": 3,
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RAKN", "8", "parameter RAKN: no chosen notebook has it; they have DEVICE, FAST, LR, MODE, MODEL, RANK, ROWS"),
        ("RANK", "eight", "parameter RANK=eight: not an int; its default is 16"),
        ("RANK", "8.5", "not an int"),
        ("RANK", "True", "not an int"),
        ("LR", "fast", "not a float"),
        ("FAST", "maybe", "neither true nor false"),
        ("SIZES", "3", "not a list"),
        ("SCALE", "huge", "parameter SCALE=huge: notebook 01 accepts auto, tiny"),
        ("MODE", "slow", "parameter MODE=slow: notebook 02 accepts fast, exact"),
        ("RANK", "0", "parameter RANK=0: notebook 02 accepts at least 1"),
        ("SEED", "-1", "parameter SEED=-1: notebook 02 accepts at least 0"),
        ("ROWS", "2", "parameter ROWS=2: notebook 02 accepts at least 3"),
        ("LR", "-0.1", "parameter LR=-0.1: notebook 02 accepts a finite number above 0"),
        ("LR", "1e999", "accepts a finite number above 0"),
    ],
)
def test_wrong_parameters_are_one_line(make_notebook, name, value, message):
    with pytest.raises(GuideError) as caught:
        parameters_for(lessons_with(make_notebook), [(name, value)])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_computed_values_are_no_knobs():
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "N = 3\nM = N * 2\nprint(N)"}
    assert set(parameters_of({"cells": [cell]})) == {"N"}


def test_scale_is_what_the_comment_allows():
    def scale(comment):
        cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": f"SCALE = 'auto'  {comment}"}
        return parameters_of({"cells": [cell]})["SCALE"].choices

    assert scale("") == scale("# tiny: a little; auto: more, carefully") == ("auto", "tiny")
    assert scale("# tiny: a little; auto or full: all of it") == ("auto", "tiny", "full")
    assert scale("# one of: auto, huge") == ("auto", "huge")


@pytest.mark.parametrize("lesson", catalogue(COURSE), ids=lambda x: x.number)
def test_every_notebook_of_the_course_refuses_an_unknown_scale_and_takes_its_own_defaults(lesson):
    with pytest.raises(GuideError, match=rf"SCALE=huge: notebook {lesson.number} accepts auto, tiny"):
        parameters_for([lesson], [("SCALE", "huge")])
    for name, parameter in parameters_of(read_notebook(lesson.path)).items():
        assert not parameter.check(parameter.default), f"{name} refuses its own default"
