# SPDX-License-Identifier: MIT
"""Well-known clients that `rocm-guide bench` calls where they are installed: ``vllm bench serve`` and guidellm.

Their results are read into the form of :mod:`rocm_guide.serve.load_results`. Read off vLLM 0.32 and guidellm 0.8.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_guide.common.base import read_regular, shown
from rocm_guide.serve.client import KEY, RUN_OVER, Answer, Target, count_in
from rocm_guide.serve.load_results import MEASURES, PERCENTILES, Limits, summarize_run
from rocm_guide.serve.load_test import Plan, Run, find_dialect, prompts_of
from rocm_guide.serve.served_checkpoints import ServingError

__all__ = [
    "CLIENTS",
    "guidellm_levels",
    "guidellm_scenario",
    "pick_client",
    "read_guidellm",
    "read_vllm",
    "vllm_levels",
]

CLIENTS = ("auto", "vllm", "guidellm", "own")
#: vLLM's name of each of our measures.
_VLLM = {"time_to_first_token_s": "ttft", "time_between_tokens_s": "tpot", "end_to_end_s": "e2el"}
_LARGEST_RESULT = 512_000_000  # bytes; guidellm writes some thousand for each request


def pick_client(client: str, target: Target) -> str:
    """Return the client that measures ``target``: the one asked for, or the best-known that is installed and fits.

    Raises:
        ServingError: unknown, or not installed.
    """
    if client not in CLIENTS:
        raise ServingError(f"client={client!r}: choose from {', '.join(CLIENTS)}")
    there = {name: shutil.which(name) is not None for name in ("vllm", "guidellm")}
    if client == "auto":
        if there["vllm"] and target.kind == "vllm":
            return "vllm"
        return "guidellm" if there["guidellm"] else "own"
    if not there.get(client, True):
        raise ServingError(f"client {client}: the command {client} is not installed here; leave --client out")
    return client


def _run(name: str, command: Sequence[str], result: Path, ends: float, environment: Mapping[str, str]) -> bytes:
    """Run a client to its end; gives the file that it was told to write.

    Args:
        ends: when to end it with all its processes, on ``time.perf_counter``.
        environment: variables beside this process's own; of these the keys are taken out, for vLLM's client would send
            the one of OpenAI to any server.

    Raises:
        ServingError: it fails, with the last line that it printed, or takes too long.
    """
    own = {k: v for k, v in os.environ.items() if k not in ("OPENAI_API_KEY", KEY)}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**own, **environment},
            start_new_session=True,
        )
        try:
            code = process.wait(max(0.0, ends - time.perf_counter()))
        except subprocess.TimeoutExpired as e:
            raise ServingError(f"{name}: {RUN_OVER}") from e
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code or not result.exists():
            said.seek(max(0, said.seek(0, os.SEEK_END) - 65536))
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            last = shown(lines[-1] if lines else f"exit code {code}")
            raise ServingError(f"{name} failed: {last}; --client own measures without it")
    try:
        return read_regular(result, _LARGEST_RESULT)
    except OSError as e:
        raise ServingError(f"{name}: its result cannot be read ({e.strerror or e})") from e


def vllm_bench_command(target: Target, plan: Plan, limits: Limits, level: float, folder: str) -> list[str]:
    """Return ``vllm bench serve`` for one level. Source: vLLM documentation, "vllm bench serve".

    >>> " ".join(vllm_bench_command(Target("http://h:1", "m"), Plan(), Limits(), 4, "out")[:6])
    'vllm bench serve --backend openai --base-url'
    """
    closed = not isinstance(level, float)
    load = ["--max-concurrency", str(level), "--request-rate", "inf"] if closed else ["--request-rate", f"{level:g}"]
    # Its random prompts need the tokenizer, and the name under which a model is served need not lead to one.
    known = ["--tokenizer", target.root] if target.root not in ("", target.model) else []
    return [
        *("vllm", "bench", "serve", "--backend", "openai", "--base-url", target.url, "--model", target.model, *known),
        *("--dataset-name", "random", "--random-input-len", str(plan.prompt_tokens)),
        *("--random-output-len", str(plan.tokens), "--ignore-eos", "--num-prompts", str(plan.requests)),
        *("--num-warmups", str(plan.warm_up), "--seed", str(plan.seed), *load),
        *("--percentile-metrics", "ttft,tpot,e2el", "--metric-percentiles", ",".join(map(str, PERCENTILES))),
        *("--goodput", f"ttft:{limits.first * 1e3:g}", f"tpot:{limits.between * 1e3:g}"),
        *("--save-result", "--result-dir", folder, "--result-filename", "result.json"),
    ]


def vllm_levels(
    target: Target, plan: Plan, limits: Limits, levels: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name of the client, figures) of each level, measured by ``vllm bench serve``.

    Args:
        levels: an int is a number of users, a float a rate of arrivals.

    Raises:
        ServingError: it fails, or its result cannot be read.
    """
    ends = time.perf_counter() + plan.run_deadline
    key = {"OPENAI_API_KEY": target.key} if target.key else {}
    for level in levels:
        with tempfile.TemporaryDirectory() as folder:
            command = vllm_bench_command(target, plan, limits, level, folder)
            data = _run("vllm bench serve", command, Path(folder, "result.json"), ends, key)
        yield f"vllm bench serve {target.version}".strip(), read_vllm(data, plan, level)


def read_vllm(data: bytes, plan: Plan, level: float) -> dict[str, Any]:
    """Read the file that ``--save-result`` writes; see :func:`from_vllm`.

    Raises:
        ServingError: not valid JSON, or a field is missing.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ServingError("vllm bench serve: its result is not valid JSON") from e
    return from_vllm(found, plan, level)


def from_vllm(found: dict[str, Any], plan: Plan, level: float) -> dict[str, Any]:
    """Return a result of ``vllm bench serve`` in the form of :func:`rocm_guide.serve.load_results.summarize_run`.

    vLLM reports no spread of its percentiles, so each interval is the value alone.

    Raises:
        ServingError: a field is missing.
    """
    try:
        done = count_in(found, "completed", plan.requests)
        written, seconds = count_in(found, "total_output_tokens", done * plan.tokens), float(found["duration"])
        closed = not isinstance(level, float)
        good = float(found.get("request_goodput") or 0.0)
        result: dict[str, Any] = {
            "users": level if closed else None,
            "arrivals_per_s": None if closed else level,
            "requests": plan.requests,
            "failed": plan.requests - done,
            "errors": {},
            "seconds": seconds,
            "prompt_tokens": int(found["total_input_tokens"]),
            "output_tokens": written,
            "fixed_length": written == done * plan.tokens,
            "output_tokens_per_s": float(found["output_throughput"]),
            "requests_per_s": float(found["request_throughput"]),
            "goodput_requests_per_s": good,
            "good_share": good * seconds / plan.requests,
        }
        for name in MEASURES:
            values = {p: float(found[f"p{p}_{_VLLM[name]}_ms"]) / 1e3 for p in PERCENTILES}
            result[name] = {f"p{p}": {"value": v, "low": v, "high": v} for p, v in values.items()}
        figures = [v for v in result.values() if isinstance(v, (int, float))]
        figures += [result[name][f"p{p}"]["value"] for name in MEASURES for p in PERCENTILES]
        if not all(math.isfinite(v) and v >= 0 for v in figures):
            raise ValueError("a figure is negative or not finite")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as e:
        raise ServingError(f"vllm bench serve: its result cannot be read ({type(e).__name__}: {e})") from e
    return result


def guidellm_scenario(
    target: Target, plan: Plan, level: float, prompts: Path, extra: Mapping[str, Any], result: Path
) -> dict[str, Any]:
    """Return the configuration of ``guidellm run`` for one level.

    guidellm gets the prompts that our own client would send, and the fields with which this server writes on to the
    limit. By itself it sends ``ignore_eos`` and ``continuous_usage_stats``, which servers other than vLLM refuse.
    Source: guidellm 0.8, "Scenarios".

    Args:
        prompts: a file with one JSON object a line, {"prompt": text}.
        extra: the fields that :func:`rocm_guide.serve.load_test.find_dialect` has found.

    >>> found = guidellm_scenario(Target("http://h:1", "m"), Plan(), 4, Path("p.jsonl"), {}, Path("r.json"))
    >>> found["spec"]["profile"], found["spec"]["backend"]["extras"]["body"]
    ({'kind': 'concurrent', 'streams': [4]}, {'max_tokens': 64, 'temperature': 0, 'stream_options': None})
    """
    closed = not isinstance(level, float)
    backend: dict[str, Any] = {
        "kind": "openai_http",
        "target": target.url,
        "model": target.model,
        "request_format": "/v1/completions",
        "timeout": plan.timeout,
        "http2": False,
        "validate_backend": False,  # look_at has asked already; not every server has /health
        "extras": {"body": {"max_tokens": plan.tokens, "temperature": 0, "stream_options": None, **extra}},
    }
    if target.key:
        backend["api_key"] = target.key
    spec = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": [level]} if closed else {"kind": "poisson", "rate": [level]},
        "constraints": [{"kind": "max_requests", "count": plan.requests}],
        "data": [{"kind": "json_file", "path": str(prompts)}],
        "seed": {"kind": "static", "value": plan.seed},
        "outputs": [{"kind": "json", "path": str(result)}],
    }
    return {"spec": spec}


def guidellm_levels(
    target: Target, plan: Plan, limits: Limits, levels: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name of the client, figures) of each level, measured by guidellm;
    one run for each, with prompts of its own.

    Args:
        levels: an int is a number of users, a float a rate of arrivals.

    Raises:
        ServingError: the first request fails, guidellm fails, or its result cannot be read.
    """
    ends = time.perf_counter() + plan.run_deadline
    words, extra = find_dialect(target, plan)
    for level in levels:
        # The folder is for this user alone: the scenario may hold a key.
        with tempfile.TemporaryDirectory() as folder:
            prompts, result, scenario = (Path(folder, n) for n in ("prompts.jsonl", "result.json", "scenario.json"))
            lines = [json.dumps({"prompt": text}) for text in prompts_of(plan, level, words)]
            prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
            scenario.write_text(json.dumps(guidellm_scenario(target, plan, level, prompts, extra, result)))
            environment = {"HF_DATASETS_CACHE": folder}
            if (os.cpu_count() or 1) <= 4:  # ten processes of load would take the server's cores
                environment["GUIDELLM__MAX_WORKER_PROCESSES"] = "1"
            command = ["guidellm", "run", "--config", str(scenario), "--disable-console"]
            data = _run("guidellm", command, result, ends, environment)
        yield read_guidellm(data, plan, level, limits)


def read_guidellm(data: bytes, plan: Plan, level: float, limits: Limits) -> tuple[str, dict[str, Any]]:
    """Read (name and version, one level) from the JSON that ``guidellm run`` writes, from its record of each request.

    Raises:
        ServingError: not valid JSON, or a field is missing.
    """
    try:
        found = json.loads(data)
        requests = found["benchmarks"][0]["requests"]
        began = float(found["benchmarks"][0]["start_time"])
        answers = [_guidellm_answer(record, began, plan.tokens) for record in requests["successful"]]
        for record in (*(requests.get("errored") or ()), *(requests.get("incomplete") or ())):
            said = shown((record.get("info") or {}).get("error") or "not finished", 200)
            answers.append(Answer(0.0, error=said))
        good = [a for a in answers if not a.error]
        seconds = max((a.ended for a in good), default=0.0) - min((a.sent for a in good), default=0.0)
        name = f"guidellm {shown(found['metadata']['guidellm_version'], 20)}"
        if not all(math.isfinite(n) and n >= 0 for a in good for n in (a.sent, a.first, a.between, a.whole)):
            raise ValueError("a figure is negative or not finite")
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as e:
        raise ServingError(f"guidellm: its result cannot be read ({type(e).__name__}: {e})") from e
    closed = not isinstance(level, float)
    fixed = bool(good) and all(a.tokens == plan.tokens for a in good)
    run = Run(int(level) if closed else 0, 0.0 if closed else level, seconds, tuple(answers), fixed)
    return name, summarize_run(run, limits)


def _guidellm_answer(record: dict[str, Any], began: float, most: int) -> Answer:
    sent, ended = float(record["request_start_time"]) - began, float(record["request_end_time"]) - began
    tokens = count_in(record, "output_tokens", most)
    prompt = 0 if record["prompt_tokens"] is None else count_in(record, "prompt_tokens", 1 << 30)
    first = record["time_to_first_token_ms"]
    if first is None:  # no piece of text came
        return Answer(sent, [ended], ended, tokens, prompt)
    pieces = [sent + float(first) / 1e3]
    if tokens > 1:
        pieces.append(pieces[0] + float(record["inter_token_latency_ms"]) / 1e3 * (tokens - 1))
    return Answer(sent, pieces, ended, tokens, prompt)
