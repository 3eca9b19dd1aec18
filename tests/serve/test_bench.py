# SPDX-License-Identifier: MIT
"""The client's figures against a server whose behaviour is known; and servers that are none."""

import json
import socket
import subprocess
import sys

import pytest

from rocm_guide.serve.client import Answer
from rocm_guide.serve.load_test import Limits, Plan, Run, measure_server, percentile, summarize_run, with_spread
from rocm_guide.serve.served_checkpoints import ServingError
from tests.serve.fake_server import fake_server

PLAN = Plan(prompt_tokens=20, tokens=5, requests=6, warm_up=1, timeout=30)


def answer(sent, first, between, tokens=5, error=""):
    pieces = [sent + first + i * between for i in range(tokens)]
    return Answer(sent, pieces, pieces[-1], tokens, 20, error)


def test_the_figures_of_answers_whose_times_are_known():
    answers = [answer(0, 0.1, 0.01), answer(1, 0.2, 0.02), answer(2, 0.3, 0.2), answer(0, 1, 1, error="500")]
    level = summarize_run(Run(2, 0.0, 4.0, tuple(answers), True), Limits(first=0.25, between=0.05))
    assert (level["requests"], level["failed"], level["errors"]) == (4, 1, {"500": 1})
    assert level["output_tokens"] == 15 and level["output_tokens_per_s"] == 15 / 4
    assert level["goodput_requests_per_s"] == 2 / 4 and level["good_share"] == 0.5
    assert level["time_to_first_token_s"]["p50"]["value"] == pytest.approx(0.2)
    assert level["time_between_tokens_s"]["p50"]["value"] == pytest.approx(0.02)
    assert level["end_to_end_s"]["p99"]["value"] == pytest.approx(0.3 + 0.8, rel=0.02)


def test_percentiles_are_numpys_and_their_intervals_hold_them():
    import numpy as np

    values = list(np.random.default_rng(0).exponential(size=57))
    for p in (0, 50, 90, 99, 100):
        assert percentile(values, p) == pytest.approx(np.percentile(values, p))
        found = with_spread(values, p)
        assert found["low"] <= found["value"] <= found["high"]
    assert with_spread(values * 16, 50)["high"] - with_spread(values * 16, 50)["low"] < 0.5 * (
        with_spread(values, 50)["high"] - with_spread(values, 50)["low"]
    ), "sixteen times the requests, a quarter of the interval"


def test_waiting_is_seen_where_it_happens():
    with fake_server(first=0.2, between=0.01) as server:
        level = measure_server(server.url, PLAN, users=[2])["levels"][0]
    # Never less than the server waits; how much more depends on the machine.
    assert level["time_to_first_token_s"]["p50"]["value"] >= 0.2
    assert 0.01 <= level["time_between_tokens_s"]["p50"]["value"] < level["time_to_first_token_s"]["p50"]["value"]
    assert level["end_to_end_s"]["p50"]["value"] >= 0.24 and level["seconds"] >= 3 * 0.24
    assert level["failed"] == 0 and level["fixed_length"] and level["output_tokens"] == 30


def test_a_closed_loop_has_as_many_requests_as_users_and_an_open_one_as_arrive():
    with fake_server(first=0.1) as server:
        measure_server(server.url, PLAN, users=[3])
        assert server.most_at_once == 3
        server.most_at_once = 0
        measure_server(server.url, Plan(20, 2, 12, 1), users=[], rates=[1000.0])
        assert server.most_at_once > 3, "arrivals wait for nobody"


def test_the_same_seed_sends_the_same_prompts_and_no_two_begin_alike():
    sent = []
    for seed in (0, 0, 1):
        with fake_server() as server:
            measure_server(server.url, Plan(20, 2, 6, 1, seed), users=[1])
            sent.append([body["prompt"] for body in server.seen[1:]])
    assert sent[0] == sent[1] != sent[2] and len(set(sent[0])) == 6
    assert all(len(p.split()) == 10 for p in sent[0]), "two tokens for each word, as the server counts"


def test_a_server_is_told_to_write_on_in_words_that_it_takes():
    for refuses, said in (((), "ignore_eos"), (("ignore_eos",), "generation_config")):
        with fake_server(refuses=refuses) as server:
            measure_server(server.url, PLAN, users=[1])
            assert said in server.seen[-1]
    with fake_server(refuses=("ignore_eos", "generation_config")) as server:
        measure_server(server.url, PLAN, users=[1])
        assert not {"ignore_eos", "generation_config"} & set(server.seen[-1])


def test_failures_are_counted_and_named():
    with fake_server(fails=lambda number: number > 1 and number % 2 == 0) as server:
        level = measure_server(server.url, PLAN, users=[1])["levels"][0]
    assert level["failed"] == 3 and "out of blocks" in next(iter(level["errors"]))
    with fake_server() as server:
        server.fails = lambda number: setattr(server, "breaks_off", number > 1)
        level = measure_server(server.url, PLAN, users=[1])["levels"][0]
    assert level["failed"] == 6 and level["errors"] == {"the worker died": 6} and level["end_to_end_s"] is None


def test_two_hundred_clients_at_once():
    with fake_server(first=0.5) as server:
        level = measure_server(server.url, Plan(20, 2, 200, 1), users=[200])["levels"][0]
    assert level["failed"] == 0 and level["requests"] == 200


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("url", ["", "here", "ftp://h", "http://", "http://h:99999999", "http://h:0", "http://h/?a=b"])
def test_what_is_no_address(url):
    with pytest.raises(ServingError, match="no address of a server"):
        measure_server(url, PLAN)


def test_servers_that_cannot_be_measured():
    with pytest.raises(ServingError, match="no server answers"):
        measure_server(f"http://127.0.0.1:{free()}", PLAN)
    with fake_server(status=401) as server, pytest.raises(ServingError, match="ROCM_GUIDE_BENCH_KEY"):
        measure_server(server.url, PLAN)
    for models in ([], {"data": 3}, {"data": [{}]}, "text"):
        with fake_server(models=models) as server, pytest.raises(ServingError, match="no OpenAI-compatible server"):
            measure_server(server.url, PLAN)
    with fake_server(fails=lambda _: True) as server, pytest.raises(ServingError, match="first request fails: 500"):
        measure_server(server.url, PLAN)
    with fake_server(first=60) as server, pytest.raises(ServingError, match="ReadTimeout"):
        measure_server(server.url, Plan(20, 5, 6, 1, timeout=0.2))


def test_the_key_comes_from_the_environment_and_is_written_nowhere(monkeypatch):
    monkeypatch.setenv("ROCM_GUIDE_BENCH_KEY", "sk-secret")
    with fake_server() as server:
        results = measure_server(server.url, PLAN, users=[1])
        assert server.seen[0]["headers"]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in json.dumps(results)
    monkeypatch.setenv("ROCM_GUIDE_BENCH_KEY", "schl\u00fcssel\n")
    with pytest.raises(ServingError, match="ROCM_GUIDE_BENCH_KEY: holds characters"):
        measure_server("http://127.0.0.1:9", PLAN)


def test_the_command_writes_one_json_and_one_picture(tmp_path):
    out, plot = tmp_path / "new" / "bench.json", tmp_path / "bench.png"
    with fake_server(refuses=("ignore_eos",)) as server:
        words = [server.url, "--users", "1,2", "--rates", "50", "--requests", "4", "--tokens", "3", "--prompt", "8"]
        command = [sys.executable, "-m", "rocm_guide.cli.main", "bench", *words, "--out", str(out), "--plot", str(plot)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert [level["users"] or level["arrivals_per_s"] for level in results["levels"]] == [1, 2, 50.0]
    assert plot.read_bytes().startswith(b"\x89PNG") and "50/s" in done.stdout and "2 users: 4 of 4" in done.stderr
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["bench.json", "bench.png", "new"]
