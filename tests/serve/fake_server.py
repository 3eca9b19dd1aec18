# SPDX-License-Identifier: MIT
"""An OpenAI-compatible server without a model: streams as many words as it is told, at a pace that a test knows."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    # Behaviour, which a test changes: seconds before the first word and between two, fields that are refused, answers.
    first = between = 0.0
    refuses = ()

    def fails(self, number):
        return False

    status = 200
    models = None
    version = None
    breaks_off = False
    hang_ups = 0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.lock, self.at_once, self.most_at_once = [], threading.Lock(), 0, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, code, value):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        me = self.server
        if self.path == "/health":
            self.reply(200, {})
        elif self.path == "/v1/models":
            self.reply(me.status, {"data": [{"id": "fake"}]} if me.models is None else me.models)
        elif self.path == "/version" and me.version:
            self.reply(200, {"version": me.version})
        else:
            self.reply(404, {})

    def do_POST(self):
        me = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with me.lock:
            me.seen.append({**body, "headers": dict(self.headers), "at": time.monotonic()})
            number = len(me.seen)
            me.at_once += 1
            me.most_at_once = max(me.most_at_once, me.at_once)
        try:
            self.stream(me, body, number)
        except (BrokenPipeError, ConnectionResetError):
            me.hang_ups += 1
        finally:
            with me.lock:
                me.at_once -= 1

    def stream(self, me, body, number):
        if unknown := set(body) & set(me.refuses):
            self.reply(422, {"detail": f"Unexpected fields: {unknown}"})
            return
        if me.fails(number):
            self.reply(500, {"detail": "out of blocks"})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        count = body["max_tokens"]
        for i in range(count):
            time.sleep(me.between if i else me.first)
            self.event({"choices": [{"text": f" w{i}"}]})
            if me.breaks_off and i == 1:
                self.event({"error": "the worker died"})
                return
        usage = {"completion_tokens": count, "prompt_tokens": 2 * len(body["prompt"].split())}
        ended = {"choices": [{"text": "", "finish_reason": "length"}]}
        if (body.get("stream_options") or {}).get("include_usage"):  # as OpenAI and vLLM: in an event of its own
            self.event(ended)
            self.event({"choices": [], "usage": usage})
        else:
            self.event({**ended, "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


@contextmanager
def fake_server(**behaviour):
    server = Server()
    for name, value in behaviour.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
