# SPDX-License-Identifier: MIT
"""The real server, started once by the real command: it answers as `generate`, bears its users, and leaves nothing."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from cdna.children import ChildError
from rocm_guide.models.load import load_model
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.serve import server as serving
from rocm_guide.serve.load_test import Plan, measure_server
from rocm_guide.serve.served_checkpoints import Checkpoint, ServingError
from rocm_guide.serve.server import answers_health, free_port, pick_engine, server_command, start_server
from tests.serve.fake_server import fake_server

#: One client for all: each of its own would read its certificates, which takes longer than the request.
WEB = httpx.Client(timeout=300, limits=httpx.Limits(max_keepalive_connections=0))
PROMPT = "In short: the memory bandwidth of MI300X is"


def processes_with(word):
    """Numbers of the running processes whose command line or environment names ``word``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if word.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


@pytest.fixture(scope="module")
def served():
    """(process, address, model) of `rocm-guide serve`; every process of it carries a mark in its environment."""
    mark = f"TEST_SERVER_{os.getpid()}_{time.monotonic_ns()}"
    command = [sys.executable, "-m", "rocm_guide.cli.main", "serve", str(tiny_folder()), "--device", "cpu"]
    env = {**os.environ, "SERVER_MARK": mark, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = process.stdout.readline()
        found = re.search(r"ready after .* at (http://127\.0\.0\.1:\d+)/v1, model (\S+)", line)
        assert found, line + process.stderr.read()
        yield process, found[1], found[2], mark
    finally:
        process.kill()
        process.communicate()


def complete(served, prompt=PROMPT, tokens=12, **more):
    _, url, model, _ = served
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
    return WEB.post(f"{url}/v1/completions", json=body, timeout=300)


def test_it_answers_as_generate(served):
    model, tokenizer = load_model("tiny", device="cpu")
    ids = tokenizer(PROMPT, return_tensors="pt")
    want = tokenizer.decode(model.generate(**ids, max_new_tokens=12, do_sample=False)[0], skip_special_tokens=True)
    assert PROMPT + complete(served).json()["choices"][0]["text"] == want


def test_its_curl_line_works_as_printed(served):
    words = served[0].stdout.readline()
    assert words.startswith(f"curl {served[1]}/v1/completions ")
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=300)
    assert '"object":"text_completion"' in done.stdout


def test_a_web_page_of_another_origin_gets_nothing_and_nothing_else_is_open(served):
    _, url, model, _ = served
    assert WEB.get(f"{url}/v1/models").json()["data"][0]["id"] == model
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 1})
    for heads in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert WEB.post(f"{url}/v1/completions", content=body, headers=heads).status_code == 403
    for path in ("/load_model", "/reset", "/v1/systemone", "/v1/audio/transcriptions"):
        assert WEB.post(url + path, json={"model": str(tiny_folder())}).status_code == 404
    assert WEB.post(f"{url}/v1/completions", content=b" " * 10_000_000).status_code == 413
    assert complete(served).status_code == 200


def test_bad_requests_and_clients_that_leave_disturb_nobody(served):
    alone = complete(served).json()["choices"][0]["text"]
    assert complete(served, model="gpt-9").status_code == 400
    refused = complete(served, prompt="word " * 9000)
    assert refused.status_code == 400 and "prompt and answer have 256 together" in refused.text
    assert complete(served, prompt="word " * 60, tokens=100_000).json()["usage"]["total_tokens"] <= 256
    _, url, model, _ = served
    body = {"model": model, "prompt": PROMPT, "max_tokens": 64, "stream": True}
    with WEB.stream("POST", f"{url}/v1/completions", json=body, timeout=300) as reply:
        next(reply.iter_bytes())  # then the client goes away
    with ThreadPoolExecutor(8) as users:
        answers = list(users.map(lambda _: complete(served).json()["choices"][0]["text"], range(8)))
    assert answers == [alone] * 8


def test_clients_that_never_read_hold_nobody_up(served):
    alone = complete(served).json()["choices"][0]["text"]
    _, url, model, _ = served
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 200, "stream": True}).encode()
    place = urlsplit(url)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
    with ExitStack() as opened:
        for _ in range(16):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # what is sent soon waits at the server
            deaf.connect((place.hostname, place.port))
            deaf.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        with ThreadPoolExecutor(8) as users:
            answers = list(users.map(lambda _: complete(served).json()["choices"][0]["text"], range(8)))
        assert answers == [alone] * 8
    assert complete(served).json()["choices"][0]["text"] == alone


def test_two_hundred_clients_at_once(served):
    level = measure_server(served[1], Plan(8, 2, 200, 1, timeout=600), users=[200], model=served[2])["levels"][0]
    assert level["failed"] == 0 and level["output_tokens"] == 400, level["errors"]


def test_more_users_than_the_cache_holds_all_get_their_answers(served):
    plan = Plan(prompt_tokens=100, tokens=60, requests=32, warm_up=1, timeout=600)  # 5,120 tokens in a cache of 4,096
    level = measure_server(served[1], plan, users=[32], model=served[2])["levels"][0]
    assert level["failed"] == 0 and level["fixed_length"], level["errors"]


def test_ctrl_c_ends_it_and_nothing_is_left(served):
    process, _, _, mark = served
    assert len(processes_with(mark)) >= 3, "the command, the guard, the server"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and said.endswith("stopped\n") and processes_with(mark) == []


def test_asking_for_health_reads_no_certificates_and_believes_only_a_200(monkeypatch):
    # Twenty times a second: with certificates it took 51 ms of CPU each time, half of one of two cores.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: pytest.fail("certificates"))
    with fake_server() as server:
        assert answers_health(server.url) and not answers_health(f"{server.url.rsplit(':', 1)[0]}:9")
        assert not answers_health(f"http://no-such-host.invalid:{server.server_address[1]}")
    assert not answers_health(server.url), "it has ended"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=lambda: listener.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n"))
        answering.start()
        assert not answers_health(f"http://127.0.0.1:{listener.getsockname()[1]}"), "another service on the port"
        answering.join()


def test_a_taken_port_and_a_foreign_address_are_refused_before_anything_starts():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        taken = s.getsockname()[1]
        with pytest.raises(ServingError, match=f"port {taken} on 127.0.0.1: .*choose another"):
            free_port(port=taken)
    for host in ("192.0.2.1", "no such host"):
        with pytest.raises(ServingError, match=f"host {host}"):
            free_port(host)


def test_a_server_that_dies_while_loading_says_why_in_one_line(monkeypatch):
    code = "import sys; print('Loading weights'); sys.exit('SafetensorError: header too large')"
    monkeypatch.setattr(serving, "server_command", lambda *_, **__: [sys.executable, "-c", code])
    with pytest.raises(ServingError, match=r"ended before it was ready.*SafetensorError: header too large") as e:
        start_server(tiny_folder()).__enter__()
    assert "\n" not in str(e.value)


def test_a_server_that_never_answers_is_ended(monkeypatch):
    monkeypatch.setattr(
        serving, "server_command", lambda *_, **__: [sys.executable, "-c", "import time; time.sleep(600)"]
    )
    with pytest.raises(ServingError, match=r"was not ready after 0\.3 s"):
        start_server(tiny_folder(), seconds=0.3).__enter__()


#: What `vllm` on the PATH does as far as we can see: serve the named folder on the port. It writes down what it got.
VLLM = """#!{python} -S
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    log_message = lambda *_: None
words = sys.argv[1:]
assert words[0] == "serve" and os.path.isfile(words[1] + "/config.json"), words
print(json.dumps([words, os.environ.get("PYTHONPATH")]), flush=True)
HTTPServer((words[words.index("--host") + 1], int(words[words.index("--port") + 1])), Healthy).serve_forever()
"""


def test_vllm_of_another_environment_is_picked_and_keeps_its_own_modules(tmp_path, monkeypatch):
    program = tmp_path / "vllm"
    program.write_text(VLLM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with start_server(tiny_folder(), options=["--max-model-len", "64"]) as server:
        words, modules = json.loads(server.service.last_lines(1))
        assert server.engine == "vllm" and server.model == tiny_folder().name
    assert words[1] == str(tiny_folder()), "a client on this machine finds the tokenizer there"
    assert words[-4:] == ["--served-model-name", server.model, "--max-model-len", "64"]
    assert modules is None, "the course's transformers would take the place of vLLM's"
    assert not server.running


@pytest.mark.parametrize(
    ("method", "library"),
    [("gptq", "gptqmodel"), ("awq", "gptqmodel"), ("bitsandbytes", "bitsandbytes"), ("compressed-tensors", None)],
)
def test_a_quantised_checkpoint_whose_library_is_missing_is_refused_before_anything_starts(
    tmp_path, monkeypatch, method, library
):
    folder = shutil.copytree(tiny_folder(), tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": method}}))
    monkeypatch.setenv("ROCM_GUIDE_QUANTIZATION", str(tmp_path / "libraries"))
    there = serving.find_spec
    hidden = ("gptqmodel", "bitsandbytes", "compressed_tensors")
    monkeypatch.setattr(serving, "find_spec", lambda name: None if name in hidden else there(name))
    monkeypatch.setattr(serving, "Service", lambda *_, **__: pytest.fail("a server was started"))
    library = library or "compressed_tensors"
    with pytest.raises(ServingError, match=f"small: .* reads {method} with {library}, which is not installed; run"):
        start_server(folder, engine="transformers", device="cpu").__enter__()
    (tmp_path / "libraries" / library).mkdir(parents=True)  # then it is started, with that folder on its path

    def started(*_, environment, **__):
        raise ChildError(f"started with {environment['PYTHONPATH']}")

    monkeypatch.setattr(serving, "Service", started)
    with pytest.raises(ChildError, match=f"started with {tmp_path / 'libraries'}"):
        start_server(folder, engine="transformers", device="cpu").__enter__()


@pytest.mark.parametrize(("device", "kernel"), [("cuda:0", "gptq_torch"), ("auto", "gptq_torch"), ("cpu", None)])
def test_on_a_gpu_gptq_is_served_with_a_kernel_that_need_not_be_compiled(tmp_path, monkeypatch, device, kernel):
    folder = shutil.copytree(tiny_folder(), tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "gptq"}}))

    def started(command, *, folder, **_):
        fields = json.loads((folder / "small" / "config.json").read_text())
        assert "small" in command and (folder / "small" / "model.safetensors").stat().st_size > 1000
        raise ChildError(f"python started with {fields['quantization_config'].get('backend')}")

    monkeypatch.setattr(serving, "Service", started)
    monkeypatch.setattr(serving, "_device", lambda: device)
    with pytest.raises(ChildError, match=f"started with {kernel}"):
        start_server(folder, engine="transformers").__enter__()
    assert "backend" not in (folder / "config.json").read_text(), "the reader's own file stays as it is"


def test_the_command_lines_of_both_engines():
    model, adapter = Checkpoint(Path("/runs/mine")), Checkpoint(Path("/runs/mine"), base="org/base", rank=32)
    ours = server_command(model, "transformers", device="cpu")
    assert "127.0.0.1" in ours and "--cb-num-blocks" in ours and "--trust-remote-code" not in ours
    assert "--cb-num-blocks" not in server_command(model, "transformers", device="cuda:0"), "a GPU sizes its own cache"
    shared = [server_command(model, engine, device="cuda:0", share=0.85) for engine in ("vllm", "transformers")]
    assert shared[0][-2:] == ["--gpu-memory-utilization", "0.85"]
    assert shared[1][-2:] == ["--cb-max-memory-percent", "0.85"]
    assert "0.85" not in server_command(model, "transformers", device="cpu", share=0.85), "a CPU's cache is a number"
    for share in (0, 1.5):
        with pytest.raises(ServingError, match=f"share={share}: the part"), start_server("unused", share=share):
            pass
    line = " ".join(server_command(adapter, "vllm", options=["--max-model-len", "99"]))
    assert line.startswith("vllm serve org/base --host 127.0.0.1") and line.endswith("--max-model-len 99")
    assert "--enable-lora --max-lora-rank 32 --lora-modules mine=/runs/mine" in line


def test_a_run_is_named_as_for_the_passport(tmp_path, monkeypatch):
    from rocm_guide.cli.serve import serve

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("ROCM_GUIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/passport.json").write_text("{}")
    with pytest.raises(ServingError, match="runs/mine: a run without a merged model"):
        serve("mine")
    (tmp_path / "mine").mkdir()  # a folder of that name goes first
    with pytest.raises(ServingError, match=f"{tmp_path}/mine: holds neither config.json"):
        serve("mine")
    for name in ("", "yours"):
        with pytest.raises(ServingError, match="no such folder"):
            serve(name)


@pytest.mark.parametrize(("engine", "variable"), [("transformers", "ROCM_GUIDE_SERVE_KEY"), ("vllm", "VLLM_API_KEY")])
def test_the_key_goes_by_the_environment_and_is_needed_where_others_reach(monkeypatch, engine, variable):
    key = "0123456789abcdef"

    def started(command, *, environment, **_):
        assert environment[variable] == key and not any(key in word for word in command)
        raise ChildError("python started")

    monkeypatch.setattr(serving, "pick_engine", lambda _: engine)
    monkeypatch.setattr(serving, "Service", started)
    with pytest.raises(ChildError, match="started"):
        start_server(tiny_folder(), host="0.0.0.0", device="cpu", key=key).__enter__()
    monkeypatch.setattr(serving, "Service", lambda *_, **__: pytest.fail("a server was started"))
    for more, said in (
        ({"host": "0.0.0.0"}, "host=0.0.0.0: whoever .* set a key"),
        ({"host": "::"}, "set a key"),
        ({"key": "short"}, "16 to 200"),
        ({"key": "0123456789 abcdef"}, "16 to 200"),
        ({"options": ["--host=0.0.0.0"]}, "stand before the --"),
    ):
        with pytest.raises(ServingError, match=said) as e:
            start_server(tiny_folder(), device="cpu", **more).__enter__()
        assert "short" not in str(e.value) and "0123456789" not in str(e.value)
    server = serving.Server("http://h", "mine", engine, (), 1.0, None, key=True)
    assert '-H "Authorization: Bearer $ROCM_GUIDE_SERVE_KEY"' in server.curl()


def test_an_engine_that_is_unknown_or_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pick_engine() == "transformers"
    for engine, said in (("tgi", "choose from auto, vllm, transformers"), ("vllm", "not installed here")):
        with pytest.raises(ServingError, match=said):
            pick_engine(engine)
