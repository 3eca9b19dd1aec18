# SPDX-License-Identifier: MIT
"""Put load on a server: users who wait for their answer (closed loop) or arrivals that do not (open loop).

Notebook 18. A closed loop measures what N patient users get; it slows down with the server and so hides a queue. Open
arrivals come at their rate whether the server keeps up or not, as the public does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_guide.serve.client import Answer, Target, ask, in_own_loop, new_client
from rocm_guide.serve.served_checkpoints import ServingError

if TYPE_CHECKING:
    import httpx

__all__ = ["Plan", "Run", "find_dialect", "prompts_of", "run_load"]

#: Common words; prompts of them differ from the first word on, so that no server can reuse another prompt's prefix.
_TEXT = (
    "time people way water word line place year work part number sound great name sentence man help big high land "
    "home hand picture air animal house point page letter mother answer study learn plant food sun state thought "
    "city tree farm story night life light paper group music mark book river car mile idea fish mountain base "
    "hear horse"
)
_WORDS = tuple(_TEXT.split(" "))
#: How servers are told to write on behind the end of the text: vLLM's own field, that of transformers serve, none.
_DIALECTS = ("ignore_eos", "generation_config", "")


@dataclass(frozen=True)
class Plan:
    """The requests to send.

    Attributes:
        prompt_tokens: length of a prompt, reached within a word or so.
        tokens: length of an answer; reached exactly where the server can be told to write on.
        requests: measured requests at each level.
        warm_up: requests before the first measured one, not counted.
        seed: of prompts and arrivals.
        timeout: seconds without any byte after which a request has failed.
        deadline: seconds after which a request has failed that is not answered whole.
        run_deadline: seconds after the first request in which all others that are not answered have failed.
    """

    prompt_tokens: int = 64
    tokens: int = 64
    requests: int = 32
    warm_up: int = 2
    seed: int = 0
    timeout: float = 120.0
    deadline: float = 600.0
    run_deadline: float = 3600.0


@dataclass(frozen=True)
class Run:
    """One level of load and its answers.

    Attributes:
        users: of a closed loop; 0 in an open one.
        rate: mean arrivals per second of an open loop; 0 in a closed one.
        seconds: from the first request to the last answer.
        fixed_length: whether every answer had the length that was asked for.
    """

    users: int
    rate: float
    seconds: float
    answers: tuple[Answer, ...]
    fixed_length: bool


def prompt_of(words: int, generator: random.Random) -> str:
    """Return a prompt of random words.

    >>> prompt_of(3, random.Random(0))
    'book light animal'
    """
    return " ".join(generator.choices(_WORDS, k=words))


def run_load(
    target: Target,
    plan: Plan,
    *,
    users: Sequence[int] = (),
    rates: Sequence[float] = (),
    progress: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """Measure each number of users, then each rate of arrivals; both in the order given.

    Works inside a notebook, whose own event loop goes on.

    Raises:
        ServingError: the warm-up fails, so that nothing would be measured.
    """
    return list(in_own_loop(_run(target, plan, users, rates, progress)))


def prompts_of(plan: Plan, level: float, words: int) -> list[str]:
    """Return the prompts of one level, the same for the same seed; no two levels share one, nor begin alike.

    >>> len(prompts_of(Plan(requests=3), 4, 10))
    3
    """
    generator = random.Random(f"{plan.seed} {level}")
    return [prompt_of(words, generator) for _ in range(plan.requests)]


def find_dialect(target: Target, plan: Plan) -> tuple[int, dict[str, Any]]:
    """Warm the server up; gives words for a prompt of the wanted length, and fields that make it write on to the limit.

    Raises:
        ServingError: the first request fails.
    """

    async def warmed() -> tuple[int, dict[str, Any]]:
        async with new_client(target.url, plan.timeout) as client:
            return await _warm_up(client, target, plan, time.perf_counter() + plan.run_deadline)

    found: tuple[int, dict[str, Any]] = in_own_loop(warmed())
    return found


async def _run(
    target: Target, plan: Plan, users: Sequence[int], rates: Sequence[float], progress: Callable[[Run], None]
) -> list[Run]:
    ends, runs = time.perf_counter() + plan.run_deadline, []
    async with new_client(target.url, plan.timeout) as client:
        words, extra = await _warm_up(client, target, plan, ends)
        for level in [*users, *map(float, rates)]:
            prompts = prompts_of(plan, level, words)
            began = time.perf_counter()

            def one(prompt: str, began: float = began) -> Coroutine[Any, Any, Answer]:
                return ask(client, target, prompt, plan.tokens, extra, began, deadline=plan.deadline, ends=ends)

            closed = not isinstance(level, float)
            answers = await (
                _closed(one, prompts, int(level)) if closed else _open(one, prompts, level, plan.seed, ends)
            )
            good = [a for a in answers if not a.error]
            seconds = max((a.ended for a in good), default=0.0) - min((a.sent for a in good), default=0.0)
            fixed = bool(good) and all(a.tokens == plan.tokens for a in good)
            run = Run(int(level) if closed else 0, 0.0 if closed else level, seconds, tuple(answers), fixed)
            progress(run)
            runs.append(run)
    return runs


async def _warm_up(client: httpx.AsyncClient, target: Target, plan: Plan, ends: float) -> tuple[int, dict[str, Any]]:
    """Return how many words make a prompt of the wanted length,
    and the fields with which this server writes on to the limit.
    """
    import json

    probe, generator, began = 16, random.Random(f"{plan.seed} warm-up"), time.perf_counter()
    extra: dict[str, Any] = {}
    until = {"deadline": plan.deadline, "ends": ends}
    answer = Answer(0.0, error="not asked")
    for dialect in _DIALECTS:
        if dialect == "ignore_eos":
            extra = {"ignore_eos": True, "stream_options": {"include_usage": True}}
        elif dialect == "generation_config":
            settings = {"eos_token_id": -1, "max_new_tokens": plan.tokens, "do_sample": False}
            extra = {"generation_config": json.dumps(settings)}
        else:
            extra = {"stream_options": {"include_usage": True}}
        answer = await ask(client, target, prompt_of(probe, generator), plan.tokens, extra, began, **until)
        if not answer.refused:
            break
    if answer.error:
        raise ServingError(f"{target.url}: the first request fails: {answer.error}")
    # A word is a token or more; with a count below that the prompts would become as long as a server likes.
    each = max(1.0, answer.prompt_tokens / probe) if answer.prompt_tokens else 1.3
    words = max(1, round(plan.prompt_tokens / each))
    for _ in range(max(0, plan.warm_up - 1)):
        again = await ask(client, target, prompt_of(words, generator), plan.tokens, extra, began, **until)
        if again.error:
            raise ServingError(f"{target.url}: a prompt of {plan.prompt_tokens} tokens fails: {again.error}")
    return words, extra


async def _closed(one: Callable[[str], Coroutine[Any, Any, Answer]], prompts: list[str], users: int) -> list[Answer]:
    """Let each user send, wait for the whole answer, and send again, until all prompts are gone."""
    left = list(reversed(prompts))
    answers: list[Answer] = []

    async def user() -> None:
        while left:
            answers.append(await one(left.pop()))

    await asyncio.gather(*(user() for _ in range(users)))
    return answers


async def _open(
    one: Callable[[str], Coroutine[Any, Any, Answer]], prompts: list[str], rate: float, seed: int, ends: float
) -> list[Answer]:
    """Send at the arrivals of a Poisson process: the time to the next one is exponential, whatever the server does."""
    generator = random.Random(f"{seed} arrivals {rate}")
    began, due, tasks = time.perf_counter(), 0.0, []
    for prompt in prompts:
        await asyncio.sleep(max(0.0, min(began + due, ends) - time.perf_counter()))
        tasks.append(asyncio.create_task(one(prompt)))
        due += generator.expovariate(rate)
    return list(await asyncio.gather(*tasks))
