# SPDX-License-Identifier: MIT
"""Whatever answers at the address, `rocm-guide bench` ends in time, with a sentence, and with little memory.

The client is a process of its own, so that its memory is what it alone took, and so that one that hangs can be ended.
"""

import json
import queue
import re
import subprocess
import sys
import threading

import pytest

from rocm_guide.serve.client import KEY, look_at
from rocm_guide.serve.load_test import Plan, measure_server
from rocm_guide.serve.served_checkpoints import ServingError
from tests.serve.fake_server import fake_server
from tests.serve.hostile_servers import ANSWERS, GOOD, PAGES, cookies, hostile_server, redirect
from tests.serve.test_bench import PLAN

CLIENT = """
import json, re, sys
from rocm_guide.common.base import GuideError
from rocm_guide.serve.load_test import measure_server
from rocm_guide.serve.load_test import Plan
for line in sys.stdin:
    url, plan = json.loads(line)
    said = []
    try:
        results = measure_server(url, Plan(**plan), users=[2], progress=said.append)
        said = [results["levels"][0], *said]
    except GuideError as e:
        said = [str(e)]
    # Not ru_maxrss, which a process takes over from the one that starts it.
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
    print(json.dumps([said, int(peak) / 1024]), flush=True)
"""
MOST = 200  # MiB
#: Seconds after which a client hangs: what ends by itself ends in about one.
HANGS = 60


class Client:
    """A process that measures one address after another."""

    def __init__(self, errors):
        self.errors, self.process = errors, None

    def start(self):
        command = [sys.executable, "-c", CLIENT]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.lines = queue.Queue()
        threading.Thread(target=lambda out: [self.lines.put(s) for s in out], args=[self.process.stdout]).start()

    def measure(self, url, **plan):
        """Give what was said, a sentence or a level's results first; and the most memory so far in MiB."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        self.process.stdin.write(json.dumps([url, plan]) + "\n")
        self.process.stdin.flush()
        try:
            return json.loads(self.lines.get(timeout=HANGS))
        except queue.Empty:
            self.end()
            raise AssertionError("the client hangs") from None

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    file = tmp_path_factory.mktemp("client") / "errors"
    with file.open("w") as errors:
        client = Client(errors)
        yield client
        client.end()
    assert file.read_text() == "", "no traceback, and no word of Python's about tasks that were left"


PLAN_ = {"prompt_tokens": 20, "tokens": 4, "requests": 2, "warm_up": 1}


def limits(sentence):
    """Give short deadlines where a deadline is what ends the request, else long ones, on a busy machine too."""
    if "not whole" in sentence:
        return {"timeout": 10.0, "deadline": 0.6}
    return {"timeout": 0.4 if "not a byte" in sentence else 30.0, "deadline": 30.0}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_first_answer_ends_the_run_with_a_sentence(client, name):
    behaviour, sentence = ANSWERS[name]
    with hostile_server(behaviour) as server:
        (said, *_), memory = client.measure(server.url, **PLAN_, **limits(sentence))
    assert isinstance(said, str) and re.search(f"first request fails: .*({sentence})", said), said
    assert "\n" not in said and len(said) < 400 and memory < MOST


FEW = ("endless keep-alives, slowly", "endless tokens, fast", "endless line", "usage of 1e400", "reset in the answer")


@pytest.mark.parametrize("name", FEW)
def test_hostile_answers_later_are_counted_and_named(client, name):
    behaviour, sentence = ANSWERS[name]
    with hostile_server(behaviour, after=1) as server:
        (level, *_), memory = client.measure(server.url, **PLAN_, **limits(sentence))
    assert level["failed"] == 2 and level["output_tokens"] == 0 and memory < MOST
    assert all(re.search(sentence, error) for error in level["errors"]), level["errors"]


@pytest.mark.parametrize("name", PAGES)
def test_a_hostile_list_of_models_ends_the_run_with_a_sentence(client, name):
    behaviour, sentence = PAGES[name]
    with hostile_server(behaviour, b"/v1/models") as server:
        late = "no server answers" in sentence
        (said, *_), memory = client.measure(server.url, **PLAN_, deadline=1.0 if late else 30.0)
    assert isinstance(said, str) and re.search(sentence, said), said
    assert "\n" not in said and len(said) < 400 and memory < MOST


def test_a_run_ends_when_its_time_is_over_and_keeps_what_was_measured(client):
    with fake_server(first=0.2) as server:
        plan = {**PLAN_, "requests": 2000, "run_deadline": 1.5}
        (level, *_), memory = client.measure(server.url, **plan)
    assert level["failed"] + level["output_tokens"] // 4 == 2000 and 0 < level["failed"] < 2000
    assert list(level["errors"]) == ["the run's time was over before the answer was (--run-deadline)"]
    assert memory < MOST


def test_open_arrivals_end_when_the_runs_time_is_over():
    with fake_server() as server:
        plan = Plan(8, 2, 4, 1, run_deadline=1.0)
        (level,) = measure_server(server.url, plan, users=[], rates=[0.001])["levels"]
    assert level["failed"] == 3, "the second arrives after a quarter of an hour"


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/completions"])
def test_no_redirect_is_followed(path, monkeypatch):
    monkeypatch.setenv(KEY, "sk-secret")
    with (
        hostile_server(lambda: GOOD, b"/") as other,
        hostile_server(lambda: redirect(other.url + path.decode()), path) as server,
        pytest.raises(ServingError, match=f"307 leads to {other.url}.*is not followed"),
    ):
        measure_server(server.url, PLAN)
    assert other.seen == []


def test_a_redirect_to_nothing_that_is_an_address():
    with (
        hostile_server(lambda: redirect("http://[:::" + "x" * 1000), b"/v1/completions") as server,
        pytest.raises(ServingError, match="first request fails: ") as e,
    ):
        measure_server(server.url, PLAN)
    assert len(str(e.value)) < 400


def test_no_cookie_is_kept_and_nothing_compressed_is_asked_for():
    with hostile_server(cookies()) as server:
        measure_server(server.url, Plan(20, 4, 4, 1), users=[1])
    headers = [h.lower() for _, found in server.seen for h in found]
    assert not [h for h in headers if h.startswith(b"cookie")]
    assert {h for h in headers if h.startswith(b"accept-encoding")} == {b"accept-encoding: identity\r\n"}


def test_a_server_that_counts_few_tokens_gets_no_longer_prompts():
    with fake_server() as server:
        measure_server(server.url, Plan(64, 4, 2, 1), users=[1])
        assert {len(body["prompt"].split()) for body in server.seen[1:]} == {32}
    few = [*GOOD[:2], b'data: {"usage": {"completion_tokens": 4, "prompt_tokens": 1}}\n\n', GOOD[-1]]
    with hostile_server(lambda: few) as server:
        measure_server(server.url, Plan(64, 4, 2, 1), users=[1])
    lengths = [int(h.split(b":")[1]) for _, found in server.seen for h in found if h.lower().startswith(b"content-le")]
    assert max(lengths) < 64 * 10 + 300, "a word for each token, of seven letters at most"


def sent_keys(server):
    return {body["headers"].get("Authorization") for body in server.seen}


def test_the_key_is_its_own_and_goes_to_no_other_machine_in_the_clear(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with fake_server() as server:
        measure_server(server.url, PLAN, users=[1])
        assert sent_keys(server) == {None}, "the key of OpenAI is for OpenAI"
    monkeypatch.setenv(KEY, "sk-secret")
    said = []
    with fake_server() as server:
        # Linux takes 0.0.0.0 to this machine, but nobody knows that from the name.
        far = server.url.replace("127.0.0.1", "0.0.0.0")
        measure_server(far, PLAN, users=[1], progress=said.append)
        assert sent_keys(server) == {None}
        assert said[0] == f"{KEY} is not sent: 0.0.0.0 is another machine, without https; --key-over-http sends it"
        server.seen.clear()
        said.clear()
        measure_server(far, PLAN, users=[1], key_over_http=True, progress=said.append)
        measure_server(server.url, PLAN, users=[1], progress=said.append)
        assert sent_keys(server) == {"Bearer sk-secret"} and KEY not in "".join(said)
        assert "sk-secret" not in repr(look_at(server.url))
    with fake_server(status=401) as server, pytest.raises(ServingError, match=f"{KEY}; the key was not sent, --key-"):
        measure_server(server.url.replace("127.0.0.1", "0.0.0.0"), PLAN)


def test_a_password_in_the_address_is_refused_and_not_repeated():
    for url in ("http://me:hidden@127.0.0.1:9", "http://evil.example\\@127.0.0.1:9", "http://127.0.0.1:9@evil.example"):
        with pytest.raises(ServingError, match=f"into {KEY}") as e:
            look_at(url)
        assert "hidden" not in str(e.value)


def test_this_machine_is_asked_without_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with fake_server() as server:
        assert look_at(server.url).model == "fake"


@pytest.mark.parametrize(("name", "code"), [("endless keep-alives, slowly", 2), ("usage of 1e400", 2)])
def test_the_command_says_it_in_one_line(tmp_path, name, code):
    behaviour, sentence = ANSWERS[name]
    words = ["--deadline", "0.6", "--tokens", "4", "--out", str(tmp_path / "bench.json")]
    with hostile_server(behaviour) as server:
        command = [sys.executable, "-m", "rocm_guide.cli.main", "bench", server.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == code and done.stdout == "" and list(tmp_path.iterdir()) == []
    assert re.search(sentence, done.stderr) and done.stderr.count("\n") == 1, done.stderr
