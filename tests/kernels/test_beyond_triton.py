# SPDX-License-Identifier: MIT
"""docs/beyond_triton.md against code compiled now: its programs, what they become, the Gluon kernels beside them."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest
import torch
import triton

from benchmarks.kernels import beyond_triton as beyond
from rocm_guide.kernels.attention import reference_attention

TEXT = beyond.PAGE.read_text("utf-8")
PINNED = f"Triton {triton.__version__}, gfx942:" in TEXT
stage = pytest.mark.skipif(
    not hasattr(__import__("triton.experimental.gluon.language.amd", fromlist=["amd"]), "warp_pipeline_stage"),
    reason=f"Triton {triton.__version__} has no warp_pipeline_stage",
)


def loop(kernel):
    return Counter(i.op for i in kernel.parsed.select(in_loops=True))


def claim(holds, what):
    """Fail where the page is wrong about its own Triton; say where another one has mended what it reports."""
    assert holds or not PINNED, f"docs/beyond_triton.md says that {what}: run its script with --write"
    if not holds:
        pytest.skip(f"Triton {triton.__version__} has mended it: no longer so that {what}")


@pytest.mark.parametrize("name", ["product", "flash", "gluon_product", "shared"])
def test_the_page_has_the_programs_as_they_are(name):
    assert inspect.getsource(getattr(beyond, name).fn).rstrip() in TEXT


def test_an_operand_by_rows_is_gathered_two_bytes_at_a_time_and_not_in_gluon():
    ours = beyond.compiled_product(beyond.gluon_product)
    assert loop(ours)["s_barrier"] and not loop(ours)["ds_read_u16"]
    cost = beyond.product_cost(ours)  # and it is right
    claim(loop(kernel := beyond.compiled_product())["ds_read_u16"] >= 16, "operands are read with ds_read_u16")
    assert cost.cycles < 0.9 * beyond.product_cost(kernel).cycles


def test_the_pipeliner_drops_the_swizzle_of_keys():
    one, two = (beyond.compiled_flash(stages) for stages in (1, 2))
    assert beyond.flash_cost(one).banks < 2
    claim(beyond.flash_cost(two).banks > 4, "lanes meet in banks with num_stages=2")


def test_a_tile_of_two_products_goes_to_lds_twice():
    kernel = beyond.compiled_shared()
    assert beyond.shared_cost(kernel).banks < 2  # and it is right
    stored = 16 * loop(kernel)["ds_write2st64_b64"]  # bytes of a lane
    claim(stored >= 2 * 64 * 512 * 2 // 512, "a tile goes to LDS twice")


def test_the_page_has_what_the_stored_table_of_the_peers_says():
    assert beyond.memory_table() in TEXT and beyond.more_table() in TEXT


def test_a_mended_release_is_said_and_a_wrong_page_fails(monkeypatch):
    monkeypatch.setattr(f"{__name__}.PINNED", False)
    with pytest.raises(pytest.skip.Exception, match="has mended it: no longer so that a thing is"):
        claim(False, "a thing is")
    monkeypatch.setattr(f"{__name__}.PINNED", True)
    with pytest.raises(AssertionError, match="run its script"):
        claim(False, "a thing is")


@stage
def test_attention_of_notebook_37_is_right_where_the_tile_is_ragged_and_has_heads():
    torch.manual_seed(0)
    x = torch.randn(1, 1, 512, 128).half()
    kernel, queries, _ = beyond.notebook_attention(x)
    for tokens in (37, 259):
        q, k, v = (torch.randn(1, 3, tokens, 128).half() for _ in range(3))
        out = torch.full_like(q, torch.nan)
        log2 = 128**-0.5 * 1.4426950408889634
        beyond.run(kernel, (3 * triton.cdiv(tokens, queries),), [q, k, v, out, tokens, 3, log2])
        right, _ = reference_attention(q.double(), k.double(), v.double(), causal=True)
        assert (out - right).abs().max() < 2e-3
