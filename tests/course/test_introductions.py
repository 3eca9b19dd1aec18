# SPDX-License-Identifier: MIT
"""Which notebook introduces a helper."""

from pathlib import Path

import pytest

from rocm_guide.cli.copying.scan import public_helpers
from rocm_guide.cli.lessons import introductions, notebook_of

COURSE = Path(__file__).parents[2] / "notebooks"


def test_helpers_of_the_course():
    found = introductions(COURSE)
    assert notebook_of("tune.tunableop.planner.plan", found) == "17 (tunableop)"
    assert notebook_of("models.load.load_model", found) == "00 (start_here)"
    assert notebook_of("cdna.elf.msgpack.decode", found) == ""
    introduced = [name for name in public_helpers() if notebook_of(name, found)]
    assert len(introduced) > 250


@pytest.mark.parametrize(
    "code",
    [
        "from rocm_guide.models.load import (\n    load_model as load,\n    tokenizer,\n)",
        "from rocm_guide.models import load_model",
        "%matplotlib inline\n!ls\ndef f():\n    from rocm_guide.models.load import load_model",
    ],
)
def test_ways_to_import(make_notebook, code):
    make_notebook("03_first", "import torch  # rocm_guide.models.load.load_model")
    make_notebook("07_later", "from rocm_guide.models.load import load_model")
    found = introductions(make_notebook("05_this", code).parent)
    assert notebook_of("rocm_guide.models.load.load_model", found) == "05 (this)"
    assert notebook_of("models.load.load_data", found) == ""


def test_no_docstring_says_it_by_hand():
    """It would be wrong as soon as an earlier notebook uses the helper."""
    package = COURSE.parent / "rocm_guide"
    files = package.rglob("*.py")
    said = {p.relative_to(package).as_posix() for p in files if "Introduced in notebook " in p.read_text("utf-8")}
    assert said == {"cli/copy.py"}
