# SPDX-License-Identifier: MIT
"""One streamed request to an OpenAI-compatible server, with the time of every piece; and what the server calls itself.

Plain HTTP on httpx: the client of a measurement shares its two cores with the server, so it does as little as it can.
Whatever answers, a request ends: in time, after so many bytes, lines and events, and with figures that can be. Nothing
compressed is taken, no redirect is followed, no cookie is kept.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import shown
from rocm_guide.serve.door import is_loopback
from rocm_guide.serve.served_checkpoints import ServingError

if TYPE_CHECKING:
    import httpx

__all__ = ["KEY", "Answer", "Target", "ask", "in_own_loop", "look_at", "new_client"]

#: The variable that holds the server's key: a word on the command line could be read by every user of the machine.
KEY = "ROCM_GUIDE_BENCH_KEY"
#: Why a request failed that the end of the run met.
_RUN_OVER = "the run's time was over before the answer was (--run-deadline)"

# Bytes. An event of one token has a few hundred, and the longest public list of models under a million.
_LARGEST_PAGE, _LONGEST_LINE, _LONGEST_NAME = 4 << 20, 1 << 20, 1000


def _most_events(tokens: int) -> int:
    return 64 + 8 * tokens  # a token can be written in several pieces


@dataclass
class Answer:
    """One request as the client saw it; times in seconds.

    Attributes:
        sent: when it was sent, on the clock of the run.
        pieces: when each piece of text arrived, on the same clock.
        ended: when the stream ended.
        tokens, prompt_tokens: as the server counts them; pieces are counted where it does not say.
        error: why it failed; empty for a whole answer.
        refused: whether the server refused it, with a status other than 200.
    """

    sent: float
    pieces: list[float] = field(default_factory=list)
    ended: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    error: str = ""
    refused: bool = False

    @property
    def first(self) -> float:
        return self.pieces[0] - self.sent

    @property
    def whole(self) -> float:
        return self.ended - self.sent

    @property
    def between(self) -> float:
        """Mean time between two tokens after the first; 0 for an answer of one."""
        return (self.pieces[-1] - self.pieces[0]) / (self.tokens - 1) if self.tokens > 1 else 0.0


@dataclass(frozen=True)
class Target:
    """A server that answers: address without /v1, the model's name ("" where none has to be given), and what it is.

    Attributes:
        key: what it gets as a bearer token; empty for none.
    """

    url: str
    model: str = ""
    kind: str = "unknown"
    version: str = ""
    key: str = field(default="", repr=False)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _key_for(url: httpx.URL, over_http: bool, say: Callable[[str], None]) -> str:
    """Return the key of :data:`KEY`, or "" where it could be read on its way; then one line says so."""
    key = os.environ.get(KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise ServingError(f"{KEY}: holds characters that no key has; set it again")
    if key and not (over_http or url.scheme == "https" or is_loopback(url.host)):
        say(f"{KEY} is not sent: {shown(url.host)} is another machine, without https; --key-over-http sends it")
        return ""
    return key


def new_client(url: str, timeout: float) -> httpx.AsyncClient:
    """Return a client for the server at ``url``.

    Args:
        timeout: seconds without any byte after which a request has failed.
    """
    import httpx

    address = httpx.URL(url)
    return httpx.AsyncClient(
        timeout=timeout,
        # Servers close idle connections after five seconds; one that closes as it is taken up again would be a failure.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"Accept-Encoding": "identity"},
        # What goes to this machine goes through no proxy, which could read it.
        trust_env=not (address.scheme == "http" and is_loopback(address.host)),
    )


def in_own_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop of a thread of its own: a notebook's thread has a loop that runs already."""
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:  # left with an error, as by Ctrl-C, it cancels what still runs
        return portal.call(lambda: work)


def look_at(
    url: str,
    model: str = "",
    *,
    seconds: float = 10.0,
    key_over_http: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Target:
    """Find out whether an OpenAI-compatible server answers at ``url``, and the name of its model.

    Args:
        seconds: for each of two short requests, from its beginning to the end of its answer.
        key_over_http: send the key of :data:`KEY` to another machine without https too.
        say: is called with one line where the key is not sent.

    Raises:
        ServingError: no address, nobody there, or no such server.

    >>> look_at("ftp://here")
    Traceback (most recent call last):
        ...
    rocm_guide.serve.served_checkpoints.ServingError: 'ftp://here': no address of a server; as http://127.0.0.1:8000
    """
    import httpx

    try:
        parts = httpx.URL(url.strip())  # as the client itself will read it, so that no other host gets the key
        fine = parts.scheme in ("http", "https") and bool(parts.host) and (parts.port is None or 0 < parts.port < 65536)
    except httpx.InvalidURL:
        fine = False
    if fine and parts.userinfo:
        raise ServingError(f"an address with a user's name or password in it; put the server's key into {KEY}")
    if not fine or parts.query or parts.fragment:
        raise ServingError(f"{shown(repr(url))}: no address of a server; as http://127.0.0.1:8000")
    key = _key_for(parts, key_over_http, say)
    base = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        (status, page), (there, about) = in_own_loop(_first_look(base, key, seconds))
    except (httpx.HTTPError, TimeoutError) as e:
        reason = f"within {seconds:g} s" if isinstance(e, TimeoutError) else str(e) or type(e).__name__
        raise ServingError(f"{shown(url)}: no server answers ({reason}); start one: rocm-guide serve RUN") from e
    except ServingError as e:
        raise ServingError(f"{shown(url)}: {e}") from e
    if status in (401, 403):
        sent = "; the key was not sent, --key-over-http sends it" if os.environ.get(KEY) and not key else ""
        raise ServingError(f"{shown(url)}: refuses with {status}; put its key into {KEY}{sent}")
    try:
        models = [_name(entry["id"]) for entry in json.loads(page)["data"]]
    except ServingError as e:
        raise ServingError(f"{shown(url)}: {e}") from e
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError) as e:
        said = f"/v1/models gives {status}"
        raise ServingError(f"{shown(url)}: answers, but is no OpenAI-compatible server ({said})") from e
    try:
        number = str(json.loads(about)["version"]) if there == 200 else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        number = ""
    model = model or next(iter(models), "")
    return Target(base, model, "vllm" if number else "unknown", shown(number, 40), key)


async def _first_look(base: str, key: str, seconds: float) -> list[tuple[int, bytes]]:
    """Return status and body of the list of models, and of what vLLM says of itself."""
    pages = []
    async with new_client(base, seconds) as client:
        for path in ("/v1/models", "/version"):
            async with asyncio.timeout(seconds), client.stream("GET", base + path, headers=_headers(key)) as reply:
                if path == "/v1/models" and reply.is_redirect:
                    raise ServingError(_redirect(reply))
                page = bytearray()
                async for part in _parts(reply, _LARGEST_PAGE):
                    page += part
                pages.append((reply.status_code, bytes(page)))
    return pages


def _name(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("a name is a text")
    if len(found) > _LONGEST_NAME or not found.isprintable():
        raise ServingError(f"names a model {shown(found, 40)}, of {len(found):,} characters, which is no name")
    return found


def _redirect(reply: httpx.Response) -> str:
    where = shown(reply.headers.get("location", ""), 100)
    return f"{reply.status_code} leads to {where}, which is not followed; give that address if it is the server's"


async def _parts(reply: httpx.Response, largest: int) -> AsyncIterator[bytes]:
    """Yield an answer's bytes, up to ``largest``, as they come; refuse compressed ones, which unfold without end."""
    coding = reply.headers.get("content-encoding", "").strip()
    if coding.lower() not in ("", "identity"):
        raise ServingError(f"the answer is compressed ({shown(coding, 40)}), which was not asked for")
    size = 0
    async for part in reply.aiter_raw():
        size += len(part)
        if size > largest:
            raise ServingError(f"the answer has more than {largest:,} bytes")
        yield part


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of an answer as they become whole, with their ends; refuse one without an end."""
    rest = bytearray()
    async for part in parts:
        rest += part
        if b"\n" in part or b"\r" in part:
            lines = rest.splitlines(keepends=True)
            rest = bytearray() if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
            for line in lines:
                yield bytes(line)
        if len(rest) > _LONGEST_LINE:
            raise ServingError(f"a line of the answer has more than {_LONGEST_LINE:,} bytes")
    if rest:
        yield bytes(rest)


async def ask(
    client: httpx.AsyncClient,
    target: Target,
    prompt: str,
    tokens: int,
    extra: dict[str, Any],
    began: float,
    *,
    deadline: float = 600.0,
    ends: float = math.inf,
) -> Answer:
    """Send one prompt, read the stream to its end, and note when each piece came.

    Whatever goes wrong becomes the answer's ``error``: one failed request is a result of a measurement.

    Args:
        extra: further fields of the request.
        began: start of the run on ``time.perf_counter``; all times count from there.
        deadline: seconds for the whole request.
        ends: end of the run on ``time.perf_counter``.
    """
    import httpx

    body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, **extra}
    if target.model:
        body["model"] = target.model
    answer = Answer(time.perf_counter() - began)
    left = ends - time.perf_counter()
    if left <= 0:
        answer.error = _RUN_OVER
        return answer
    try:
        async with (
            asyncio.timeout(min(deadline, left)),
            client.stream("POST", f"{target.url}/v1/completions", json=body, headers=_headers(target.key)) as reply,
        ):
            if reply.status_code != 200:
                answer.refused = True
                answer.error = _redirect(reply) if reply.is_redirect else await _refusal(reply)
                return answer
            await _read(answer, reply, tokens, len(prompt), began)
    except ServingError as e:
        answer.error = str(e)
    except TimeoutError:
        answer.error = _RUN_OVER if left < deadline else f"not whole after {deadline:g} s (--deadline)"
    except httpx.TimeoutException as e:
        answer.error = f"not a byte came for {client.timeout.read:g} s ({type(e).__name__}; --timeout)"
    except (httpx.HTTPError, RecursionError) as e:
        answer.error = shown(f"{type(e).__name__}: {e}", 200)
    answer.ended = time.perf_counter() - began
    answer.tokens = answer.tokens or len(answer.pieces)
    if not answer.error and not answer.pieces:
        if not answer.tokens:
            answer.error = "the stream ended without a token"
        answer.pieces.append(answer.ended)  # tokens that no text stands for: the user sees nothing before the end
    return answer


async def _refusal(reply: httpx.Response) -> str:
    """Return status and first words of an answer that is no stream."""
    said = bytearray()
    async for part in _parts(reply, _LARGEST_PAGE):
        said += part
        if len(said) >= 300:
            break
    return shown(f"{reply.status_code} {said[:300].decode(errors='replace')}", 200)


async def _read(answer: Answer, reply: httpx.Response, tokens: int, letters: int, began: float) -> None:
    """Read the events of a stream into ``answer``; refuse what no such stream has."""
    events, whole = 0, False
    async for line in _lines(_parts(reply, 2 * _LONGEST_LINE + 4096 * tokens)):
        if not line.startswith(b"data:"):
            continue
        if (data := line[5:].strip()) == b"[DONE]":
            whole = True
            continue
        events += 1
        if events > _most_events(tokens):
            raise ServingError(f"{tokens:,} tokens were asked for, and more than {_most_events(tokens):,} events came")
        whole = _note(answer, data, time.perf_counter() - began, tokens, letters) or whole
    if not (whole or answer.error) and answer.pieces:
        raise ServingError("the stream ended before the answer did")


def _note(answer: Answer, data: bytes, now: float, tokens: int, letters: int) -> bool:
    """Note what one event says; gives whether it is one that ends an answer."""
    try:
        event = json.loads(data.decode())
    except UnicodeDecodeError as e:
        raise ServingError(f"an event is not UTF-8: {shown(data[:60])}") from e
    except (ValueError, RecursionError) as e:
        raise ServingError(f"an event is not valid JSON: {shown(data[:60].decode(errors='replace'))}") from e
    choices = (event.get("choices") or []) if isinstance(event, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ServingError(f"an event is none of a completion: {shown(data[:60].decode(errors='replace'))}")
    if len(choices) > 1:
        raise ServingError(f"an event has {len(choices):,} answers, where one was asked for")
    if said := event.get("error"):
        answer.error = shown(said, 200)
    if usage := event.get("usage"):
        answer.tokens = _count_in(usage, "completion_tokens", tokens)
        # No token is shorter than a letter; a template may add some of its own.
        answer.prompt_tokens = _count_in(usage, "prompt_tokens", letters + 4096)
    for choice in choices:
        if text := choice.get("text"):
            if not isinstance(text, str):
                raise ServingError(f"an event's text is none: {shown(data[:60].decode(errors='replace'))}")
            answer.pieces.append(now)
    return bool(usage) or any(choice.get("finish_reason") for choice in choices)


def _count_in(usage: Any, name: str, most: int) -> int:
    """Return a number of tokens that a server gives; refuse one that cannot be."""
    found = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= most or found != int(found):
        raise ServingError(f"the server counts {name}: {shown(found, 40)}, no number from 0 to {most:,}")
    return int(found)
