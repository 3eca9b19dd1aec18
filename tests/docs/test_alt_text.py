# SPDX-License-Identifier: MIT
"""Words for the notebooks' plots, read from the code that drew them."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from docs.site.alt_text import alt_texts

NOTEBOOKS = sorted(Path(__file__).parents[2].glob("notebooks/[0-9]*.ipynb"))


def notebook(*sources, pictures=1):
    """A notebook whose last cell shows pictures; the digests of these pictures."""
    raw = [f"picture {i}".encode() for i in range(pictures)]
    cells = [{"cell_type": "markdown", "source": ["# 99 · Title\n", "## 3 · `Speed`\n"]}]
    cells += [{"cell_type": "code", "source": [s], "outputs": []} for s in sources]
    cells[-1]["outputs"] = [{"data": {"image/png": base64.b64encode(r).decode()}} for r in raw]
    return {"cells": cells}, [hashlib.sha256(r).hexdigest() for r in raw]


def words(*sources, pictures=1):
    nb, digests = notebook(*sources, pictures=pictures)
    found = alt_texts(nb)
    return [found[d] for d in digests]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem[:2])
def test_every_stored_picture_has_words_of_its_own_cell(path):
    nb = json.loads(path.read_text(encoding="utf-8"))
    shown = [o.get("data", {}).get("image/png") for c in nb["cells"] for o in c.get("outputs", [])]
    stored = {"".join(p) for p in shown if p}
    found = alt_texts(nb)
    assert set(found) == {hashlib.sha256(base64.b64decode(p)).hexdigest() for p in stored}
    assert all(len(text) >= 12 and "  " not in text and text.strip("… .") for text in found.values())
    assert sum(text.startswith("Plot of the section") for text in found.values()) <= 1


def test_kind_title_and_axes_come_from_the_call():
    source = 'from rocm_guide.common.plots import bars\nbars({"a": 1}, unit="ms", title="Merged or separate", ax=left)'
    assert words(source) == ["Bar chart: Merged or separate. Axes: ms."]


def test_a_function_of_the_notebook_says_where_its_title_is():
    source = "def draw(tries, title):\n    show(tries, title=title)\n\n\ndraw(seeds, 'Three seeds')"
    assert words(source) == ["Three seeds."]


def test_a_title_may_be_built_and_a_name_may_come_from_an_earlier_cell():
    assert words('MODEL = "tiny"', 'ax.plot(x, y)\nax.set_title(f"{MODEL}: {n} rows?")') == [
        "Line chart: tiny: … rows?"
    ]


def test_a_drawing_of_the_library_is_described_by_its_docstring():
    (found,) = words("from rocm_guide.common import draw_lora\ndraw_lora()")
    assert "LoRA trains" in found


def test_two_pictures_of_a_cell_get_a_text_each():
    source = 'ax.set_title("One")\nplt.show()\nax.set_title("Two")\nplt.show()'
    assert words(source, pictures=2) == ["One.", "Two."]
    found = words('ax.plot(x)\nax.set_title("Both")', pictures=2)
    assert len(set(found)) == 2 and all("Both" in text for text in found)


def test_a_plot_that_says_nothing_is_named_by_its_section():
    assert words("show(x)") == ["Plot of the section “3 · Speed”."]
    assert words("ax.imshow(x)") == ["Map of values. Plot of the section “3 · Speed”."]


def test_a_method_of_a_text_is_no_plot():
    assert words('"a ".strip()\ntext.lines()\nax.set_title("One")') == ["One."]
