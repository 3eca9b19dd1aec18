# SPDX-License-Identifier: MIT
"""What is kept of an executed notebook, and what is refused."""

import base64
import json
import subprocess
import sys

import pytest

from course.store import StoreError, clean_notebook, store_course, update_readme
from rocm_guide.cli.lessons import catalogue, read_notebook, source_hash
from rocm_guide.common.base import GuideError

FOLDERS = [("/home/me/guide/notebooks", "."), ("/home/me/guide", ".."), ("/home/me", "~")]


def cleaned(*outputs, tags=(), source="x = 1"):
    """The one cell of a notebook after cleaning."""
    cell = {"cell_type": "code", "source": source, "metadata": {"tags": list(tags), "papermill": {"a": 1}}}
    cell.update(execution_count=1, outputs=list(outputs))
    nb = {"cells": [cell], "metadata": {"widgets": {}, "papermill": {}}, "nbformat": 4, "nbformat_minor": 4}
    return clean_notebook(nb, "02.ipynb", FOLDERS)


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def outputs_of(*outputs):
    return cleaned(*outputs)["cells"][0]["outputs"]


def test_metadata_is_reduced():
    nb = cleaned(tags=["solution"])
    assert set(nb["metadata"]) == {"kernelspec", "language_info"} and nb["nbformat_minor"] == 5
    assert nb["cells"][0]["metadata"] == {"tags": ["solution"], "jupyter": {"source_hidden": True}}


def test_pieces_of_a_stream_are_joined_and_paths_and_addresses_taken_out():
    text = "saved /home/me/guide/notebooks/a.png and /home/me/guide/x\n"
    found = outputs_of(stream("\x1b[1mone\x1b[0m\n"), stream(text), stream("<Axes at 0x7f1200>"))
    assert found == [stream("one\nsaved ./a.png and ../x\n<Axes at 0x…>")]


def test_a_bar_drawn_in_place_leaves_its_last_state():
    assert outputs_of(stream("step 1\rstep 2\rstep 3\nend"))[0]["text"] == "step 3\nend"


def test_progress_bars_on_stderr_vanish():
    bars = "  0%|          | 0/10 [00:00<?, ?it/s]\r100%|██████████| 10/10 [00:01<00:00,  9.9it/s]\n"
    assert outputs_of(stream(bars, "stderr"), stream("done")) == [stream("done")]


@pytest.mark.parametrize("text", ["UserWarning: old\n", "  5%|█  | 1/20\nFutureWarning: x", "Traceback\n"])
def test_warnings_are_refused(text):
    with pytest.raises(StoreError, match=r"02.ipynb, cell 1: writes to stderr"):
        cleaned(stream(text, "stderr"))


def test_exceptions_are_refused():
    with pytest.raises(StoreError, match="cell 1: raised ValueError: no"):
        cleaned({"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []})


def test_widgets_vanish_and_tables_stay():
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "Map: 0%"}
    table = {"text/html": "<p>/home/me/guide/notebooks/t</p>", "text/plain": "t"}
    found = outputs_of(
        {"output_type": "display_data", "data": widget, "metadata": {}},
        {"output_type": "execute_result", "data": table, "metadata": {"x": 1}, "execution_count": 1},
    )
    assert [o["data"] for o in found] == [{"text/html": "<p>./t</p>", "text/plain": "t"}]
    assert found[0]["metadata"] == {}


FRESH = """import os
print(os.getcwd(), os.environ['CUDA_VISIBLE_DEVICES'] == '', os.path.exists(os.environ['TRITON_CACHE_DIR']))"""


@pytest.mark.slow
def test_store_stamps_fills_in_and_is_repeatable(make_notebook, tmp_path):
    make_notebook("02_bad", "import sys; print('warned', file=sys.stderr)")
    path = make_notebook("01_good", FRESH, "1 + 1", "os.environ['ROCM_GUIDE_RUNS'] + '/my-model/merged'")
    (tmp_path / "README.md").write_text("# x\n<!-- course-parts -->old<!-- /course-parts -->\nend\n")
    table = path.parent / "README.md"
    table.write_text("# y\n<!-- course-table -->old<!-- /course-table -->\nend\n")
    before = (path.parent / "02_bad.ipynb").read_bytes()
    errors = store_course(catalogue(path.parent))
    assert [str(e) for e in errors] == ["02_bad.ipynb, cell 4: writes to stderr: 'warned'; mend what it warns about"]
    assert (path.parent / "02_bad.ipynb").read_bytes() == before, "a notebook that cannot be stored stays as it was"
    nb = read_notebook(path)
    stamp = nb["metadata"]["rocm_guide"]
    assert stamp["source"] == source_hash(nb) and stamp["hardware"].startswith("CPU, ") and stamp["versions"]["torch"]
    assert "<!-- measured --><!--" not in nb["cells"][0]["source"] and " MiB (CPU, " in nb["cells"][0]["source"]
    assert nb["cells"][3]["outputs"][0]["text"] == ". True False\n"
    assert nb["cells"][4]["outputs"][0]["data"] == {"text/plain": "2"}
    assert nb["cells"][5]["outputs"][0]["data"] == {"text/plain": "'runs/my-model/merged'"}
    first = catalogue(path.parent)[0]
    assert first.fresh and first.seconds > 0 and first.peak_mib > 20

    assert update_readme(tmp_path / "README.md")
    assert "| [01 good](notebooks/01_good.ipynb)" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "README.md").read_text().endswith("<!-- /course-parts -->\nend\n")
    assert "| 01 | [good](01_good.ipynb) |" in table.read_text() and table.read_text().endswith("-->\nend\n")

    assert store_course(catalogue(path.parent)[:1]) == []
    again = read_notebook(path)
    for one in (nb, again):  # what may differ between two runs
        one["cells"][0]["source"] = one["metadata"] = ""
    assert again == nb


@pytest.mark.slow
def test_a_notebook_edited_while_it_ran_is_not_overwritten(make_notebook):
    code = (
        "from pathlib import Path\np = Path('01_good.ipynb')\n_ = p.write_text(p.read_text().replace('first', 'new'))"
    )
    path = make_notebook("01_good", code)
    errors = store_course(catalogue(path.parent))
    assert [str(e) for e in errors] == ["01_good.ipynb: was edited while it ran; store it again"]
    assert "new steps" in path.read_text() and "rocm_guide" not in read_notebook(path)["metadata"]


def test_pictures_of_the_readme_come_from_the_notebooks(make_notebook, tmp_path):
    path = make_notebook("01_good", "x = 1")
    nb = read_notebook(path)
    data = {"image/png": base64.b64encode(b"a picture").decode(), "text/plain": "<Figure>"}
    nb["cells"][3]["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    path.write_text(json.dumps(nb))
    readme = tmp_path / "README.md"
    readme.write_text("<!-- picture: notebook 01, cell 4 -->\n![what it shows](docs/p.png)\n")
    update_readme(readme)
    assert (tmp_path / "docs" / "p.png").read_bytes() == b"a picture"
    for wrong in ("notebook 01, cell 3", "notebook 01, cell 99", "notebook 11, cell 4"):
        readme.write_text(f"<!-- picture: {wrong} -->\n![what it shows](docs/p.png)\n")
        with pytest.raises(StoreError, match=rf"docs/p.png: {wrong} has no picture"):
            update_readme(readme)


def test_a_notebook_without_a_place_for_the_measurement_is_refused(make_notebook, monkeypatch):
    from course import store as course_store

    path = make_notebook("01_good", "x = 1")
    nb = read_notebook(path)
    nb["cells"][0]["source"] = "# 01 · no place"
    event = {"seconds": 1, "peak_mib": 1}
    with pytest.raises(StoreError, match="has no <!-- measured -->"):
        course_store._stamped(nb, catalogue(path.parent)[0], event, {})


@pytest.mark.slow
def test_the_command_names_what_it_could_not_store(make_notebook):
    path = make_notebook("01_bad", "1 / 0")
    before = path.read_bytes()
    command = [sys.executable, "-m", "course", "store", "--notebooks", str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "01_bad.ipynb, cell 4: ZeroDivisionError" in done.stderr
    assert path.read_bytes() == before and json.loads(before)


def test_the_notebooks_of_an_installed_package_are_not_rewritten(make_notebook, tmp_path, monkeypatch):
    from course import command

    notebook = make_notebook("01_topic", "print(1)", folder=tmp_path / "notebooks")
    before = notebook.read_bytes()
    monkeypatch.setattr(command, "package_folder", lambda: tmp_path)
    with pytest.raises(GuideError, match="notebooks: the notebooks of an installed package; store those of a clone"):
        command.store(["01"], notebooks=notebook.parent)
    assert notebook.read_bytes() == before
