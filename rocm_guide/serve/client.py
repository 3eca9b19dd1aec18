# SPDX-License-Identifier: MIT
"""One streamed request to an OpenAI-compatible server, with the time of every piece; and what the server calls itself.

Plain HTTP on httpx: the client of a measurement shares its two cores with the server, so it does as little as it can.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocm_guide.common.base import shown
from rocm_guide.serve.served_checkpoints import ServingError

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "Target", "ask", "look_at"]


@dataclass
class Answer:
    """One request as the client saw it; times in seconds.

    Attributes:
        sent: when it was sent, on the clock of the run.
        pieces: when each piece of text arrived, on the same clock.
        ended: when the stream ended.
        tokens, prompt_tokens: as the server counts them; pieces are counted where it does not say.
        error: why it failed; empty for a whole answer.
    """

    sent: float
    pieces: list[float] = field(default_factory=list)
    ended: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    error: str = ""
    text: str = ""

    @property
    def first(self) -> float:
        """Time to the first token."""
        return self.pieces[0] - self.sent

    @property
    def whole(self) -> float:
        """Time to the end of the answer."""
        return self.ended - self.sent

    @property
    def between(self) -> float:
        """Mean time between two tokens after the first; 0 for an answer of one."""
        return (self.pieces[-1] - self.pieces[0]) / (self.tokens - 1) if self.tokens > 1 else 0.0


@dataclass(frozen=True)
class Target:
    """A server that answers: address without /v1, the model's name ("" where none has to be given), and what it is.

    Attributes:
        root: what the server says that it loaded under that name (vLLM does): a folder on its machine, or a hub id.
    """

    url: str
    model: str = ""
    kind: str = "unknown"
    version: str = ""
    root: str = ""


def headers() -> dict[str, str]:
    """Return the key of ``OPENAI_API_KEY``; a key on the command line could be read by every user of the machine.

    Raises:
        ServingError: it holds what no header can.
    """
    key = os.environ.get("OPENAI_API_KEY", "")
    if not (key.isascii() and key.isprintable()):
        raise ServingError("OPENAI_API_KEY: holds characters that no key has; set it again")
    return {"Authorization": f"Bearer {key}"} if key else {}


def look_at(url: str, model: str = "") -> Target:
    """Find out whether an OpenAI-compatible server answers at ``url``, and the name of its model.

    Raises:
        ServingError: no address, nobody there, or no such server.

    >>> look_at("ftp://here")
    Traceback (most recent call last):
        ...
    rocm_guide.serve.served_checkpoints.ServingError: 'ftp://here': no address of a server; as http://127.0.0.1:8000
    """
    import httpx

    try:
        parts = urlsplit(url.strip())
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment:
        raise ServingError(f"{url!r}: no address of a server; as http://127.0.0.1:8000")
    base = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        with httpx.Client(timeout=10, headers=headers()) as client:
            found = client.get(f"{base}/v1/models")
            version = client.get(f"{base}/version")
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        reason = str(e) or type(e).__name__
        raise ServingError(f"{shown(url)}: no server answers ({reason}); start one: rocm-guide serve RUN") from e
    if found.status_code in (401, 403):
        raise ServingError(f"{shown(url)}: refuses with {found.status_code}; put its key into OPENAI_API_KEY")
    try:
        roots = {str(entry["id"]): shown(entry.get("root") or "", 4096) for entry in found.json()["data"]}
    except (AttributeError, ValueError, KeyError, TypeError) as e:
        said = f"/v1/models gives {found.status_code}"
        raise ServingError(f"{shown(url)}: answers, but is no OpenAI-compatible server ({said})") from e
    try:
        number = str(version.json()["version"]) if version.status_code == 200 else ""
    except (ValueError, KeyError, TypeError):
        number = ""
    model = model or next(iter(roots), "")
    return Target(base, model, "vllm" if number else "unknown", shown(number, 40), roots.get(model, ""))


async def ask(
    client: httpx.AsyncClient, target: Target, prompt: str, tokens: int, extra: dict[str, Any], began: float
) -> Answer:
    """Send one prompt, read the stream to its end, and note when each piece came.

    Whatever goes wrong becomes the answer's ``error``: one failed request is a result of a measurement.

    Args:
        extra: further fields of the request.
        began: start of the run on ``time.perf_counter``; all times count from there.
    """
    import httpx

    body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, **extra}
    if target.model:
        body["model"] = target.model
    answer = Answer(time.perf_counter() - began)
    try:
        async with client.stream("POST", f"{target.url}/v1/completions", json=body, headers=headers()) as reply:
            if reply.status_code != 200:
                said = (await reply.aread())[:300].decode(errors="replace")
                answer.error = shown(f"{reply.status_code} {said}", 200)
                return answer
            async for line in reply.aiter_lines():
                if line.startswith("data:") and line[5:].strip() != "[DONE]":
                    _note(answer, json.loads(line[5:]), time.perf_counter() - began)
    except (httpx.HTTPError, ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
        answer.error = shown(f"{type(e).__name__}: {e}", 200)
    answer.ended = time.perf_counter() - began
    answer.tokens = answer.tokens or len(answer.pieces)
    if not answer.error and not answer.pieces:
        if not answer.tokens:
            answer.error = "the stream ended without a token"
        answer.pieces.append(answer.ended)  # tokens that no text stands for: the user sees nothing before the end
    return answer


def _note(answer: Answer, event: dict[str, Any], now: float) -> None:
    if said := event.get("error"):
        answer.error = shown(said, 200)
    if usage := event.get("usage"):
        answer.tokens, answer.prompt_tokens = int(usage["completion_tokens"]), int(usage["prompt_tokens"])
    for choice in event.get("choices") or ():
        if text := choice.get("text"):
            answer.pieces.append(now)
            answer.text += text
