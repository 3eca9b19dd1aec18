# SPDX-License-Identifier: MIT
"""Our kernels beside the public ones of benchmarks/results/peers_mi300x.json, by one compiler and one model; and the
layers of models that benchmarks/results/layer_mi300x.json puts together from them."""

from __future__ import annotations

import json

import pytest
import triton

from benchmarks.kernels import gemm_tiles, layer_mi300x
from benchmarks.kernels.peers_mi300x import RESULTS, libraries, measure, operations
from tests.in_turn import in_shares

STORED = json.loads(RESULTS.read_text("utf-8"))
OPERATIONS = operations()
#: Compiled and executed here: a second to five of one core each.
LIVE = [name for name in OPERATIONS if name.split()[0] in ("softmax", "RMSNorm", "LayerNorm")] + [
    "GEMM bf16 4096 x 11008 x 4096",
    "skinny GEMM bf16 16 x 7168 x 2048",
]


def behind(ours, row):
    """Return by how much the others are likely faster, where that is more than a twentieth."""
    others = {library: r["likely_us"] for library, r in row.items() if library != "ours"}
    return {library: round(ours / us, 2) for library, us in others.items() if ours > 1.05 * us}


def test_the_stored_table_is_whole_and_no_library_is_ahead():
    assert set(STORED["rows"]) == set(OPERATIONS)
    for name, row in STORED["rows"].items():
        assert tuple(row) == libraries(OPERATIONS[name])
        assert not behind(row["ours"]["likely_us"], row), name
        for library, one in row.items():  # each small case was executed
            assert library == "inductor" or one["error"] < OPERATIONS[name].close, (name, library)
            assert one["moved"] >= 0.99 and one["bytes"] >= 0.99, (name, library)


def test_a_library_that_is_ahead_is_named():
    row = {"ours": {"likely_us": 10}, "one": {"likely_us": 9.6}, "two": {"likely_us": 8.0}}
    assert behind(10, row) == {"two": 1.25}


@pytest.mark.skipif(triton.__version__ != STORED["versions"]["triton"], reason="stored with another Triton")
@pytest.mark.parametrize("name", in_shares(LIVE, 3))
def test_no_library_is_ahead_of_the_kernels_as_they_are(name):
    op, row = OPERATIONS[name], STORED["rows"][name]
    ours = measure(op, "ours", op.calls["ours"])
    assert not behind(ours["likely_us"], row)
    assert ours["kernels"] == row["ours"]["kernels"], "now: python -m benchmarks.kernels.peers_mi300x"


LAYERS = json.loads(layer_mi300x.RESULTS.read_text("utf-8"))


def test_a_layer_is_the_sum_of_its_parts_and_none_is_below_its_floor():
    assert len(LAYERS["layers"]) >= 5
    for name, layer in LAYERS["layers"].items():
        assert layer["us"] == pytest.approx(sum(row["us"] for row in layer["parts"]), abs=0.1)
        assert layer["us"] > layer["floor_us"], name
        assert all(row["us"] > row["floor_us"] for row in layer["parts"]), name


def test_floors_are_those_of_the_models():
    """By hand: a layer of Llama-3-8B has 218.1 million weights, an expert of DeepSeek-V3 44 million."""
    layers = LAYERS["layers"]
    weights, attention = 218.1e6, 4 * 4096 * 4096 * 4096 / 2
    assert layers["Llama-3-8B, prefill"]["tflop"] == pytest.approx((2 * 4096 * weights + attention) / 1e12, rel=1e-3)
    cache = 64 * 8192 * 2 * 8 * 128
    assert layers["Llama-3-8B, decode"]["gb"] == pytest.approx(2 * (weights + cache) / 1e9, rel=2e-3)
    attended, shared, used = 187e6, 44e6, 256 * (1 - (31 / 32) ** 64)  # by chance, 64 tokens reach so many experts
    latents = 64 * 8192 * 576
    many = 2 * (attended + shared * (1 + used) + latents) / 1e9
    assert layers["DeepSeek-V3, decode"]["gb"] == pytest.approx(many, rel=0.03)


@pytest.mark.skipif(triton.__version__ != LAYERS["versions"]["triton"], reason="stored with another Triton")
@pytest.mark.parametrize("name", LAYERS["layers"])
def test_layers_are_made_of_the_kernels_as_they_are(name):
    rows, (model, phase) = LAYERS["layers"][name]["parts"], name.split(", ")
    parts = layer_mi300x.layer(layer_mi300x.MODELS[model], phase)
    assert [part.name for part in parts] == [row["name"] for row in rows]
    for part, row in zip(parts, rows, strict=True):
        if part.way:
            source = layer_mi300x.source_of(part)
            assert row["source"] == source, "now: python -m benchmarks.kernels.layer_mi300x"


def test_no_layer_of_a_model_waits_longer_for_our_product():
    stored = json.loads(gemm_tiles.RESULTS.read_text("utf-8"))
    tiles = {name: tile for size in gemm_tiles.SIZES for name, tile in gemm_tiles.chosen(*size).items()}
    again = "other tiles: python -m benchmarks.kernels.gemm_tiles --sizes"
    assert {name: us["tile"] for name, us in stored["us"].items()} == tiles, again
    assert not {name: us for name, us in stored["us"].items() if us["ours"] > 1.01 * us["aiter"]}
