# SPDX-License-Identifier: MIT
"""Time to first token at Llama-2-7B's shape, random weights: eager attention against SDPA, over length and batch.

    python -m benchmarks.models.prefill_7b --out DIR                       # on a GPU, about a minute
    python -m benchmarks.models.prefill_7b --out DIR --device cpu --dry    # small, to test the script

The two are called in turn, so that a drift of the machine meets both, and each call is timed on the device (CUDA
events; on a CPU by the clock). Every figure is a list of single calls in milliseconds; compute the median from it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.models.compile_decode import build
from rocm_guide.common.host import describe_cpu, host_facts

WAYS = ("eager", "sdpa")


def milliseconds(call: Callable[[], Any], device: str) -> float:
    """Time one call, from its first kernel to its last."""
    import torch

    if not device.startswith("cuda"):
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def first_token(model: Any, ids: Any) -> Any:
    """Prefill as a server does: the whole prompt, a fresh cache, the logits of the last position only."""
    return model(ids, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1)


def measure(model: Any, batch: int, length: int, runs: int, device: str) -> dict[str, Any]:
    """Measure the milliseconds of each way, in turn, and the peak memory above the weights."""
    import torch

    ids = torch.randint(4, model.config.vocab_size, (batch, length), generator=torch.Generator().manual_seed(length))
    ids = ids.to(device)
    row: dict[str, Any] = {"batch": batch, "length": length, "ms": {w: [] for w in WAYS}, "extra_gib": {}}
    gpu = device.startswith("cuda")
    for turn in range(runs + 1):  # the first turn warms up
        for way in WAYS:
            model.set_attn_implementation(way)
            if gpu:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            ms = milliseconds(lambda: first_token(model, ids), device)
            if turn:
                row["ms"][way].append(round(ms, 3))
            if gpu:
                row["extra_gib"][way] = round((torch.cuda.max_memory_allocated() - before) / 2**30, 3)
    row["median"] = {way: statistics.median(ms) for way, ms in row["ms"].items()}
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()

    import torch
    import transformers

    args.out.mkdir(parents=True, exist_ok=True)
    gpu = args.device.startswith("cuda")
    dtype = torch.float32 if args.dry else torch.bfloat16
    lengths = (16, 32) if args.dry else (512, 1024, 2048, 4096, 8192)
    cases = [(1, n) for n in lengths] + [(b, lengths[1]) for b in (2, 4, 8)]
    report: dict[str, Any] = {
        "what": "benchmarks/models/prefill_7b.py",
        "hardware": torch.cuda.get_device_name() if gpu else describe_cpu(),
        "host": host_facts(),
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "model": "the shape of Llama-2-7B, random weights",
        "dtype": str(dtype),
        "dry": args.dry,
        "rows": [],
    }
    model = build(2 if args.dry else 32, args.dry, args.device, dtype)
    report["parameters"] = sum(p.numel() for p in model.parameters())
    with torch.inference_mode():
        for batch, length in cases:
            report["rows"].append(measure(model, batch, length, args.runs, args.device))
            print(json.dumps(report["rows"][-1]), flush=True)
            (args.out / "prefill_7b.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
