# SPDX-License-Identifier: MIT
"""The door of `transformers serve`, tried as a web page, a stranger and a careless client; no model is loaded."""

import asyncio
import json
import socket
import threading
import time

import pytest
import uvicorn

from rocm_guide.serve.door import Door, body_limit

KEY = "0123456789abcdef"
LOCAL = "127.0.0.1:8000"
JSON = {"content-type": "application/json"}


class Behind:
    """The server behind the door: counts what reaches it, and gives the body back."""

    def __init__(self):
        self.asked = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        self.asked.append((scope["method"], scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def ask(path="/v1/completions", method="POST", parts=(b"{}",), heads=(), host=LOCAL, slow=0.0, **door):
    """(status, answer, requests behind, parts of the body that were read)."""
    behind, sent, read = Behind(), [], []

    async def receive():
        await asyncio.sleep(slow)
        read.append(None)
        return {"type": "http.request", "body": parts[len(read) - 1], "more_body": len(read) < len(parts)}

    async def send(message):
        sent.append(message)

    every = [("host", h) for h in ([host] if isinstance(host, str) else host)] + list(dict(heads).items())
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in every]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    asyncio.run(Door(behind, **{"host": "127.0.0.1", "model": "mine", **door})(scope, receive, send))
    return sent[0]["status"], sent[1]["body"], behind.asked, len(read)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_what_a_client_needs_is_passed_on_whole(path):
    assert ask(path, parts=[b'{"a"', b": 1}"])[1:3] == (b'{"a": 1}', [("POST", path, b'{"a": 1}')])
    assert ask("/health", "GET")[2] == [("GET", "/health", b"")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/load_model"),
        ("POST", "/reset"),
        ("POST", "/v1/systemone"),
        ("POST", "/v1/audio/transcriptions"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/completions/"),
        ("POST", "//load_model"),
        ("GET", "/v1/completions"),
        ("OPTIONS", "/v1/completions"),
    ],
)
def test_everything_else_is_closed(method, path):
    status, said, behind, read = ask(path, method)
    assert (status, behind, read) == (404, [], 0) and b"POST /v1/completions" in said


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1", ()]
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/health", "/load_model"])
def test_a_name_that_leads_here_by_dns_is_refused(host, path):
    for method in ("GET", "POST"):
        status, _, behind, read = ask(path, method, host=host)
        assert (status, behind, read) == (403, [], 0)
    assert ask(host=[LOCAL, "evil.example"])[0] == 403, "two of them"


@pytest.mark.parametrize("host", [LOCAL, "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_the_names_of_this_machine_are_taken(host):
    assert ask(host=host)[0] == 200


def test_the_name_that_the_user_gave_is_taken_too():
    assert ask(host="node7:8000", key=KEY, heads={"authorization": f"Bearer {KEY}"})[0] == 403
    behind = Door(Behind(), host="node7", model="mine", key=KEY)
    assert behind._ours("node7:8000") and behind._ours("NODE7") and not behind._ours("node8:8000")
    everywhere = Door(Behind(), host="0.0.0.0", model="mine", key=KEY)
    assert everywhere._ours("node7:8000") and not Door(Behind(), host="0.0.0.0", model="mine")._ours("node7:8000")


@pytest.mark.parametrize(
    "heads",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://localhost.evil.example:8000"},
        {"origin": "http://evil.example", "content-type": "text/plain"},
        {"sec-fetch-site": "cross-site", "content-type": "text/plain"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_web_page_of_another_origin_reaches_nothing(heads):
    for path in ("/v1/completions", "/load_model"):
        status, _, behind, read = ask(path, heads=heads)
        assert (status, behind, read) == (403, [], 0)
    assert ask(heads={"origin": f"http://{LOCAL}", "sec-fetch-site": "same-origin"})[0] == 200


def test_the_key_is_asked_for_everywhere_but_for_health():
    for sent in ("", f"Bearer {KEY}x", KEY, f"bearer {KEY}", "Bearer ", "Bearer \xe9"):
        for path, method in (("/v1/completions", "POST"), ("/v1/models", "GET")):
            status, said, behind, read = ask(path, method, key=KEY, heads={"authorization": sent})
            assert (status, behind, read) == (401, [], 0) and KEY.encode() not in said
    assert ask(key=KEY, heads={"authorization": f"Bearer {KEY}"})[0] == 200
    assert ask("/health", "GET", key=KEY)[0] == 200


def test_models_are_the_one_that_is_served():
    status, said, behind, _ = ask("/v1/models", "GET", model="merged")
    assert status == 200 and not behind and [m["id"] for m in json.loads(said)["data"]] == ["merged"]


def test_a_body_over_the_limit_is_refused_before_it_is_read_whole():
    for length in ("1001", "99999999999", "9" * 5000, "-1", "ten", "1e9"):
        status, _, behind, read = ask(limit=1000, heads={"content-length": length})
        assert (status, behind, read) == (413, [], 0), length
    status, said, behind, read = ask(limit=1000, parts=[b"x" * 400] * 50)  # chunked: no length is given
    assert (status, behind, read) == (413, [], 3) and b"1,000 bytes" in said
    assert ask(limit=1000, parts=[b"x" * 500] * 2)[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for():
    assert ask(seconds=0.05, slow=5)[0] == 408


def test_the_limit_is_what_the_model_can_read(tmp_path):
    for fields, most in (
        ({"max_position_embeddings": 131072}, 32 * 131072),
        ({"max_position_embeddings": 256}, 1 << 16),
        ({"n_positions": 1024 * 1024 * 1024}, 16 << 20),
        ({"text_config": {"max_position_embeddings": 8192}}, 32 * 8192),
        ({}, 16 << 20),
    ):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        assert body_limit(tmp_path) == most


@pytest.fixture
def listening():
    """(port, server behind) of the door on a socket, with uvicorn's own reading of HTTP."""
    behind = Behind()
    door = Door(behind, host="127.0.0.1", model="mine", limit=100_000)
    server = uvicorn.Server(uvicorn.Config(door, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1], behind
    server.should_exit = True
    thread.join()


def raw(port, head, *parts):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(head)
        try:
            for part in parts:
                s.sendall(part)
            return s.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return b"closed"


def test_on_a_socket_a_huge_or_endless_body_ends_at_the_limit(listening):
    port, behind = listening
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    said = raw(port, f"{head}Content-Length: 10000000000\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 413")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    said = raw(port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * 1000)
    assert said == b"closed" or said.startswith(b"HTTP/1.1 413")
    for bad in (head.replace("127.0.0.1", "evil.example"), head + "Origin: http://evil.example\r\n"):
        assert raw(port, f"{bad}Content-Length: 2\r\n\r\n{{}}".encode()).startswith(b"HTTP/1.1 403")
    assert behind.asked == []
    assert raw(port, f"{head}Content-Length: 2\r\n\r\n{{}}".encode()).startswith(b"HTTP/1.1 200")
