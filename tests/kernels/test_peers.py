# SPDX-License-Identifier: MIT
"""Our kernels beside the public ones of benchmarks/results/peers_mi300x.json, by one compiler and one model."""

from __future__ import annotations

import json

import pytest
import triton

from benchmarks.kernels.peers_mi300x import RESULTS, libraries, measure, operations

STORED = json.loads(RESULTS.read_text("utf-8"))
OPERATIONS = operations()
#: Compiled and executed here: a second to five of one core each.
LIVE = [name for name in OPERATIONS if name.split()[0] in ("softmax", "RMSNorm", "LayerNorm")] + [
    "GEMM bf16 4096 x 11008 x 4096"
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
@pytest.mark.parametrize("name", LIVE)
def test_no_library_is_ahead_of_the_kernels_as_they_are(name):
    op, row = OPERATIONS[name], STORED["rows"][name]
    ours = measure(op, "ours", op.calls["ours"])
    assert not behind(ours["likely_us"], row)
    assert ours["kernels"] == row["ours"]["kernels"], "now: python -m benchmarks.kernels.peers_mi300x"
