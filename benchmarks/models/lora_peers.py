# SPDX-License-Identifier: MIT
"""LoRA and QLoRA of a 7B shape in less memory: tokens per second and peak, ours beside plain TRL and PEFT, in one run.

    python -m benchmarks.models.lora_peers        # on a GPU: measure, write results/lora_peers.json
    python -m benchmarks.models.lora_peers --dry  # on a CPU, in miniature: does every way run, are the losses the same?

Rank 16 on all linear layers, 4 rows of 2,048 tokens, random weights made on the device, one process for each row. All
of them recompute activations. "plain" are TRL's SFTTrainer and PEFT as they come, with PEFT's fp32 adapters; "ours" are
Liger's kernels and adapters of the model's type; then with TRL's offloading; then with offloading and the layers'
halves recomputed apart (rocm_guide.training.recompute). The peak that fit computes stands beside the measured one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.timing import RESULTS
from rocm_guide.base import write_text
from rocm_guide.host import host_facts

BATCH, LENGTH, RANK, STEPS, TILES = 4, 2048, 16, 16, 4
WAYS = ("plain", "ours", "ours, offloaded", "ours, offloaded, halves")


def measure(method: str, way: str, model_shape: str, dry: bool) -> dict[str, Any]:
    """One row, in this process."""
    import peft
    import torch
    import transformers
    import trl
    from peft import LoraConfig

    from benchmarks.memory.measure import random_model, small_tokenizer, text_rows
    from rocm_guide.device import accelerator
    from rocm_guide.memory import Workload, fit
    from rocm_guide.training import fine_tune, recompute_halves, sft_settings
    from rocm_guide.zoo.shapes import config_of
    from rocm_guide.zoo.sizes import sizes_of

    torch.manual_seed(0)
    plain, halves = way == "plain", "halves" in way
    batch, length, steps = (2, 32, 3) if dry else (BATCH, LENGTH, STEPS)
    model = random_model({"model": model_shape, "method": method, "dry": dry}, torch.bfloat16)
    if halves:
        recompute_halves(model, TILES)
    targets = list(sizes_of(model.config).lora_targets())
    adapter = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM")
    changes: dict[str, Any] = {
        "per_device_train_batch_size": batch,
        "max_length": length,
        "max_steps": steps,
        "learning_rate": 1e-4,
        "use_cpu": dry,
        "bf16": plain or method == "qlora",
        "use_liger_kernel": not plain and not dry,
        "activation_checkpointing": not halves,
        "activation_offloading": "offloaded" in way and not dry,
        "dataloader_num_workers": 0,
    }
    dtype = None if changes["bf16"] else torch.bfloat16
    with tempfile.TemporaryDirectory() as folder:
        settings = sft_settings(folder, **changes)
        rows = text_rows(batch * steps, length)
        done = fine_tune(model, small_tokenizer(), rows, settings, adapter=adapter, adapter_dtype=dtype)
    work = Workload(method, batch=BATCH, seq=LENGTH, rank=RANK, checkpointing=True)
    work = replace(work, adapter_fp32=plain and method == "lora", kernels="torch" if plain else "liger")
    work = replace(work, offloading="offloaded" in way, tiles=TILES if halves else 0)
    return {
        "method": method,
        "way": way,
        "tokens_per_second": round(done.tokens_per_second, 1),
        "peak_gib": round(done.peak_bytes / 2**30, 2),
        "computed_peak_gib": round(fit(config_of(model_shape), work).peak / 2**30, 2),
        "losses": [round(loss, 4) for loss in done.losses],
        "hardware": accelerator().label(),
        "host": host_facts(),
        "versions": {m.__name__: m.__version__ for m in (transformers, trl, peft)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llama-2-7b")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--only", nargs=2, metavar=("METHOD", "WAY"), help="measure in this process and print JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if options.only:
        method, way = options.only
        print(json.dumps(measure(method, way, options.model, options.dry)))
        return
    rows = []
    for method in ("lora",) if options.dry else ("lora", "qlora"):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.models.lora_peers", *sys.argv[1:], "--only", method, way]
            done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
            if done.returncode:  # out of memory, say: the other rows are still worth having
                print(f"{method}, {way}: {done.stderr.strip().splitlines()[-1]}")
                continue
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            row = rows[-1]
            memory = f"{row['peak_gib']} GiB" + (f" (computed {row['computed_peak_gib']})" if not options.dry else "")
            print(f"{method}, {way}: {row['tokens_per_second']:,.0f} tokens/s, {memory}, losses {row['losses'][:3]}")
            if not options.dry:  # what was measured so far is kept
                write_text(RESULTS / "lora_peers.json", json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
