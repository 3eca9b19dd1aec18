# SPDX-License-Identifier: MIT
"""An all-reduce: its computed time follows a ring message by message, and processes measure a sum that is right."""

import pytest

from cdna.children import ChildError
from cdna.predict import gpu
from rocm_guide.common.base import GuideError
from rocm_guide.finetune import AllReduce, all_reduce_us, measure_all_reduce, ring_bytes


def walk_the_ring(parts, processes, gb_s, latency_us):
    """Send every message of a ring, with real numbers in it: (what each ends with, bytes of one, microseconds)."""
    held = [[float(rank * 100 + i) for i in range(parts)] for rank in range(processes)]
    size = 8 * parts // processes
    chunks = [range(i * parts // processes, (i + 1) * parts // processes) for i in range(processes)]
    sent = us = 0.0
    for turn in range(2 * (processes - 1)):
        gathers = turn >= processes - 1
        before = [list(row) for row in held]
        for rank in range(processes):
            chunk = (rank - turn + gathers * (processes - 1) + gathers) % processes
            for i in chunks[chunk]:
                to = (rank + 1) % processes
                held[to][i] = before[rank][i] + (0 if gathers else before[to][i])
        sent, us = sent + size, us + latency_us + size / gb_s / 1e3
    return held, sent, us


@pytest.mark.parametrize("processes", [2, 3, 4, 8])
def test_the_formula_is_the_ring_walked_message_by_message(processes):
    parts = 24 * processes
    held, sent, us = walk_the_ring(parts, processes, 64.0, 5.0)
    right = [sum(rank * 100 + i for rank in range(processes)) for i in range(parts)]
    assert all(row == right for row in held)
    assert sent == ring_bytes(8 * parts, processes)
    assert us == pytest.approx(all_reduce_us(8 * parts, processes, 64.0, 5.0))


def test_a_mesh_has_one_link_for_two_gpus_and_a_switch_has_all():
    x, h = gpu("MI300X"), gpu("H100")
    assert [x.to_peers_gb_s(p) for p in (2, 4, 8)] == [64, 192, 448]
    assert [h.to_peers_gb_s(p) for p in (2, 8)] == [450, 450]
    assert gpu("MI355X").to_peers_gb_s(8) == pytest.approx(537.6)
    for wrong, said in (((x, 9), "gpus=9"), ((x, 1), "gpus=1"), ((gpu("L40S"), 2), "L40S")):
        with pytest.raises(GuideError, match=said):
            wrong[0].to_peers_gb_s(wrong[1])


def test_bus_bandwidth_is_that_of_rccl_tests():
    one = AllReduce(1 << 30, 8, 2000.0)
    assert one.bus_gb_s == pytest.approx((1 << 30) / 2000.0 / 1e3 * 2 * 7 / 8)
    assert one.latency_us == pytest.approx(2000 / 14)


def test_processes_measure_every_size():
    found = measure_all_reduce([4, 4096, 1 << 20], processes=2)
    assert [(one.size, one.processes) for one in found] == [(4, 2), (4096, 2), (1 << 20, 2)]
    assert all(one.us > 0 for one in found)
    assert found[-1].bus_gb_s > found[0].bus_gb_s


def test_a_wrong_sum_is_no_measurement(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import torch.distributed as d\nreal = d.all_reduce\n"
        "def wrong(x, *a, **k):\n    real(x, *a, **k)\n    x += 1\nd.all_reduce = wrong\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ChildError, match="4096 bytes among 2 processes gave a wrong sum"):
        measure_all_reduce([4096])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sizes": [6]}, "size=6"),
        ({"sizes": [0]}, "size=0"),
        ({"sizes": [1 << 40]}, f"size={1 << 40}"),
        ({"sizes": [4], "processes": 1}, "processes=1"),
        ({"sizes": [4], "device": "tpu"}, "device=tpu"),
        ({"sizes": [4], "device": "cuda", "processes": 64}, "processes=64"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_process_starts(options, said):
    with pytest.raises(GuideError, match=said):
        measure_all_reduce(**options)


@pytest.mark.parametrize(("gb_s", "latency"), [(0, 1), (-1, 0), (float("nan"), 0), (1, -1), (1, float("nan"))])
def test_no_time_without_a_bandwidth(gb_s, latency):
    with pytest.raises(GuideError, match="bandwidth"):
        all_reduce_us(4, 2, gb_s, latency)
