# SPDX-License-Identifier: MIT
"""LoRA against full fine-tuning at the Llama-2-7B shape: tokens per second and peak memory, on one GPU.

    PYTHONPATH=. python -m benchmarks.models.finetune_7b --out benchmarks/results

Random weights (speed and memory do not depend on their values), bf16, batch 4 x 512 packed tokens, AdamW with bf16
state, no activation checkpointing, Liger's fused kernels where installed. Each run has a process of its own, so none
sees another's memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rocm_guide.common.base import write_text
from rocm_guide.common.host import host_facts


def measure(method: str, model_spec: str, batch: int, length: int, steps: int, changes: dict) -> dict:
    import peft
    import torch
    import transformers
    import trl
    from peft import LoraConfig

    from rocm_guide.common.device import accelerator
    from rocm_guide.finetune.sft import fine_tune, recipe, sft_settings
    from rocm_guide.models.load import load_data, load_model

    model, tokenizer = load_model(model_spec)
    adapter = None
    if method == "lora":
        target = ["q_proj", "v_proj"]
        adapter = LoraConfig(r=64, lora_alpha=16, lora_dropout=0.1, target_modules=target, task_type="CAUSAL_LM")
    dtype = None if (adapter is None or changes.get("bf16", True)) else torch.bfloat16
    size = {"per_device_train_batch_size": batch, "max_length": length, "max_steps": steps, **changes}
    with tempfile.TemporaryDirectory() as folder:
        settings = sft_settings(folder, **{**recipe(model_spec, method), **size})
        rows = load_data("tiny")["train"]
        run = fine_tune(model, tokenizer, rows, settings, adapter=adapter, adapter_dtype=dtype)
    where = accelerator()
    versions = {m.__name__: m.__version__ for m in (transformers, trl, peft)}
    versions["liger_kernel"] = version("liger_kernel") if settings.use_liger_kernel else "not used"
    return {
        "method": method,
        "model": model_spec,
        "batch": batch,
        "length": length,
        "settings": changes,
        "adapter_dtype": str(dtype or torch.float32) if adapter else None,
        "steps": run.loss_steps[-1],
        "tokens_per_second": run.tokens_per_second,
        "peak_gib": run.peak_bytes / 2**30,
        "trainable": run.trainable,
        "total": run.total,
        "first_loss": run.losses[0],
        "last_loss": run.losses[-1],
        "hardware": where.label(),
        "host": host_facts(),
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="random:llama-2-7b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--set", type=json.loads, default={}, metavar="JSON", help='fields of SFTConfig, as {"bf16": false}'
    )
    parser.add_argument("--only", choices=("lora", "full"), help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.only:
        size = (options.batch, options.length, options.steps)
        print(json.dumps(measure(options.only, options.model, *size, options.set)))
        return
    rows = []
    # Clipping reads and rewrites every gradient: measured with (the default) and without for the full run. LoRA's
    # steps are short, and the host's work between kernels shows: measured with float32 adapters under autocast (the
    # default) and with bf16 adapters and no autocast.
    variants: tuple[tuple[str, dict[str, Any]], ...] = (
        ("lora", {}),
        ("lora", {"bf16": False}),
        ("full", {}),
        ("full", {"max_grad_norm": 0}),
    )
    for method, changes in variants:
        command = [sys.executable, *sys.argv, "--only", method, "--set", json.dumps({**changes, **options.set})]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1])
    write_text(options.out / "finetune_7b.json", json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
