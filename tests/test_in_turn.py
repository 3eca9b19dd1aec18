# SPDX-License-Identifier: MIT
"""Each share of the long tests runs once in a round, and all of them when everything is asked for."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import pytest

from tests import in_turn
from tests.in_turn import deal_out, due, everything, turn


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch):
    monkeypatch.delenv("ROCM_GUIDE_TURN", raising=False)
    monkeypatch.delenv("ROCM_GUIDE_ALL", raising=False)


def test_each_share_comes_once_in_a_round_also_across_new_year(monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return today

    monkeypatch.setattr(in_turn, "datetime", Clock)
    seen = []
    for day in range(7):
        today = datetime(2026, 12, 28, tzinfo=UTC) + timedelta(days=day)
        seen.append([share for share in range(7) if due(share, 7)])
    assert sorted(seen) == [[share] for share in range(7)]


def test_a_number_of_ones_own_decides(monkeypatch):
    for asked in (0, 5, 1_000_003):
        monkeypatch.setenv("ROCM_GUIDE_TURN", str(asked))
        assert turn(4) == asked % 4 and [due(s, 4) for s in range(4)].count(True) == 1
    monkeypatch.setenv("ROCM_GUIDE_TURN", "monday")
    with pytest.raises(ValueError, match="monday"):
        turn(4)


def test_everything_is_every_share(monkeypatch):
    assert not everything()
    monkeypatch.setenv("ROCM_GUIDE_ALL", "1")
    assert everything() and all(due(share, 5) for share in range(5))


@pytest.mark.parametrize(("share", "of"), [(4, 4), (-1, 4), (0, 0)])
def test_a_share_that_would_never_run_is_refused(share, of):
    with pytest.raises(ValueError, match=r"never run|1 or more"):
        due(share, of)
    with pytest.raises(ValueError, match="1 or more"):
        turn(0)


class Item:
    """What deal_out looks at in a test."""

    def __init__(self, nodeid, *marks):
        self.nodeid, self.marks = nodeid, [mark.mark for mark in marks]

    def iter_markers(self, name):
        return [mark for mark in self.marks if mark.name == name]

    def add_marker(self, mark):
        self.marks.append(mark.mark)

    @property
    def skipped(self):
        return any((mark.args and mark.args[0]) or mark.kwargs.get("condition") for mark in self.iter_markers("skipif"))


def test_every_slow_test_runs_in_one_of_three_runs(monkeypatch):
    ran = {f"tests/test_x.py::test_{n}": 0 for n in range(200)}
    for asked in range(3):
        monkeypatch.setenv("ROCM_GUIDE_TURN", str(asked))
        for nodeid in ran:
            deal_out(item := Item(nodeid))
            ran[nodeid] += not item.skipped
        deal_out(item := Item("own", in_turn.in_turn(asked, 12)))
        assert not item.skipped, "turns of its own are the only ones"
        deal_out(item := Item("needs a GPU", pytest.mark.skipif(True, reason="no GPU")))
        assert len(item.marks) == 2
    assert set(ran.values()) == {1}
    monkeypatch.setenv("ROCM_GUIDE_ALL", "1")
    for nodeid in ran:
        deal_out(item := Item(nodeid))
        assert not item.skipped


def test_a_table_is_dealt_out_whole(monkeypatch):
    table, seen = [f"row {n}" for n in range(10)], []
    for number in range(4):
        monkeypatch.setenv("ROCM_GUIDE_TURN", str(number))
        seen += in_turn.dealt(table, 4)
    assert sorted(seen) == table and len(in_turn.dealt(table, 4)) == 2
    monkeypatch.setenv("ROCM_GUIDE_ALL", "1")
    assert in_turn.dealt(table, 4) == table


def test_rows_that_stay_together_run_in_the_same_turn_and_all_of_them_in_a_round(monkeypatch):
    seen = []
    for number in range(3):
        monkeypatch.setenv("ROCM_GUIDE_TURN", str(number))
        rows = in_turn.in_shares(range(50), 3, together=6)
        assert [row.values for row in rows] == [(n,) for n in range(50)], "what does not run is skipped, and so told"
        seen.append([row.values[0] for row in rows if not row.marks[0].args[0]])
    assert sorted(chain(*seen)) == list(range(50))
    assert seen[0] == [*range(6), *range(18, 24), *range(36, 42)]
    (row,) = in_turn.in_shares([("two", "arguments")], 1)
    assert row.values == ("two", "arguments")


ROOT = Path(__file__).parents[1]


def test_each_group_of_packages_is_installed_at_least_every_fourth_run(monkeypatch):
    makefile = (ROOT / "Makefile").read_text()
    groups = re.search(r"^IN_TURN = (.+)$", makefile, re.M)[1].replace("$(HUB)", ".venv-hub").split()
    assert 1 < len(groups) <= 4
    for group in groups:
        target = group.replace(".venv-hub", "$(HUB)")
        assert re.search(rf"^{re.escape(target)}:", makefile, re.M), f"the Makefile has no target {target}"
    seen = []
    for number in range(4):
        monkeypatch.setenv("ROCM_GUIDE_TURN", str(number))
        command = [sys.executable, "-m", "tests.in_turn", *groups]
        seen += subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(seen) == sorted(groups)
