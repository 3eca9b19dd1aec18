# SPDX-License-Identifier: MIT
"""Every solution passes, in any style; every usual mistake, bad code and way around is refused, and named."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import LISTINGS, PATH, PUZZLES, grade
from tests.dojo import good, wrong
from tests.dojo.solutions import SOLUTIONS
from tests.dojo.test_listings import RIGHT
from tests.dojo.test_listings import WRONG as WRONG_LISTINGS
from tests.in_turn import dealt

HOUSE = Path(__file__).parents[2] / "docs" / "house.md"
SHARES = 8  # an eighth of the tables in each run
FAMILY = {step.puzzle: step.family for step in PATH}


def changed(name, *pairs):
    code = SOLUTIONS[name]
    for old, new in pairs:
        assert old in code, old
        code = code.replace(old, new)
    return code


RIGHT_ONES = [(name, SOLUTIONS[name]) for name in PUZZLES]
RIGHT_ONES += [(name, code) for name, code in good.WHOLE]
RIGHT_ONES += [(name, changed(name, *pairs)) for name, pairs in good.CHANGED]
WRONG_ONES = [(kind, name, changed(name, (old, new)), said) for kind, name, old, new, said in wrong.WRONG]
WRONG_ONES += wrong.WHOLE


def counted(bad):
    """The table of docs/house.md: how many wrong and bad solutions of each class each family has."""
    families = list(dict.fromkeys(FAMILY.values()))
    lines = [f"| class | {' | '.join(families)} | all |", f"|---{'|---' * (len(families) + 1)}|"]
    for kind in [*wrong.CLASSES, "listings"]:
        row = [sum(k == kind and FAMILY[n] == f for k, n in bad) for f in families]
        lines.append(f"| {kind} | {' | '.join(str(n or '') for n in row)} | {sum(row)} |")
    row = [sum(FAMILY[n] == f for _, n in bad) for f in families]
    return "\n".join([*lines, f"| all | {' | '.join(map(str, row))} | {sum(row)} |"])


def test_the_tables_are_as_long_as_a_teachers_patience():
    table = counted([(k, n) for k, n, *_ in WRONG_ONES] + [("listings", w[1]) for w in WRONG_LISTINGS])
    assert table in HOUSE.read_text(encoding="utf-8"), f"docs/house.md is to say\n{table}"
    right = Counter(FAMILY[name] for name, _ in RIGHT_ONES) + Counter(FAMILY[n] for n in RIGHT for _ in RIGHT[n])
    bad = Counter(FAMILY[name] for _, name, _, _ in WRONG_ONES) + Counter(FAMILY[w[1]] for w in WRONG_LISTINGS)
    for family in {*FAMILY.values()}:
        assert right[family] >= 4 and bad[family] >= 12, (family, right[family], bad[family])
    assert {kind for kind, *_ in WRONG_ONES} == {*wrong.CLASSES}
    assert {name for _, name, _, _ in WRONG_ONES} == {*PUZZLES} and not {*PUZZLES} & {*LISTINGS}


@pytest.mark.parametrize(("name", "code"), dealt(RIGHT_ONES, SHARES))
def test_a_right_solution_passes(name, code):
    result = grade(run_cell(HEAD + code)[name], name)
    assert result.passed, str(result)
    assert "not executed" not in str(result)
    for times in re.findall(r"([\d.]+) times the floor", str(result)):
        assert float(times) >= 1, "nothing beats the floor: it counts what has to be read, pages of others not"


@pytest.mark.parametrize(("kind", "name", "code", "said"), dealt(WRONG_ONES, SHARES))
def test_a_wrong_or_bad_solution_is_refused_and_its_class_named(kind, name, code, said):
    result = grade(run_cell(HEAD + code)[name], name)
    assert not result.passed
    refused = "\n".join(str(c) for c in result.checks if c.status == "FAIL")
    assert re.search(wrong.CLASSES[kind], refused) and re.search(said, refused), refused
    assert "Traceback" not in refused and "site-packages" not in refused


def test_one_wave_of_attention_is_named():
    one = str(grade(run_cell(HEAD + SOLUTIONS["attention"])["attention"], "attention"))
    assert re.search(r"\[WARN\] waves +1 for each SIMD.* -> 2 are possible", one), one


@pytest.mark.parametrize("name", dealt([n for n, p in PUZZLES.items() if p.starter], 3))
def test_a_starter_is_right_and_its_code_is_not(name):
    result = grade(run_cell(HEAD + PUZZLES[name].starter)[name], name)
    assert [c.status for c in result.checks if c.name == "result"] == ["OK"] and not result.passed, str(result)
