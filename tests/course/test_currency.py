# SPDX-License-Identifier: MIT
"""docs/currency.md: each row still stands where it says, and what is old or installed in another version is listed."""

import datetime
import importlib.metadata
import subprocess
import sys

import pytest

from course.currency import read_statements, to_look_at
from rocm_guide.cli.lessons import catalogue, cell_source, read_notebook
from rocm_guide.common.base import GuideError

ROWS = read_statements()
TEXTS = {x.number: "\n".join(map(cell_source, read_notebook(x.path)["cells"])) for x in catalogue() if x.path.is_file()}
ROW = "| it is so | notebook 06 “words” | torch 2.13.0 | 2026-11-01 | https://example.org/x |\n"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.notebook} {row.says}")
def test_the_course_still_says_it_there(row):
    assert row.words in TEXTS[row.notebook] and row.day <= datetime.datetime.now(datetime.UTC).date()


def test_the_page_is_a_page():
    assert len(ROWS) >= 20 and len({row.notebook for row in ROWS}) >= 15


def test_what_is_old_or_of_another_version_is_listed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n| What the course says | x |\n|---|---|\n" + ROW + ROW.replace("torch 2.13.0", ""))
    plain, other = reversed(read_statements(page))
    assert (plain.package, other.package) == ("", "torch 2.13.0")
    day = datetime.date(2026, 11, 1)
    assert to_look_at([plain], day + datetime.timedelta(30), 30) == []
    (found,) = to_look_at([plain], day + datetime.timedelta(31), 30)
    assert found == (plain, "looked at 31 days ago")
    here = importlib.metadata.version("torch").partition("+")[0]
    page.write_text(ROW.replace("torch 2.13.0", f"torch {here}") + ROW.replace("torch 2.13.0", "torch 1.0"))
    ((row, why),) = to_look_at(read_statements(page), day, 30)
    assert row.package == "torch 1.0" and why.startswith(f"torch {here}") and why.endswith("is installed")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2026-11-01", "yesterday"),
        ("2026-11-01", "2026-13-01"),
        ("“words”", "words"),
        ("https", "http"),
        (" |\n", "\n"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, old, new):
    page = tmp_path / "page.md"
    page.write_text(ROW + ROW.replace(old, new))
    with pytest.raises(GuideError, match=r"page.md, line 2: \| it is so"):
        read_statements(page)


def test_the_command():
    words = [sys.executable, "-m", "course", "currency", "--days"]
    done = subprocess.run([*words, "100000"], capture_output=True, text=True, check=True)
    assert f" of {len(ROWS)} statements to look at again" in done.stdout
    done = subprocess.run([*words, "-1"], capture_output=True, text=True)
    assert done.returncode == 2 and "-1" in done.stderr
