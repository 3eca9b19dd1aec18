# SPDX-License-Identifier: MIT
"""Measure what 1 to 64 users of a large model get: `transformers serve` (or vLLM, where installed) under our client.

    python -m benchmarks.serving.users                      # random:llama-3-8b in bf16; made for under 3 minutes
    python -m benchmarks.serving.users --shape qwen3-0.6b --users 1,8

Random weights in the true shape: the arithmetic and the bytes are those of the model, the text means nothing, so every
answer is written on to its full length. Writes results/serving_users.json and .png, stamped with hardware and versions.
Also compares the server's room for keys and values with what rocm_guide.serve.sizing predicts. Needs fastapi, uvicorn
and openai beside transformers. No figure of this file is an MI300X figure unless the file says that it ran on one.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.timing import RESULTS
from rocm_guide.common.base import whole_file
from rocm_guide.common.device import accelerator
from rocm_guide.models.load import load_model
from rocm_guide.serve.load_test import Limits, Plan, draw_levels, level_table, measure_server, write_results
from rocm_guide.serve.server import start_server

BEGAN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:5.0f} s] {text}", flush=True)


def make_checkpoint(shape: str, folder: Path) -> int:
    """Save random weights of a shape in bf16 with the tiny tokenizer; gives the number of parameters."""
    import torch

    model, tokenizer = load_model(f"random:{shape}", dtype=torch.bfloat16)
    # The tiny tokenizer knows 1,024 words; random weights choose others, which decode to nothing and would make no
    # piece of a stream. So only known words may win, and none of the special tokens.
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        head[: len(tokenizer)] *= 50
        head[:3] = 0
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    count = int(sum(p.numel() for p in model.parameters()))
    del model, head
    torch.cuda.empty_cache()
    return count


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--users", default="1,4,16,64")
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--memory", type=float, default=0.6, help="share of the free memory for the KV cache")
    parser.add_argument("--deadline", type=float, default=160, help="seconds; no further level is begun after them")
    parser.add_argument("--out", type=Path, default=RESULTS / "serving_users.json")
    given = parser.parse_args()
    machine = accelerator()
    missing = [n for n in ("fastapi", "uvicorn", "openai") if installed(n) == "not installed"]
    if missing and shutil.which("vllm") is None:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    users = [int(n) for n in given.users.split(",")]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / given.shape
        parameters = make_checkpoint(given.shape, folder)
        say(f"{given.shape}: {parameters:,} parameters saved")
        options = () if shutil.which("vllm") else ("--cb-max-memory-percent", str(given.memory), "--log-level", "info")
        with start_server(folder, options=options) as server:
            say(f"{server.engine} ready after {server.seconds:.1f} s")
            results = None
            for n in users:
                if results is not None and time.perf_counter() - BEGAN > given.deadline:
                    say(f"{n} users: left out, the time is up")
                    continue
                plan = Plan(given.prompt, given.tokens, requests=max(6, 2 * n), warm_up=2, seed=n)
                found = measure_server(server.url, plan, users=[n], limits=Limits(1.0, 0.1), model=server.model)
                say(level_table(found["levels"]).splitlines()[-1].strip())
                if results is None:
                    results = found
                else:
                    results["levels"] += found["levels"]
            assert results is not None
            log = server.service.last_lines(400)
    blocks = re.findall(r"[^\n]*(?:num_sectors|# GPU blocks|KV cache size)[^\n]*", log)
    results |= {
        "shape": given.shape,
        "parameters": parameters,
        "dtype": "bfloat16",
        "engine": server.engine,
        "hardware": machine.label(),
        "versions": {n: installed(n) for n in ("torch", "transformers", "vllm", "fastapi", "uvicorn")},
        "server_says_of_its_cache": [line.strip()[:300] for line in blocks[:4]],
    }
    write_results(given.out, results)
    figure = draw_levels(results["levels"], title=f"{given.shape}, random weights", hardware=machine.label())
    with whole_file(given.out.with_suffix(".png")) as part:
        figure.savefig(part, dpi=150)
    print(level_table(results["levels"]))
    print(json.dumps(results["versions"]))
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
