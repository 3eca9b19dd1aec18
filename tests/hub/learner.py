# SPDX-License-Identifier: MIT
"""A learner by protocol: logs in, starts a server, runs cells, as a browser would."""

import asyncio
import json
import time
import uuid
from urllib.parse import quote

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect


class Learner:
    def __init__(self, url, name, password):
        self.url, self.name, self.password = url.rstrip("/"), name, password
        self.path = quote(name, safe="@~")  # as JupyterHub writes a name into its addresses
        self.http = httpx.Client(follow_redirects=True, timeout=60, trust_env=False)
        self.kernel = ""
        self.errors = []

    def xsrf(self, path):
        """The token of the cookie that belongs to a path of the site."""
        fitting = [c for c in self.http.cookies.jar if c.name == "_xsrf" and path.startswith(c.path.rstrip("/"))]
        return max(fitting, key=lambda c: len(c.path)).value

    def log_in(self):
        self.http.get(f"{self.url}/hub/login")
        data = {"username": self.name, "password": self.password, "_xsrf": self.xsrf("/hub/")}
        return self.http.post(f"{self.url}/hub/login?next=%2Fhub%2Fhome", data=data)

    def user(self):
        """What the hub says of this learner: servers, pending or ready."""
        return self.http.get(f"{self.url}/hub/api/users/{self.path}", headers=self.headers("/hub/")).json()

    def headers(self, path):
        return {"X-XSRFToken": self.xsrf(path), "Referer": f"{self.url}{path}"}

    def ask_for_server(self):
        return self.http.post(f"{self.url}/hub/api/users/{self.path}/server", json={}, headers=self.headers("/hub/"))

    def progress_until(self, words):
        """The lines that the page of a starting server is sent, up to the one with these words."""
        address = f"{self.url}/hub/api/users/{self.path}/server/progress"
        with self.http.stream("GET", address, headers=self.headers("/hub/")) as answer:
            lines = []
            for line in answer.iter_lines():
                lines.append(line)
                if words in line:
                    break
            return lines

    def wait_until_ready(self, seconds=240):
        """Seconds until the server answers; the log of its progress if it never does."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.user().get("server"):
                # The server sends the learner to the hub once, to be told who it is, and sets cookies of its own.
                page = self.http.get(f"{self.url}/user/{self.path}/lab/tree/rocm-llm-guide")
                if page.status_code == 200 and f"/user/{self.path}/" in str(page.url):
                    return time.monotonic() - began
            time.sleep(1)
        raise AssertionError(f"{self.name}'s server was not ready in {seconds} s: {self.user()}")

    def start(self, seconds=240):
        self.log_in()
        self.ask_for_server()
        return self.wait_until_ready(seconds)

    def stop_server(self):
        address = f"{self.url}/hub/api/users/{self.path}/server"
        self.http.request("DELETE", address, json={}, headers=self.headers("/hub/"))

    def api(self, path, method="GET", **more):
        base = f"/user/{self.path}/"
        return self.http.request(method, f"{self.url}{base}api/{path}", headers=self.headers(base), **more)

    def new_kernel(self):
        answer = self.api("kernels", "POST", json={"name": "python3", "path": "rocm-llm-guide"})
        assert answer.status_code == 201, answer.text
        self.kernel = answer.json()["id"]

    def run(self, *cells, seconds=240):
        """Run cells one after the other in the learner's kernel; the text that they print, or their error."""
        if not self.kernel:
            self.new_kernel()
        return asyncio.run(asyncio.wait_for(self._run(cells), seconds))

    async def _run(self, cells):
        address = f"{self.url}/user/{self.path}/api/kernels/{self.kernel}/channels".replace("http", "ws", 1)
        cookies = "; ".join(f"{c.name}={c.value}" for c in self.http.cookies.jar if f"/user/{self.path}" in c.path)
        socket = await websocket_connect(HTTPRequest(address, headers={"Cookie": cookies}), max_message_size=10**8)
        said = []
        for code in cells:
            said.append(await self._one(socket, code))
        socket.close()
        return said

    async def _one(self, socket, code):
        me, text = uuid.uuid4().hex, []
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        header = {"msg_id": me, "msg_type": "execute_request", "username": self.name, "session": me, "version": "5.3"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await socket.write_message(json.dumps(message))
        while (raw := await socket.read_message()) is not None:
            got = json.loads(raw)
            if got["parent_header"].get("msg_id") != me:
                continue
            kind, body = got["msg_type"], got["content"]
            if kind == "stream":
                text.append(body["text"])
            elif kind == "error":
                text.append(f"{body['ename']}: {body['evalue']}")
                self.errors.append(text[-1])
            elif kind == "status" and body["execution_state"] == "idle":
                return "".join(text).strip()
        raise ConnectionError("the kernel's socket was closed")
