# SPDX-License-Identifier: MIT
"""Do the figures of `rocm-guide bench` agree with those of another client on the same load? They should within 5 %.

    python -m benchmarks.serving.agreement                    # guidellm on the PATH; a server whose pace is known
    python -m benchmarks.serving.agreement --model tiny       # the same against `transformers serve`

The clients take turns, so that a busy moment of the machine meets both: our own, and a plain loop around the openai
package (written here, and sharing no line with ours). Both send the same prompts. The known server waits `--first`
seconds before the first word of an answer and `--between` before each other one, so that the right result is known as
well. Writes results/serving_agreement.json, whose rows of guidellm and ``vllm bench serve`` are of 2026-11-25.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.timing import RESULTS
from rocm_guide.common.device import accelerator
from rocm_guide.models.tiny import tiny_folder
from rocm_guide.serve.client import look_at
from rocm_guide.serve.load_test import Plan, find_dialect, measure_server, prompts_of, write_results
from rocm_guide.serve.server import start_server
from tests.serve.fake_server import fake_server

MEASURES = ("time_to_first_token_s", "time_between_tokens_s", "end_to_end_s")


def plain_loop(url: str, model: str, plan: Plan, users: int) -> dict[str, float]:
    """Return the medians over the requests, and tokens per second, by a plain loop around the openai package."""
    import openai

    words, extra = find_dialect(look_at(url, model), plan)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=plan.timeout)

    def one(prompt: str) -> tuple[float, float, float, int]:
        began, times, tokens = time.perf_counter(), [], 0
        stream = client.completions.create(
            model=model, prompt=prompt, max_tokens=plan.tokens, temperature=0, stream=True, extra_body=extra
        )
        for event in stream:
            if event.choices and event.choices[0].text:
                times.append(time.perf_counter())
            if event.usage:
                tokens = event.usage.completion_tokens
        tokens = tokens or len(times)
        return times[0] - began, (times[-1] - times[0]) / max(1, tokens - 1), time.perf_counter() - began, tokens

    with ThreadPoolExecutor(users) as pool:
        began = time.perf_counter()
        found = list(pool.map(one, prompts_of(plan, users, words)))
        took = time.perf_counter() - began
    columns = zip(*found, strict=True)
    medians = dict(zip(MEASURES, (statistics.median(next(columns)) for _ in MEASURES), strict=True))
    return {**medians, "output_tokens_per_s": sum(row[3] for row in found) / took}


def figures(results: dict[str, Any]) -> dict[str, float]:
    """Return the same figures of one level of :func:`measure_server`."""
    (level,) = results["levels"]
    if level["failed"] or not level["fixed_length"]:
        sys.exit(f"{results['client']}: {level['failed']} failed, fixed length: {level['fixed_length']}")
    return {**{m: level[m]["p50"]["value"] for m in MEASURES}, "output_tokens_per_s": level["output_tokens_per_s"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", default="1,4")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3, help="each client measures so often; medians are compared")
    parser.add_argument("--first", type=float, default=0.4, help="seconds before the first word (known server)")
    parser.add_argument("--between", type=float, default=0.1, help="seconds between two words (known server)")
    parser.add_argument("--model", default="", help="tiny: measure `transformers serve` instead of the known server")
    parser.add_argument("--out", type=Path, default=RESULTS / "serving_agreement.json")
    given = parser.parse_args()
    users = [int(n) for n in given.users.split(",")]
    plan = Plan(32, given.tokens, given.requests, warm_up=2)
    os.environ["HF_HUB_OFFLINE"] = "1"
    names: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if given.model:
            server = stack.enter_context(start_server(tiny_folder(), engine="transformers"))
            url, model, kind = server.url, server.model, "transformers serve, tiny model"
        else:
            known = stack.enter_context(fake_server(first=given.first, between=given.between))
            url, model = known.url, "fake"
            kind = f"known pace: first word after {given.first} s, then one every {given.between} s"
        rows = []
        for n in users:
            turns: dict[str, list[dict[str, float]]] = {}
            for turn, client in itertools.product(range(given.turns), ("own", "openai")):
                if client == "openai":
                    turns.setdefault(client, []).append(plain_loop(url, model, plan, n))
                else:
                    results = measure_server(url, plan, users=[n], model=model)
                    turns.setdefault(client, []).append(figures(results))
                    names[client] = results["client"]
                print(f"{n} users, turn {turn + 1}: {client}", flush=True)
            medians = {c: {k: statistics.median(t[k] for t in got) for k in got[0]} for c, got in turns.items()}
            apart = {
                c: {k: medians["own"][k] / value - 1 for k, value in found.items()}
                for c, found in medians.items()
                if c != "own"
            }
            rows.append({"users": n, "medians": medians, "own_against_it": apart})
            for c, found in apart.items():
                print(
                    f"{n} users, own against {c}: " + ", ".join(f"{k} {v:+.1%}" for k, v in found.items()), flush=True
                )
    import openai

    names["openai"] = f"a loop around openai {openai.__version__}"
    results = {
        "server": kind,
        "clients": names,
        "plan": {"requests": plan.requests, "tokens": plan.tokens, "prompt_tokens": plan.prompt_tokens},
        "turns": given.turns,
        "machine": f"{accelerator().label()}, load {os.getloadavg()[0]:.1f}",
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "levels": rows,
    }
    before = json.loads(given.out.read_text()) if given.out.exists() else {}
    key = "transformers serve" if given.model else "known pace"
    write_results(given.out, {**before, key: results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
