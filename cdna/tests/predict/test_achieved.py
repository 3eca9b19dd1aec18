# SPDX-License-Identifier: MIT
"""Likely times: each constant alone, by hand; and all published points."""

import math
import re
import subprocess
import sys

import pytest

from cdna.predict import ModelTime, achieved, gpu, product_time
from cdna.predict.achieved import likely
from cdna.predict.published import accuracy, attention_time, left_out, published_points, table
from cdna.predict.specs import HardwareError

NOTHING = {"launches": 0, "waits": 0}


def test_memory_gives_four_fifths_whatever_the_clock():
    t = likely({"HBM": 100.0}, **NOTHING)
    assert t.microseconds == pytest.approx(100 * 5.3 / 4.177) and t.bound == 100 and t.ghz == 2.1
    assert likely({"HBM": 100.0}, matrix=90, **NOTHING).microseconds == t.microseconds


def test_the_infinity_cache_gives_what_was_read_from_it():
    assert likely({"Infinity Cache": 119.0}, **NOTHING).microseconds == pytest.approx(172)


def test_matrix_cores_alone_reach_what_amd_measured():
    spec = gpu("MI300X")
    flops = 2 * 4096 * 4864 * 32896
    us = likely({"matrix cores": flops / spec.peak_tflops("bf16") / 1e6}, **NOTHING).microseconds
    loaded = spec.units * 2048 * (0.06 * 2100 + 0.94 * 1184) / 1e6  # TFLOPS if the clock were the mean of both
    assert flops / us / 1e6 == pytest.approx(0.94 * loaded, rel=0.03)
    assert flops / us / 1e6 == pytest.approx(708, rel=0.01)


def test_a_cycle_is_slow_only_while_the_matrix_cores_work():
    half = likely({"compute units": 100.0}, matrix=50.0, **NOTHING)
    assert half.microseconds == pytest.approx(50 + 50 * 2.1 / achieved.LOADED_GHZ)
    assert half.ghz == pytest.approx(2.1 * 100 / half.microseconds)


@pytest.mark.parametrize("part", ["issue", "LDS", "L2", "vector L1", "vector ALU", "compute units"])
def test_every_part_of_a_compute_unit_keeps_its_rate_and_goes_with_the_clock(part):
    assert likely({part: 100.0}, **NOTHING).microseconds == 100
    slowed = likely({part: 100.0, "matrix cores": 47.0}, **NOTHING)
    assert slowed.limit == part
    assert slowed.microseconds == pytest.approx(53 + 47 * 2.1 / achieved.LOADED_GHZ)


def test_launches_and_waits_are_added_and_a_loop_that_waits_is_a_part():
    assert likely({"HBM": 0.0}).microseconds == pytest.approx(1.5 + 0.6)
    assert likely({"HBM": 0.0}, launches=3, waits=0).microseconds == pytest.approx(4.5)
    assert likely({"HBM": 0.0}, launches=0, waits=5).microseconds == pytest.approx(3.0)
    turns = likely({"HBM": 1.0, "waits": 7.0})
    assert (turns.limit, turns.bound, turns.longest) == ("waits", 1.0, 7.0)


def test_a_bound_brings_its_matrix_time_along():
    time = ModelTime({"compute units": 100.0}, matrix=50.0)
    assert likely(time).microseconds == likely({"compute units": 100.0}, matrix=50).microseconds
    assert likely(time, matrix=0, **NOTHING).microseconds == time.microseconds == 100


@pytest.mark.parametrize(
    ("what", "named"),
    [
        (lambda: likely({}), "parts {}"),
        (lambda: likely({"HBM": -1.0}), "-1.0"),
        (lambda: likely({"HBM": math.nan}), "nan"),
        (lambda: likely({"HBM": math.inf}), "inf"),
        (lambda: likely({"HBM": 1.0}, launches=-1), "launches=-1"),
        (lambda: likely({"HBM": 1.0}, matrix=-2.5), "-2.5"),
        (lambda: likely({"HBM": 1.0}, spec=gpu("MI325X")), "MI325X"),
        (lambda: product_time(0, 1, 1, "fp16"), "0 x 1 x 1"),
        (lambda: product_time(8, 8, 8, "fp4"), "fp4"),
        (lambda: attention_time(1, 1, 128, 128, 80), "size=80"),
        (lambda: accuracy([]), "no point"),
    ],
)
def test_what_makes_no_sense_is_named(what, named):
    with pytest.raises(HardwareError, match=re.escape(named)):
        what()


def test_a_product_fills_the_last_round_or_splits_k():
    even, ragged = product_time(4096, 4864, 8192, "bf16"), product_time(4096, 4865, 8192, "bf16")
    assert even.matrix == pytest.approx(2 * 4096 * 4864 * 8192 / 1307.4e6, rel=1e-4)  # 304 tiles of 256 x 256
    assert ragged.matrix > even.matrix
    skinny = product_time(16, 2304, 16384, "fp8")
    assert skinny.limit == "HBM" and skinny.matrix < skinny.parts["HBM"] / 5


def test_the_model_lies_near_what_was_published():
    found = accuracy()
    assert found.points >= 100 and found.fitted < 10
    assert found.median <= 0.20 and found.held_out <= 0.20, str(found)
    beyond = [f"{p.what} {p.error:+.0%}" for p in published_points() if not p.left_out and abs(p.error) > 0.40]
    assert not beyond
    for kind in {p.kind for p in published_points()}:
        assert accuracy([p for p in published_points() if p.kind == kind]).median <= 0.20, kind
    # The bound is one: nothing in print is faster.
    assert all(p.microseconds >= p.likely.bound for p in published_points())


def test_the_bound_alone_would_not_pass():
    errors = sorted(1 - p.likely.bound / p.microseconds for p in published_points() if not p.left_out)
    assert errors[len(errors) // 2] > 0.25


def test_rates_are_turned_into_times():
    at = {p.what: p for p in published_points()}
    amd = at["hipBLASLt: bf16 4096 x 4864 x 32896"]
    assert amd.microseconds == pytest.approx(1848.09, rel=0.002)  # hipblaslt-bench's own line on the same page
    causal = at["attention, Triton, attn-dsl-bench: 16 x 16 heads, 16384 x 16384 x 128, causal"]
    assert 4 * 256 * 16384**2 * 128 / 2 / causal.microseconds / 1e6 == pytest.approx(364, rel=0.002)


def test_every_figure_names_its_source_and_what_is_left_out_is_counted():
    assert all(p.url.startswith("https://") and len(p.title) > 20 and p.date for p in published_points())
    assert all(g.count > 0 and len(g.reason) > 10 and g.url.startswith("https://") for g in left_out())
    silent = [p for p in published_points() if p.left_out]
    assert silent and accuracy().left_out == len(silent) + sum(g.count for g in left_out())
    assert accuracy().points == len(published_points()) - len(silent)
    assert all(why for *_, why in achieved.CONSTANTS.values())
    assert {n: v for n, (v, *_) in achieved.CONSTANTS.items()} == {n: getattr(achieved, n) for n in achieved.CONSTANTS}


def test_the_table_is_a_command():
    done = subprocess.run([sys.executable, "-m", "cdna.predict.published"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == table() + "\n" and not done.stderr
    assert all(p.what in done.stdout for p in published_points()) and str(accuracy()) in done.stdout
