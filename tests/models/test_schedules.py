# SPDX-License-Identifier: MIT
"""Schedules of pipelines and of FSDP."""

from __future__ import annotations

import itertools

import pytest

from rocm_guide.common.base import GuideError
from rocm_guide.models.pipeline_schedules import busy_share, pipeline_schedule, sharded_schedule


@pytest.mark.parametrize(("gpus", "micro"), list(itertools.product((1, 2, 4, 7), (1, 2, 8))))
def test_pipeline_obeys_its_dependencies(gpus: int, micro: int) -> None:
    lanes = list(pipeline_schedule(gpus, micro).values())
    assert busy_share(pipeline_schedule(gpus, micro)) == pytest.approx(micro / (micro + gpus - 1))
    for lane in lanes:
        assert sum(d for _, d, kind in lane if kind == "forward") == pytest.approx(1)
        assert sum(d for _, d, kind in lane if kind == "backward") == pytest.approx(2)
        ordered = sorted(lane)
        assert all(a + d <= b + 1e-9 for (a, d, _), (b, _, _) in itertools.pairwise(ordered)), "one thing at a time"
    for first, second in itertools.pairwise(lanes):
        forward = [[s for s in lane if s[2] == "forward"] for lane in (first, second)]
        backward = [[s for s in lane if s[2] == "backward"] for lane in (first, second)]
        for i in range(micro):
            assert forward[0][i][0] + forward[0][i][1] <= forward[1][i][0] + 1e-9, "the next GPU needs the result"
            assert backward[1][i][0] + backward[1][i][1] <= backward[0][i][0] + 1e-9, "gradients come back"


def test_sharding_works_all_the_time_unless_gathering_is_slower_than_computing() -> None:
    assert busy_share(sharded_schedule(8, layers=32)) > 0.98
    assert busy_share(sharded_schedule(8, layers=32, gather=3.0)) < 0.6
    lanes = sharded_schedule(3, layers=4)
    assert len(lanes) == 3 and len({tuple(lane) for lane in lanes.values()}) == 1


@pytest.mark.parametrize("arguments", [(0, 1), (2, 0), (-1, 3)])
def test_schedules_of_nothing(arguments: tuple[int, int]) -> None:
    for schedule in (pipeline_schedule, sharded_schedule):
        with pytest.raises(GuideError, match="one or more"):
            schedule(*arguments)
