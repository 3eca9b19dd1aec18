# SPDX-License-Identifier: MIT
"""The gateway: key, limits, metrics, replicas that are gone, clients that leave."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rocm_guide.serve.gateway import start_gateway
from rocm_guide.serve.served_checkpoints import ServingError
from tests.serve.fake_server import fake_server

KEY = "sesame"
#: One client for all: each of its own would read its certificates, which takes longer than the request.
WEB = httpx.Client(timeout=120, limits=httpx.Limits(max_keepalive_connections=0))


def post(url, key=KEY, **more):
    body = {"prompt": "a b c", "max_tokens": 3, "stream": True, **more}
    headers = {"Authorization": f"Bearer {key}".encode("latin-1")} if key else {}
    return WEB.post(f"{url}/v1/completions", json=body, headers=headers, timeout=120)


@pytest.fixture(scope="module")
def two():
    """(gateway, first replica, second replica) and a third replica that is not there."""
    with fake_server() as a, fake_server() as b, fake_server() as gone:
        missing = gone.url
        gone.server_close()
        with start_gateway([missing, a.url, b.url], key=KEY, most=4) as url:
            yield url, a, b


def test_the_key(two):
    url, a, b = two
    assert post(url).status_code == 200
    before = len(a.seen) + len(b.seen)
    assert [post(url, key=k).status_code for k in ("", "sesam", "sesame2", "\xe4")] == [401] * 4
    assert len(a.seen) + len(b.seen) == before, "no replica saw them"
    assert not [seen for seen in a.seen + b.seen if "Authorization" in seen["headers"]], "the key stays here"


def test_the_stream_comes_through_piece_by_piece(two):
    url, a, b = two
    a.between = b.between = 0.2
    body, headers = {"prompt": "a", "max_tokens": 4}, {"Authorization": f"Bearer {KEY}"}
    with WEB.stream("POST", f"{url}/v1/completions", json=body, headers=headers, timeout=60) as reply:
        times = [time.monotonic() for _ in reply.iter_raw()]
    a.between = b.between = 0.0
    assert times[-1] - times[0] >= 0.3


def test_both_replicas_work_and_the_missing_one_costs_nobody_an_answer(two):
    url, a, b = two
    a.first = b.first = 0.3
    seen = len(a.seen), len(b.seen)
    with ThreadPoolExecutor(4) as users:
        assert [r.status_code for r in users.map(lambda _: post(url), range(4))] == [200] * 4
    a.first = b.first = 0.0
    assert len(a.seen) > seen[0] and len(b.seen) > seen[1]
    assert WEB.get(f"{url}/ready").json() == {"ready": 2, "of": 3}


def test_too_many_at_once_and_too_much(two):
    url, a, b = two
    a.first = b.first = 0.5
    with ThreadPoolExecutor(12) as users:
        codes = [r.status_code for r in users.map(lambda _: post(url), range(12))]
    a.first = b.first = 0.0
    assert set(codes) == {200, 429} and codes.count(200) >= 4
    assert post(url, prompt="x" * 1_100_000).status_code == 413
    assert post(url).status_code == 200, "the places of those who were refused are free again"
    scraped = WEB.get(f"{url}/metrics").text
    assert f'gateway_requests_total{{code="429"}} {float(codes.count(429))}' in scraped
    assert 'gateway_requests_total{code="413"} 1.0' in scraped


def test_a_client_that_leaves_frees_its_place(two):
    url, a, b = two
    a.between = b.between = 0.05
    headers = {"Authorization": f"Bearer {KEY}"}
    for _ in range(8):  # twice as many as there are places
        body = {"prompt": "a", "max_tokens": 100}
        with WEB.stream("POST", f"{url}/v1/completions", json=body, headers=headers, timeout=60) as reply:
            if reply.status_code == 200:  # else the gateway has not noticed yet that the last ones left
                next(reply.iter_raw())
    a.between = b.between = 0.0
    until = time.monotonic() + 60
    while post(url).status_code != 200 and time.monotonic() < until:
        time.sleep(0.1)
    assert post(url).status_code == 200


def test_nobody_there():
    with pytest.raises(ServingError, match="no replica named"), start_gateway([], key=""):
        pass
    with fake_server() as gone:
        missing = gone.url
    with start_gateway([missing], key="") as url:
        assert WEB.get(f"{url}/ready").status_code == 503 and WEB.get(f"{url}/health").status_code == 200
        assert post(url, key="").status_code == 503
