# SPDX-License-Identifier: MIT
"""The drawings say the right numbers, stay inside their canvas, and refuse what cannot be drawn."""

import matplotlib as mpl
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from rocm_guide.common import (
    draw_attention,
    draw_block,
    draw_crossings,
    draw_flash_tiles,
    draw_heads,
    draw_linear,
    draw_lora,
    draw_programs,
    draw_stages,
)
from rocm_guide.common.base import GuideError


def stages():
    held = {0: ["embed_tokens", "layer 0"], 1: [], "disk": ["layers 1-2", "lm_head"]}
    return draw_stages(held, between="the hidden state", title="A map")


DRAWINGS = {
    "lora": lambda: draw_lora(192, 512, 16),
    "linear": lambda: draw_linear(4000, 8192, 28672),
    "attention": draw_attention,
    "heads": draw_heads,
    "flash": draw_flash_tiles,
    "stages": stages,
    "crossings": lambda: draw_crossings({"subtract": (1, 1), "sum": (1, 0)}, title="Two operators"),
    "one crossing": lambda: draw_crossings({"softmax": (1, 1)}, title="One kernel"),
    "programs": lambda: draw_programs([[0, 0, 1, 1]] * 2, 1, 3, title="Two programs"),
    "reduction": lambda: draw_programs([[0] * 4, [1] * 4], 2, 3, title="Two rows", result="max"),
    "block": lambda: draw_block(1024, 4, 64, 4),
    "block of many": lambda: draw_block(16384, 4, 64, 2),
}


def words(ax):
    return [t.get_text() for t in ax.texts] + [ax.get_title(loc="left")]


@pytest.fixture(autouse=True)
def close():
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.mark.parametrize("name", DRAWINGS)
def test_no_text_leaves_the_figure(name):
    ax = DRAWINGS[name]()
    figure = ax.figure
    figure.canvas.draw()
    whole = figure.bbox
    for text in ax.texts:
        if text.get_text():
            place = text.get_window_extent()
            inside = place.x0 >= -1 and place.x1 <= whole.x1 + 1 and place.y0 >= -1 and place.y1 <= whole.y1 + 1
            assert inside, text.get_text()


def test_lora_counts_what_it_trains():
    text = words(DRAWINGS["lora"]())
    assert "LoRA trains 11,264 numbers beside 98,304 (11.5%)" in text
    assert any("512 x 16" in t for t in text) and any("16 x 192" in t for t in text)


def test_a_linear_layer_has_the_letters_of_blas():
    assert "A linear layer is a GEMM: M = 28,672, N = 4,000, K = 8,192" in words(DRAWINGS["linear"]())


def test_shared_heads_make_the_cache_smaller():
    text = words(draw_heads(8, 4, 64))
    assert [t.split(" B")[0] for t in text if t.startswith("cache")] == ["cache: 2,048", "cache: 1,024", "cache: 256"]
    with pytest.raises(GuideError, match="grouped=3: 8 query heads"):
        draw_heads(8, 3)


def test_only_tiles_that_are_computed_can_be_shown():
    with pytest.raises(GuideError, match="row=1, column=2"):
        draw_flash_tiles(row=1, column=2)


def test_a_device_without_layers_is_left_out():
    text = words(stages())
    assert "GPU 0" in text and "disk" in text and "GPU 1" not in text
    with pytest.raises(GuideError, match="no device holds anything"):
        draw_stages({0: []}, between="", title="")


def test_every_crossing_has_an_arrow():
    ax = draw_crossings({"subtract": (1, 1), "sum": (1, 0), "fill": (0, 2)}, title="Three operators")
    arrows = [t.arrow_patch for t in ax.texts if getattr(t, "arrow_patch", None)]
    ends = [(t.xyann[1], t.xy[1]) for t in ax.texts if getattr(t, "arrow_patch", None)]
    assert len(arrows) == 5 and sum(start < end for start, end in ends) == 2, "two reads go up"


def test_programs_are_named_inside_the_tensor_and_hatched_outside():
    ax = draw_programs([[0, 0, 1, 1], [2, 2, 3, 3]], 1, 3, title="Four programs")
    assert [t.get_text() for t in ax.texts] == ["0", "0", "1"]
    assert [bool(p.get_hatch()) for p in ax.patches] == [False, False, False, True, True, True, True, True]
    reduced = draw_programs([[0, 0, 1, 1], [2, 2, 3, 3]], 1, 3, title="Sums", result="sum")
    assert [t.get_text() for t in reduced.texts if t.get_text()] == ["0", "0", "1", "sum"], "one for each row inside"
    with pytest.raises(GuideError, match="rows=1, columns=5: the programs cover 1 x 4; launch enough"):
        draw_programs([[0, 0, 1, 1]], 1, 5, title="Too few")


def test_a_block_says_which_elements_a_wave_has():
    ax = draw_block(1024, 4, 64, 4)
    said = [t.get_text() for t in ax.texts]
    assert "wave 1\n256 … 511" in said and "lane 63" in said and "4 x 32 bits = 128 bits for lane 0" in said
    assert "…" in [t.get_text() for t in draw_block(16384, 4, 64, 2).texts][-2], "64 elements are not all shown"
    with pytest.raises(GuideError, match="elements=100: 256 lanes cannot share them evenly"):
        draw_block(100, 4, 64, 4)
