# SPDX-License-Identifier: MIT
"""The door of a server on this machine: what a client needs is open, and nothing else.

``transformers serve`` alone answers whoever reaches its port, also a web page in the browser of the one who started it
(by a name of its own that leads to 127.0.0.1, or blindly, with a form), and ``/load_model`` loads what it is told.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["KEY", "Door", "is_loopback"]

#: The variable that holds the key: a word on the command line could be read by every user of the machine.
KEY = "ROCM_GUIDE_SERVE_KEY"
#: What is passed on to the server behind.
OPEN = {("GET", "/health"), *(("POST", f"/v1/{page}") for page in ("completions", "chat/completions", "responses"))}

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[Any, _Receive, _Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``, by its name alone: nobody is asked.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "[::1]", "0.0.0.0", "127.0.0.1.org")]
    [True, True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Door:
    """An ASGI application in front of another one.

    | answer | to |
    |---|---|
    | 403 | a Host that is not this server's name, an Origin that is not this server itself (a web page) |
    | 404 | every path but /health, /v1/models and the three that write text |
    | 401 | a request without the key, if there is one; /health needs none |
    | 413 | a body over the limit; nothing beyond it is kept, and what says its length is not read at all |
    | 408 | a body that is not there after ``seconds`` |

    /v1/models is answered here: it lists the one model.

    Args:
        app: the server behind.
        host: where it listens. Behind 0.0.0.0 and :: every Host is taken, and the key is the guard.
        model: the name by which clients ask for it.
        key: what clients send as a bearer token; empty lets in whoever reaches the address.
        limit: bytes of a body.
    """

    def __init__(
        self, app: _App, *, host: str, model: str, key: str = "", limit: int = 1 << 20, seconds: float = 60
    ) -> None:
        self.app, self.host, self.model, self.key = app, host.strip("[]").lower(), model, key
        self.limit, self.seconds = limit, seconds

    async def __call__(self, scope: Any, receive: _Receive, send: _Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if refused := self._refusal(scope):
            await _answer(send, *refused)
            return
        if scope["path"] == "/v1/models":
            entry = {"id": self.model, "object": "model", "created": 0, "owned_by": "rocm-guide"}
            await _answer(send, 200, {"object": "list", "data": [entry]})
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._body(receive)
        except TimeoutError:
            await _answer(send, 408, f"the body was not there after {self.seconds:g} s")
            return
        if body is None:
            await _answer(send, 413, self._too_long)
            return
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> _Message:
            return waiting.pop() if waiting else await receive()  # afterwards: whether the client has left

        await self.app(scope, replayed, send)

    @property
    def _too_long(self) -> str:
        return f"more than {self.limit:,} bytes, which is more than the model can read"

    def _refusal(self, scope: Mapping[str, Any]) -> tuple[int, str] | None:
        """Return (status, reason) for what can be refused by the head of the request alone."""
        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = given.get("host", []), given.get("origin", [])
        if len(hosts) != 1 or not self._ours(hosts[0]):
            return 403, "this Host is none of this server's names; ask by the address that it printed"
        # A browser says whose page asks. Its own pages, of which there are none, would name the same host and port.
        ours = {f"{scheme}://{hosts[0]}".lower() for scheme in ("http", "https")}
        site = given.get("sec-fetch-site", ["none"])[-1]
        if any(origin.lower() not in ours for origin in origins) or site not in ("none", "same-origin"):
            return 403, "a web page of another origin may not ask"
        path = (scope["method"], scope["path"])
        if path not in OPEN and path != ("GET", "/v1/models"):
            return 404, "not open; open are " + ", ".join(sorted(["GET /v1/models", *map(" ".join, OPEN)]))
        sent = given.get("authorization", [""])[-1].encode("latin-1")
        if self.key and path[1] != "/health" and not hmac.compare_digest(sent, f"Bearer {self.key}".encode()):
            return 401, "the key is missing or wrong"
        length = given.get("content-length", ["0"])[-1]
        if not (length.isascii() and length.isdigit() and len(length) < 16 and int(length) <= self.limit):
            return 413, self._too_long
        return None

    def _ours(self, host: str) -> bool:
        if self.host in ("0.0.0.0", "::") and self.key:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return "@" not in host and (name == self.host or is_loopback(name))

    async def _body(self, receive: _Receive) -> bytes | None:
        """Return the whole body; None as soon as it is over the limit."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)  # the client has left; the server behind finds out
            size += len(message.get("body", b""))
            if size > self.limit:
                return None
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)


async def _answer(send: _Send, status: int, content: Any) -> None:
    """Send JSON; a reason becomes an error in OpenAI's form. The connection ends: a body may still be on its way."""
    if isinstance(content, str):
        content = {"error": {"message": content, "code": status}}
    data = json.dumps(content).encode()
    heads = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    heads += [(b"connection", b"close")] if status >= 400 else []
    await send({"type": "http.response.start", "status": status, "headers": heads})
    await send({"type": "http.response.body", "body": data})


def body_limit(folder: str | Path) -> int:
    """Return the bytes of a request's body that can still be a prompt of the model in ``folder``.

    A token is four characters in the mean; 32 bytes for each position leave room for JSON's escapes and for roles. At
    least 64 KiB; at most 16 MiB, which is also taken where the configuration names no positions.
    """
    fields = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    inner = fields.get("text_config")
    fields |= inner if isinstance(inner, dict) else {}
    positions = fields.get("max_position_embeddings") or fields.get("n_positions")
    most = 16 << 20
    return min(most, max(1 << 16, 32 * positions)) if isinstance(positions, int) else most


def bounded(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of transformers' continuous batching with a check that it lacks.

    A request that is longer than the whole cache stops the worker of transformers 5.23 for everybody ("No requests can
    be scheduled and no requests can be offloaded"). Such a one is refused here, as vLLM does, and the longest answer is
    what is left beside the prompt.
    """
    from fastapi import HTTPException

    @functools.wraps(generate)
    def checked(self: Any, model: Any, processor: Any, inputs: Any, gen_config: Any, *args: Any, **more: Any) -> Any:
        cache, prompt = self._cb_config, len(inputs["input_ids"])
        sizes = [getattr(model.config, "max_position_embeddings", None)]
        if cache is not None and cache.num_blocks and cache.block_size:
            sizes.append(cache.num_blocks * cache.block_size)
        longest = min((n for n in sizes if n), default=None)
        if longest is not None:
            if prompt >= longest:
                raise HTTPException(400, f"the prompt has {prompt} tokens; prompt and answer have {longest} together")
            gen_config.max_new_tokens = min(gen_config.max_new_tokens or longest, longest - prompt)
        return generate(self, model, processor, inputs, gen_config, *args, **more)

    return checked


def run_transformers(words: Sequence[str]) -> None:
    """Run ``transformers serve`` behind the door: the child process of :func:`rocm_guide.serve.server.start_server`.

    The command without its neighbours: importing `transformers chat` and the rest takes seconds.

    Args:
        words: of its command line: the model's folder, in the current one, then ``--host`` and the host.
    """
    import typer
    from transformers.cli.serve import Serve
    from transformers.cli.serving import server as pages
    from transformers.cli.serving.utils import CBGenerateManager

    model, option, host = words[:3]
    if option != "--host":
        raise ValueError(f"{option}: --host comes second")
    build: Any = pages.build_server

    def behind_door(*args: Any, **more: Any) -> Door:
        key = os.environ.get(KEY, "")
        return Door(build(*args, **more), host=host, model=model, key=key, limit=body_limit(model))

    manager: Any = CBGenerateManager
    for name in ("generate_streaming", "generate_non_streaming"):
        setattr(manager, name, bounded(getattr(manager, name)))
    vars(pages)["build_server"] = behind_door
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(Serve)
    app(list(words))
