# SPDX-License-Identifier: MIT
"""Our rules against CK's verdicts on 200 random instances, which benchmarks/ck/agreement.py has from the compiler."""

import itertools
import json
from pathlib import Path

from rocm_guide.tune.ck.build import source_key
from rocm_guide.tune.ck.generate import kernel_source
from rocm_guide.tune.ck.rules import check
from tests.tune.ck.random_instances import random_instances

STORED = json.loads((Path(__file__).parents[3] / "benchmarks/results/ck_agreement.json").read_text())


def test_our_rules_say_what_ck_said_on_random_instances():
    """A changed source or header has another key: then the benchmark has to ask CK again."""
    rows, pairs = STORED["verdicts"], list(itertools.islice(random_instances(STORED["seed"]), 200))
    assert len(rows) >= 200 and 0.25 <= sum(not row["ck"] for row in rows) / len(rows) <= 0.75
    for row in rows:
        instance, problem = pairs[row["number"]]
        again = "python -m benchmarks.ck.agreement"
        assert row["key"] == source_key(kernel_source(instance, problem)), f"other sources or headers: {again}"
        ours = [str(r) for r in check(instance, problem) if r.by_ck]
        assert bool(ours) == bool(row["ck"]), (ours, row["ck"], instance, problem)
