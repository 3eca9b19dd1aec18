# SPDX-License-Identifier: MIT
"""Servers that mean harm or are broken, one behaviour each: what a client gets is written byte by byte."""

import gzip
import json
import socket
import socketserver
import struct
import threading
import zlib
from contextlib import contextmanager
from functools import cache
from itertools import count, repeat

RESET = "reset"  # a step of a behaviour: the connection breaks
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
STREAM = HEAD + b"Connection: close\r\n\r\n"
BIG = b"x" * 65536
TOKEN = {"choices": [{"text": " word"}]}
USAGE = {"completion_tokens": 4, "prompt_tokens": 20}


def event(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def answer(*events):
    """Four tokens and what a behaviour adds to them, as a whole stream."""
    return [STREAM, event(TOKEN) * 4, *map(event, events)]


def usage(completion=4, prompt=20):
    text = f'{{"choices": [], "usage": {{"completion_tokens": {completion}, "prompt_tokens": {prompt}}}}}'
    return [*answer(text.encode()), event(b"[DONE]")]


def page(value, head=b"HTTP/1.1 200 OK\r\n"):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return [head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data), data]


def coded(name, data):
    return [HEAD + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (name, len(data)), data]


@cache
def zeros(wrap):
    """A gigabyte of zeros as a few megabytes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, wrap)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(1024)), packer.flush()])


GOOD = [*answer({"choices": [], "usage": USAGE}), event(b"[DONE]")]
MODELS = page({"data": [{"id": "fake"}]})


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, behaviour, path, after):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour, self.path, self.after, self.asked = behaviour, path, after, 0
        self.stopped, self.seen, self.lock = threading.Event(), [], threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            self.answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self):
        path = self.rfile.readline().split(b" ")[1:2]
        headers = [line for line in iter(self.rfile.readline, b"\r\n") if line]
        length = next((int(h.split(b":")[1]) for h in headers if h.lower().startswith(b"content-length")), 0)
        self.rfile.read(length)
        me = self.server
        me.seen.append((path, headers))
        if path != [me.path]:
            steps = {b"/v1/models": MODELS, b"/v1/completions": GOOD}.get(
                path[0] if path else b"", page({}, b"HTTP/1.1 404 No\r\n")
            )
        else:
            with me.lock:
                me.asked += 1
                steps = me.behaviour() if me.asked > me.after else GOOD
        for step in steps:
            if me.stopped.is_set():
                return
            if step == RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                socket.close(self.connection.detach())
                return
            if isinstance(step, float):
                me.stopped.wait(step)
            else:
                self.wfile.write(step)


@contextmanager
def hostile_server(behaviour, path=b"/v1/completions", after=0):
    """Serve ``behaviour`` (a function that gives bytes to send, seconds to wait, or RESET) at one path, after so many
    good answers there; what else is asked is answered well.
    """
    server = Server(behaviour, path, after)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def for_ever(first, again, pause=0.0):
    yield first
    for step in repeat(again):
        yield step
        if pause:
            yield pause


LATE, MANY = "not whole after", "more than"
#: name -> (what it sends in place of an answer, what the client says of it).
ANSWERS = {
    "endless keep-alives, slowly": (lambda: for_ever(STREAM, b": keep-alive\n\n", 0.05), LATE),
    "endless keep-alives, fast": (lambda: for_ever(STREAM, b": keep-alive\n\n" * 4096), MANY),
    "endless empty lines": (lambda: for_ever(STREAM, b"\n" * 65536), MANY),
    "endless tokens, slowly": (lambda: for_ever(STREAM, event(TOKEN), 0.05), LATE),
    "endless tokens, fast": (lambda: for_ever(STREAM, event(TOKEN)), "4 tokens were asked for, and more than 96"),
    "endless events without a token": (lambda: for_ever(STREAM, event({"choices": []}) * 50), MANY),
    "endless line": (lambda: for_ever(STREAM + b"data: ", BIG), "a line of the answer has more than"),
    "endless line in chunks of a byte": (
        lambda: for_ever(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 65536),
        f"{MANY}|{LATE}",
    ),
    "endless headers": (lambda: for_ever(HEAD, b"X-More: " + BIG + b"\r\n"), "RemoteProtocolError"),
    "headers, a byte at a time": (lambda: for_ever(HEAD + b"X-Slow: ", b"x", 0.05), LATE),
    "endless 103 Early Hints": (lambda: for_ever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.02), LATE),
    "endless answer of an error": (
        lambda: for_ever(b"HTTP/1.1 500 No\r\n\r\n", BIG),
        "500 xxx",
    ),
    "never a byte": (lambda: [60.0], "not a byte came for 0.4 s"),
    "silence after two tokens": (lambda: [STREAM, event(TOKEN) * 2, 60.0], "not a byte came for 0.4 s"),
    "a token, and another much later": (lambda: for_ever(STREAM, event({}), 0.3), LATE),
    "reset at once": (lambda: [RESET], "ReadError|RemoteProtocolError"),
    "reset in the answer": (lambda: [STREAM, event(TOKEN) * 2, 0.1, RESET], "ReadError"),
    "ends in the middle": (lambda: [STREAM, event(TOKEN) * 2], "the stream ended before the answer did"),
    "ends in an event": (lambda: [*answer(), b'data: {"choi'], 'not valid JSON: {.?"choi'),
    "no token": (lambda: [STREAM, event(b"[DONE]")], "without a token"),
    "nothing": (list, "RemoteProtocolError"),
    "a length that is too long": (
        lambda: [HEAD + b"Content-Length: 9999\r\n\r\n", event(TOKEN)],
        "RemoteProtocolError",
    ),
    "a length that is too short": (
        lambda: [HEAD + b"Content-Length: 40\r\n\r\n", event(TOKEN) * 4],
        "the stream ended before the answer did|not valid JSON",
    ),
    "a length that is none": (lambda: [HEAD + b"Content-Length: -1\r\n\r\n", event(TOKEN)], "RemoteProtocolError"),
    "two lengths": (
        lambda: [HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", event(TOKEN)],
        "RemoteProtocolError",
    ),
    "broken chunks": (
        lambda: [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n" + event(TOKEN)],
        "RemoteProtocolError",
    ),
    "no HTTP": (lambda: [b"220 mail.example ESMTP\r\n" * 4], "RemoteProtocolError"),
    "bad JSON": (lambda: answer(b"{'choices': []}"), "not valid JSON: {'choices'"),
    "JSON of great depth": (lambda: answer(b"[" * 100_000), "not valid JSON"),
    "a number of many digits": (lambda: answer(b'{"usage": ' + b"9" * 100_000 + b"}"), "not valid JSON"),
    "bad UTF-8": (lambda: answer(b'{"choices": [{"text": "\xff\xfe"}]}'), "not UTF-8"),
    "an event of another shape": (lambda: answer(None), "none of a completion: null"),
    "choices that are none": (lambda: answer({"choices": {"text": "a"}}), "none of a completion"),
    "choices without end": (lambda: answer({"choices": TOKEN["choices"] * 10_000}), "10,000 answers"),
    "a text that is none": (lambda: answer({"choices": [{"text": {"a": 1}}]}), "text is none"),
    "usage of 1e400": (lambda: usage("1e400"), "counts completion_tokens: inf"),
    "usage of minus 1e400": (lambda: usage(4, "-1e400"), "counts prompt_tokens: -inf"),
    "usage that is negative": (lambda: usage(-4), "counts completion_tokens: -4, no number from 0 to 4"),
    "usage that is NaN": (lambda: usage("NaN"), "counts completion_tokens: nan"),
    "usage of a billion": (lambda: usage(10**9), "counts completion_tokens: 1000000000"),
    "usage of half a token": (lambda: usage(2.5), "counts completion_tokens: 2.5"),
    "usage as text": (lambda: usage('"4"'), "counts completion_tokens: 4, no number"),
    "usage that is true": (lambda: usage("true"), "counts completion_tokens: True"),
    "usage that is a list": (lambda: answer({"choices": [], "usage": [4, 20]}), "counts completion_tokens: None"),
    "prompts of a billion": (lambda: usage(4, 10**9), "counts prompt_tokens: 1000000000"),
    "an error as long as a book": (lambda: answer({"error": "book " * 100_000}), "book book"),
    "terminal codes in an error": (lambda: answer({"error": "\x1b[2J[OK] all is well"}), r"\\x1b\[2J\[OK\]"),
    "a bomb of gzip": (lambda: coded(b"gzip", zeros(31)), r"compressed \(gzip\)"),
    "a bomb of deflate": (lambda: coded(b"deflate", zeros(15)), r"compressed \(deflate\)"),
    "a bomb in a bomb": (lambda: coded(b"gzip, gzip", gzip.compress(zeros(31))), r"compressed \(gzip, gzip\)"),
    "a coding that is none": (lambda: coded(b"quantum", b"x"), r"compressed \(quantum\)"),
}
#: The same in place of the list of models.
PAGES = {
    "never a byte": (lambda: [60.0], "no server answers"),
    "a byte at a time": (lambda: for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b"[", 0.05), r"no server answers \(within 1 s\)"),
    "endless body": (lambda: for_ever(b"HTTP/1.1 200 OK\r\n\r\n", BIG), "more than 4,194,304 bytes"),
    "endless headers": (lambda: for_ever(HEAD, b"X-More: " + BIG + b"\r\n"), "no server answers"),
    "reset": (lambda: [RESET], "no server answers"),
    "a length that is too long": (lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{}"], "no server answers"),
    "bad UTF-8": (lambda: page(b"\xff\xfe\xff"), "no OpenAI-compatible server"),
    "JSON of great depth": (lambda: page(b"[" * 1_000_000), "no OpenAI-compatible server"),
    "a name without end": (lambda: page({"data": [{"id": "a" * 100_000}]}), "100,000 characters"),
    "a name with terminal codes": (lambda: page({"data": [{"id": "\x1b[2J"}]}), r"\\x1b\[2J"),
    "a name that is none": (lambda: page({"data": [{"id": {"a": 1}}]}), "no OpenAI-compatible server"),
    "a bomb of gzip": (lambda: coded(b"gzip", zeros(31)), r"compressed \(gzip\)"),
}


def redirect(where):
    return page(b"", b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\n" % where.encode())


def cookies():
    """Give each answer another cookie of 60 KB."""
    numbers = count()

    def one():
        cookie = b"Set-Cookie: c%d=%s\r\n" % (next(numbers), BIG[:60_000])
        return [HEAD + cookie + b"Connection: close\r\n\r\n", *GOOD[1:]]

    return one
