# SPDX-License-Identifier: MIT
"""A gateway in front of servers, as in production, small enough to read: key, limits, metrics, several replicas.

Notebook 18. In production nginx, Envoy or a Kubernetes gateway does this; what each part is for is the same.
"""

from __future__ import annotations

import hmac
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from cdna.children import ChildError, Service
from rocm_guide.serve.served_checkpoints import ServingError
from rocm_guide.serve.server import answers_health, free_port

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["gateway_app", "run_gateway", "start_gateway"]

#: The variable that holds the key: a word on the command line could be read by every user of the machine.
KEY = "ROCM_GUIDE_GATEWAY_KEY"


def gateway_app(replicas: Sequence[str], *, key: str, most: int = 32, body_limit: int = 1_000_000) -> Starlette:
    """Return an ASGI application that passes /v1/… on to the replica with the fewest requests at hand.

    | path | answers |
    |---|---|
    | /health | 200 as long as this process lives |
    | /ready | 200 if at least one replica is healthy, else 503 |
    | /metrics | counters for Prometheus |
    | /v1/… | 401 without the key, 413 for a body over ``body_limit`` bytes, 429 beyond ``most`` requests at once, 503 |

    Args:
        replicas: addresses of servers, without /v1.
        key: what clients send as a bearer token; empty lets everybody in.
    """
    import httpx
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    registry = CollectorRegistry()
    answered = Counter("gateway_requests", "Requests by status code.", ["code"], registry=registry)
    running = Gauge("gateway_requests_running", "Requests that a replica works on.", ["replica"], registry=registry)
    first = Histogram("gateway_first_byte_seconds", "Time until a replica begins to answer.", registry=registry)
    at_hand = dict.fromkeys(replicas, 0)
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(600, connect=2), trust_env=False, limits=httpx.Limits(keepalive_expiry=2)
    )

    def refuse(code: int, why: str, **more: str) -> Response:
        answered.labels(code).inc()
        return JSONResponse({"error": {"message": why, "code": code}}, code, more)

    async def healthy(url: str) -> bool:
        try:
            return bool((await client.get(f"{url}/health", timeout=2)).status_code == 200)
        except httpx.HTTPError:
            return False

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        up = [url for url in replicas if await healthy(url)]
        return JSONResponse({"ready": len(up), "of": len(replicas)}, 200 if up else 503)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(generate_latest(registry))

    async def forward(request: Request) -> Response:
        given = request.headers.get("authorization", "").encode()
        if key and not hmac.compare_digest(given, f"Bearer {key}".encode()):
            return refuse(401, "the key is missing or wrong")
        if sum(at_hand.values()) >= most:
            return refuse(429, f"{most} requests are at work; try again in a moment", **{"Retry-After": "1"})
        chosen = min(at_hand, key=lambda url: at_hand[url])
        at_hand[chosen] += 1  # before the first await: two requests must not both take the last place
        try:
            body, size = b"", 0
            async for part in request.stream():
                size += len(part)
                if size <= body_limit:
                    body += part
                elif size > 16 * body_limit:
                    break  # what is a little too large is read to its end: a client that still sends hears no answer
            if size > body_limit:
                at_hand[chosen] -= 1
                return refuse(413, f"more than {body_limit:,} bytes")
        except BaseException:
            at_hand[chosen] -= 1
            raise
        for url in sorted(at_hand, key=lambda url: (url != chosen, at_hand[url])):
            at_hand[chosen] -= 1
            at_hand[url] += 1
            chosen, began = url, time.perf_counter()
            kept = {k: v for k, v in request.headers.items() if k in ("content-type", "accept")}
            try:
                reply = await client.send(
                    client.build_request(request.method, url + request.url.path, content=body, headers=kept),
                    stream=True,
                )
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue  # nothing was sent: another replica may have it
            except BaseException:
                at_hand[chosen] -= 1
                raise
            first.observe(time.perf_counter() - began)
            running.labels(url).set(at_hand[url])

            async def passed_on(reply: Any = reply, url: str = url) -> AsyncIterator[bytes]:
                try:
                    async for part in reply.aiter_raw():
                        yield part
                finally:
                    # Also when the client goes away: closing tells the replica to stop writing.
                    await reply.aclose()
                    at_hand[url] -= 1
                    running.labels(url).set(at_hand[url])
                    answered.labels(reply.status_code).inc()

            kind = {"content-type": reply.headers.get("content-type", "application/json")}
            return StreamingResponse(passed_on(), reply.status_code, kind)
        at_hand[chosen] -= 1
        return refuse(503, "no replica answers")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    pages = (("/health", health), ("/ready", ready), ("/metrics", metrics))
    routes = [Route(path, page) for path, page in pages]
    return Starlette(routes=[*routes, Route("/v1/{rest:path}", forward, methods=["GET", "POST"])], lifespan=lifespan)


def run_gateway(words: Sequence[str]) -> None:
    """Run the child process of :func:`start_gateway`.

    Args:
        words: the port, the most requests at once, and the replicas' addresses.
    """
    import uvicorn

    port, most, *replicas = words
    app = gateway_app(replicas, key=os.environ.get(KEY, ""), most=int(most))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


@contextmanager
def start_gateway(
    replicas: Sequence[str], *, key: str, most: int = 32, port: int | None = None, seconds: float = 120.0
) -> Iterator[str]:
    """Run :func:`gateway_app` as a child process on this machine's loopback; gives its address.

    Raises:
        ServingError: no replica named, or it did not start.
    """
    if not replicas:
        raise ServingError("no replica named: give the address of at least one server")
    port = free_port(port=port)
    url = f"http://127.0.0.1:{port}"
    # By the name of this function's module, which another project may have renamed (`rocm-guide copy`).
    code = f"import sys, {run_gateway.__module__} as m; m.{run_gateway.__name__}(sys.argv[1:])"
    command = [sys.executable, "-c", code, str(port), str(most), *replicas]

    with Service(command, environment={KEY: key}) as service:
        try:
            service.wait_until(lambda: answers_health(url), seconds)
        except ChildError as e:
            raise ServingError(f"the gateway {str(e).split(' ', 1)[1]}") from e
        yield url
