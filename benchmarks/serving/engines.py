# SPDX-License-Identifier: MIT
"""Measure what 1 to 64 users get of one model, in bf16, fp8 and int4: vLLM and `transformers serve` under one client.

    python -m benchmarks.serving.engines                    # random:llama-3-8b; a GPU, vLLM on the PATH; 8 minutes
    python -m benchmarks.serving.engines --only "vLLM, bf16" --shape qwen3-0.6b

Random weights in the true shape: the arithmetic and the bytes are those of the model, the text means nothing, so every
answer is written on to its full length. fp8 is made by vLLM while it loads (`--quantization fp8`, keys and values in
8 bits too); int4 is the nearest of 16 values in groups of 128, in GPTQ's files: which codes were chosen changes the
text and not the pace. `transformers serve` has no kernel for fp8 weights without the hub, and reads GPTQ with the
kernels of GPTQModel only: it is measured in bf16.

The tokens that vLLM finds room for are compared with rocm_guide.serve.sizing; what `vllm bench serve` found for the
first vLLM row is of 2026-11-25. After each level results/serving_engines.json is
written, stamped with hardware and versions; rows that it holds from the same hardware, versions and plan stay. No
figure of it is an MI300X figure unless the file says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.serving.users import installed, make_checkpoint
from benchmarks.timing import RESULTS
from rocm_guide.common.device import accelerator
from rocm_guide.serve.load_test import Limits, Plan, level_table, measure_server, write_results
from rocm_guide.serve.server import Server, start_server
from rocm_guide.serve.sizing import size_server

BEGAN = time.perf_counter()
Keep = Callable[[dict[str, Any]], None]
#: name of the row -> (engine, which checkpoint, options)
ROWS = {
    "vLLM, bf16": ("vllm", "bf16", ()),
    "vLLM, fp8 weights and cache": ("vllm", "bf16", ("--quantization", "fp8", "--kv-cache-dtype", "fp8")),
    "vLLM, int4 weights (GPTQ)": ("vllm", "int4", ()),
    "vLLM, bf16, no graphs": ("vllm", "bf16", ("--enforce-eager",)),
    "transformers serve, bf16": ("transformers", "bf16", ("--cb-max-memory-percent", "0.6", "--log-level", "info")),
}
SHARE = 0.9
#: Tokens of a text at most: the cache is sized for more than one of them on any card.
LONGEST = 8192


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:5.0f} s] {text}", flush=True)


def four_bits(source: Path, folder: Path, group: int = 128) -> None:
    """Write the checkpoint with its decoder's linear layers in GPTQ's files:
    8 codes of 4 bits in a word, scales, zeros.
    """
    import shutil

    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    where = "cuda" if torch.cuda.is_available() else "cpu"
    shifts = torch.arange(0, 32, 4, device=where, dtype=torch.int64)
    tensors: dict[str, Any] = {}
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, framework="pt", device=where) as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                w = file.get_tensor(name)
                if w.ndim != 2 or not name.endswith("proj.weight"):
                    tensors[name] = (w.half() if w.dtype == torch.bfloat16 else w).cpu()
                    continue
                rows, columns = w.shape
                parts = w.float().reshape(rows, columns // group, group)
                scale = (parts.abs().amax(-1, keepdim=True) / 7).clamp(min=1e-8)
                codes = ((parts / scale).round() + 8).clamp(0, 15).reshape(rows, columns).T.long()
                words = (codes.reshape(columns // 8, 8, rows) << shifts[None, :, None]).sum(1)
                words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
                key = name.removesuffix(".weight")
                tensors[f"{key}.qweight"] = words.contiguous().cpu()
                tensors[f"{key}.scales"] = scale[..., 0].T.half().contiguous().cpu()
                # Zero point 8 everywhere; GPTQ's first format stores one less.
                tensors[f"{key}.qzeros"] = torch.full((columns // group, rows // 8), 0x77777777, dtype=torch.int32)
                tensors[f"{key}.g_idx"] = torch.arange(columns, dtype=torch.int32) // group
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    made = {"bits": 4, "group_size": group, "desc_act": False, "sym": True, "quant_method": "gptq"}
    config = json.loads((source / "config.json").read_text())
    config |= {"quantization_config": {**made, "checkpoint_format": "gptq", "lm_head": False}, "dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)


def levels(server: Server, users: list[int], given: argparse.Namespace, keep: Keep) -> None:
    """Collect the results of all levels in one table, kept after each of them;
    a level that fails is named and left out.
    """
    results: dict[str, Any] = {}
    for n in users:
        plan = Plan(given.prompt, given.tokens, requests=max(8, 4 * n), warm_up=2, seed=n)
        try:
            found = measure_server(server.url, plan, users=[n], limits=Limits(1.0, 0.1), model=server.model)
        except Exception:  # noqa: BLE001 - the other levels are wanted all the same
            say(f"{n} users: failed\n{traceback.format_exc(limit=3)}")
            continue
        say(level_table(found["levels"]).splitlines()[-1].strip())
        results = found if not results else {**results, "levels": [*results["levels"], *found["levels"]]}
        keep(results)


def cache_sizes(server: Server, config: dict[str, Any], options: tuple[str, ...], longest: int) -> dict[str, Any]:
    """Return the tokens that vLLM says its cache holds, and what size_server computes from the configuration alone."""
    if "--quantization" in options:  # made while loading: the checkpoint's own configuration knows nothing of it
        config = config | {"quantization_config": {"quant_method": options[options.index("--quantization") + 1]}}
    log = server.service.last_lines(4000)
    told = re.search(r"GPU KV cache size: ([\d,]+) tokens", log)
    free = re.search(r"Available KV cache memory: ([\d.]+) GiB", log)
    kv = 1 if "--kv-cache-dtype" in options else 2
    computed = size_server(config, length=longest, gpu="H200", utilization=SHARE, kv_bytes=kv)
    return {
        "told_tokens": int(told[1].replace(",", "")) if told else None,
        "told_gib": float(free[1]) if free else None,
        "computed_tokens": computed.blocks * computed.block,
        "computed_for": f"{computed.gpu}, {computed.weights / 1e9:.2f} GB of weights, {kv} bytes a number in the cache",
        "lines": [line.strip()[-200:] for line in log.splitlines() if "KV cache" in line][:6],
    }


def kept(path: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Return rows of an earlier run of the same question on the same kind of machine with the same versions."""
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == results[key] for key in ("format", "shape", "hardware", "versions", "plan"))
    return dict(before["rows"]) if same else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--users", default="1,4,16,64")
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--only", default="", help="this row, or rows whose name contains this")
    parser.add_argument("--deadline", type=float, default=480, help="seconds; no further row is begun after them")
    parser.add_argument("--out", type=Path, default=RESULTS / "serving_engines.json")
    given = parser.parse_args()
    users = [int(n) for n in given.users.split(",")]
    if importlib.util.find_spec("flashinfer") is None:
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # vLLM imports it otherwise, there or not
    results: dict[str, Any] = {
        "format": "serving engines 1",
        "shape": given.shape,
        "hardware": accelerator().label(),
        "versions": {n: installed(n) for n in ("torch", "transformers", "vllm", "fastapi", "uvicorn")},
        "plan": {"prompt_tokens": given.prompt, "tokens": given.tokens, "requests": "4 for each user, 8 at least"},
        "rows": {},
    }

    def keep(name: str, row: dict[str, Any], found: dict[str, Any] | None = None) -> None:
        """Write the row as it is by now: a machine may be taken away at any time."""
        if found is not None:
            row["own"] = found
        results["rows"][name] = row
        write_results(given.out, results)

    results["rows"] = kept(given.out, results)
    chosen = [given.only] if given.only in ROWS else [name for name in ROWS if given.only in name]
    with tempfile.TemporaryDirectory() as place:
        folders = {"bf16": Path(place) / given.shape, "int4": Path(place) / f"{given.shape}-int4"}
        results["parameters"] = make_checkpoint(given.shape, folders["bf16"])
        say(f"{given.shape}: {results['parameters']:,} parameters saved")
        four_bits(folders["bf16"], folders["int4"])
        say("int4 written")
        for name in chosen:
            engine, which, options = ROWS[name]
            config = json.loads((folders[which] / "config.json").read_text())
            # A server refuses a text that is longer than the positions of its model.
            longest = min(LONGEST, config["max_position_embeddings"])
            if time.perf_counter() - BEGAN > given.deadline:
                results["rows"][name] = {"left_out": "the time was up"}
                continue
            if engine == "vllm":
                own = ("--gpu-memory-utilization", str(SHARE), "--max-model-len", str(longest))
                options = (*own, "--no-enable-prefix-caching", *options)
            row: dict[str, Any] = {"engine": engine, "options": list(options)}
            try:
                with start_server(folders[which], engine=engine, options=options, seconds=300) as server:
                    row["start_s"] = server.seconds
                    say(f"{name}: ready after {server.seconds:.0f} s")
                    levels(server, users, given, partial(keep, name, row))
                    if engine == "vllm":
                        row["room"] = cache_sizes(server, config, tuple(options), longest)
                        say(str(row["room"]))
            except Exception as error:  # noqa: BLE001 - a row that fails is a result; the others are wanted
                row["error"] = str(error)[-1500:]
                say(f"{name}: {error}")
            keep(name, row)
    say(json.dumps(results["versions"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
