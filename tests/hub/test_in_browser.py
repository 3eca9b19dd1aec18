# SPDX-License-Identifier: MIT
"""Two learners at once in Chromium: what ran is counted, and a cell that failed is found."""

import asyncio
import json
import shutil

import pytest

from benchmarks.hub import in_browser
from rocm_guide.common.base import GuideError
from tests.hub.running_hub import MISSING, Hub


def why_not():
    try:
        in_browser.ready()
    except GuideError as e:
        return str(e)
    return ""


def small_notebook(*sources):
    cells = [
        {"cell_type": "code", "execution_count": 9, "id": f"c{n}", "metadata": {}, "outputs": [], "source": s}
        for n, s in enumerate(sources)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def hub(tmp_path):
    hub = Hub(tmp_path, gpus=2)
    yield hub
    hub.end()
    shutil.rmtree(hub.state, ignore_errors=True)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_cells_that_ran_and_cells_that_failed_are_told_apart(hub):
    for name in ("ann", "bob"):
        folder = hub.home(name) / "rocm-llm-guide"
        folder.mkdir(parents=True)
        (folder / "90_fine.ipynb").write_text(small_notebook("x = 41", "", "print(x + 1)"))
        (folder / "91_broken.ipynb").write_text(small_notebook("x = 0", "1 / x", "print('not reached')"))
    given = in_browser.options(["--seconds", "300"])
    visits = asyncio.run(in_browser.hold_class(hub, ["ann", "bob"], ["90_fine.ipynb", "91_broken.ipynb"], given))
    for visit in visits:
        assert visit.wrong == ["91_broken.ipynb, code cell 2: ZeroDivisionError: division by zero"]
        assert visit.notebooks["90_fine.ipynb"]["cells"] == 2 and visit.idle_mib > 0 and visit.outside == []


def test_what_is_missing_is_said_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(in_browser, "hub_is_installed", lambda: False)
    assert in_browser.main([]) == 2
    assert capsys.readouterr().err == f"{MISSING}\n"


def test_an_error_in_a_notebook_is_read_off_the_file(tmp_path):
    file = tmp_path / "a.ipynb"
    nb = json.loads(small_notebook("1", " ", "2"))
    nb["cells"][2]["outputs"] = [{"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": []}]
    file.write_text(json.dumps(nb))
    assert len(in_browser.cells_of(file)) == 2
    assert in_browser.errors_of(in_browser.cells_of(file)) == ["code cell 2: KeyError: 'x'"]
    file.write_text("{")
    assert in_browser.cells_of(file) == []
