# SPDX-License-Identifier: MIT
"""LoRA and QLoRA of a 7B shape in less memory: tokens per second and peak, ours beside Unsloth and plain TRL, in a run.

    python -m benchmarks.models.lora_peers        # on a GPU: measure, write results/lora_peers.json
    python -m benchmarks.models.lora_peers --dry  # on a CPU, in miniature: does every way run, are the losses the same?

Rank 16 on all linear layers, 4 rows of 2,048 tokens, random weights made on the device, one process for each row. All
of them recompute activations. "plain" are TRL's SFTTrainer and PEFT as they come, with PEFT's fp32 adapters; "ours" are
Liger's kernels and adapters of the model's type; then with TRL's offloading. "script 02" is the script that notebook 02
exports, as a reader starts it, with these sizes and its own choices (dropout, PEFT's fp32 adapters, Liger). The peak
that fit computes stands beside the measured one. A row that this run cannot measure stays in the results as it was,
with the versions that it was measured with.

"unsloth" is FastLanguageModel with use_gradient_checkpointing="unsloth" and TRL's SFTTrainer as Unsloth changes it,
its own choices left alone, the optimizer that of the others. It loads from a folder, so one process first writes the
weights there; what Unsloth prints about itself, the attention that it found for example, is printed too. All ways are
timed over the same steps, and their peak is that of torch's allocator from the beginning of training to its end.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Unsloth wants to be imported before torch and transformers: nothing here may import them.
from rocm_guide.common.base import write_text
from rocm_guide.common.host import host_facts

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
BATCH, LENGTH, RANK, STEPS = 4, 2048, 16, 12
WAYS = ("unsloth", "script 02", "ours", "plain", "ours, offloaded")
#: The process that writes the folder which Unsloth and the script load.
WRITER = ("write", "weights")
#: Seconds after which a process is given up.
PATIENCE = 150


def sizes(dry: bool) -> tuple[int, int, int]:
    """Return (rows of a batch, tokens of a row, optimizer steps)."""
    return (2, 32, 3) if dry else (BATCH, LENGTH, STEPS)


def common_settings(dry: bool, recompute: bool) -> dict[str, Any]:
    """Return fields of ``SFTConfig`` that all ways share."""
    from trl import SFTConfig

    batch, length, steps = sizes(dry)
    names = SFTConfig.__dataclass_fields__
    return {
        "per_device_train_batch_size": batch,
        "max_length": length,
        "max_steps": steps,
        "learning_rate": 1e-4,
        "use_cpu": dry,
        "dataloader_num_workers": 0,
        "activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing": recompute,
    }


def wait_for_turn() -> None:
    """Go on when the line comes that says that the GPU is free."""
    if not sys.stdin.readline():
        raise SystemExit("standard input ended: nobody waits for this row")


def row_of(method: str, way: str, speed: float, peak: int, losses: list[float]) -> dict[str, Any]:
    """Return one row of the results."""
    from rocm_guide.common.device import accelerator

    modules = [sys.modules[name] for name in ("torch", "transformers", "trl", "peft", "unsloth") if name in sys.modules]
    return {
        "method": method,
        "way": way,
        "tokens_per_second": round(speed, 1),
        "peak_gib": round(peak / 2**30, 2),
        "losses": [round(loss, 4) for loss in losses],
        "hardware": accelerator().label(),
        "host": host_facts(),
        "versions": {module.__name__: module.__version__ for module in modules},
    }


def measure(method: str, way: str, model_shape: str, dry: bool) -> dict[str, Any]:
    """Measure one row without Unsloth, in this process."""
    import torch
    from peft import LoraConfig
    from trl import SFTTrainer

    from benchmarks.memory.measure import random_model, small_tokenizer, text_rows
    from rocm_guide.finetune import fine_tune, sft_settings
    from rocm_guide.models.memory_planner import fit
    from rocm_guide.models.shapes import config_of
    from rocm_guide.models.sizes import sizes_of
    from rocm_guide.models.work import Workload

    assert SFTTrainer  # imported while another row still has the GPU
    wait_for_turn()
    torch.manual_seed(0)
    plain = way == "plain"
    batch, length, steps = sizes(dry)
    model = random_model({"model": model_shape, "method": method, "dry": dry}, torch.bfloat16)
    targets = list(sizes_of(model.config).lora_targets())
    adapter = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM")
    changes = common_settings(dry, recompute=True) | {
        "bf16": plain or method == "qlora",
        "use_liger_kernel": not plain and not dry,
        "activation_offloading": "offloaded" in way and not dry,
    }
    dtype = None if changes["bf16"] else torch.bfloat16
    with tempfile.TemporaryDirectory() as folder:
        settings = sft_settings(folder, **changes)
        rows = text_rows(batch * steps, length)
        done = fine_tune(model, small_tokenizer(), rows, settings, adapter=adapter, adapter_dtype=dtype)
    work = Workload(method, batch=BATCH, seq=LENGTH, rank=RANK, checkpointing=True)
    work = replace(work, adapter_fp32=plain and method == "lora", kernels="torch" if plain else "liger")
    work = replace(work, offloading="offloaded" in way)
    row = row_of(method, way, done.tokens_per_second, done.peak_bytes, done.losses)
    return row | {"computed_peak_gib": round(fit(config_of(model_shape), work).peak / 2**30, 2)}


def write_weights(folder: Path, model_shape: str, dry: bool) -> dict[str, Any]:
    """Write the weights with which the LoRA rows begin, in bf16, and the tokenizer,
    as a folder that anybody can load.
    """
    import torch

    from benchmarks.memory.measure import random_model, small_tokenizer

    wait_for_turn()
    torch.manual_seed(0)
    model = random_model({"model": model_shape, "method": "lora", "dry": dry}, torch.bfloat16)
    small_tokenizer().save_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="2GB")
    return {"written": sum(file.stat().st_size for file in folder.iterdir())}


def measure_unsloth(method: str, folder: Path, dry: bool) -> dict[str, Any]:
    """Measure one row with Unsloth, in this process; ``folder`` is what :func:`write_weights` wrote."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "UNSLOTH_DISABLE_STATISTICS"):
        os.environ[name] = "1"
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", str(folder / "compiled"))
    from unsloth import FastLanguageModel  # isort: skip
    import torch
    from trl import SFTTrainer

    from benchmarks.memory.measure import text_rows
    from rocm_guide.common.device import peak_memory, seed_all
    from rocm_guide.finetune import sft_settings
    from rocm_guide.finetune.sft import WARM_UP, step_meter
    from rocm_guide.models.sizes import sizes_of

    wait_for_turn()
    batch, length, steps = sizes(dry)
    model, tokenizer = FastLanguageModel.from_pretrained(
        str(folder),
        max_seq_length=length,
        dtype=torch.bfloat16,
        load_in_4bit=method == "qlora",
        local_files_only=True,
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=RANK,
        lora_alpha=2 * RANK,
        lora_dropout=0,
        bias="none",
        target_modules=list(sizes_of(model.config).lora_targets()),
        use_gradient_checkpointing="unsloth",
        random_state=0,
    )
    four_bits = any(hasattr(weight, "quant_state") for weight in model.parameters())
    if four_bits != (method == "qlora"):  # it goes on in 16 bits where it finds no bitsandbytes
        raise SystemExit(f"{method}, but the weights are {'4-bit' if four_bits else 'not 4-bit'}")
    meter = step_meter()
    with tempfile.TemporaryDirectory() as temporary:
        changes = common_settings(dry, recompute=True) | {"dataset_text_field": "text", "packing": False}
        settings = sft_settings(temporary, **changes, bf16=not dry, use_liger_kernel=False)
        seed_all(settings.seed)
        rows = text_rows(batch * steps, length)
        trainer = SFTTrainer(
            model=model, processing_class=tokenizer, train_dataset=rows, args=settings, callbacks=[meter]
        )
        gc.collect()
        with peak_memory("cpu" if dry else "cuda") as peak:
            trainer.train()
    first, began = (WARM_UP, meter.warm) if steps > WARM_UP else (0, meter.began)
    speed = (steps - first) * batch * length / (meter.ended - began)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return row_of(method, "unsloth", speed, peak.bytes, losses)


def measure_script(folder: Path, dry: bool) -> dict[str, Any]:
    """Measure script 02 in this process; only a clock is added to its trainer."""
    import runpy

    import torch
    import trl
    from transformers import TrainerCallback

    from benchmarks.memory.measure import text_rows
    from rocm_guide.cli.copying import script_of
    from rocm_guide.common.device import clock
    from rocm_guide.finetune.sft import WARM_UP

    batch, length, steps = sizes(dry)
    first = WARM_UP if steps > WARM_UP else 0
    found: dict[Any, Any] = {"peak": 0}

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **more: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            found[0] = clock()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (first, steps):  # before the script evaluates
                found[state.global_step] = clock()
            if torch.cuda.is_available():
                found["peak"] = torch.cuda.max_memory_allocated()

    class Timed(trl.SFTTrainer):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, callbacks=[Clock()], **more)

    wait_for_turn()
    trl.SFTTrainer = Timed
    with tempfile.TemporaryDirectory() as place:
        script, rows = Path(place, "s02.py"), Path(place, "rows.jsonl")
        write_text(script, script_of("02"))
        text_rows(2 * batch * steps, length).to_json(rows)
        options = {"model": folder, "dataset": rows, "out": Path(place, "out"), "rank": RANK, "alpha": 2 * RANK}
        options |= {"batch": batch, "length": length, "steps": steps, "rate": 1e-4, "save": 0.99}
        sys.argv = [str(script), *(f"--{name}={value}" for name, value in options.items())]
        sys.argv += ["--targets=all-linear", "--recompute"]
        trainer = runpy.run_path(str(script), run_name="__main__")["trainer"]
    speed = (steps - first) * batch * length / (found[steps] - found[first])
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return row_of("lora", "script 02", speed, found["peak"], losses)


def measure_here(first: str, second: str, options: argparse.Namespace) -> dict[str, Any]:
    """Do the work of one process: a method and a way, or :data:`WRITER`."""
    if (first, second) == WRITER:
        return write_weights(options.folder, options.model, options.dry)
    if second == "unsloth":
        return measure_unsloth(first, options.folder, options.dry)
    if second == "script 02":
        return measure_script(options.folder, options.dry)
    return measure(first, second, options.model, options.dry)


def in_turn(jobs: list[tuple[str, str]], options: argparse.Namespace) -> Any:
    """Yield (method, way, result or None, what was printed) of each job; the next one imports while one measures.

    A child waits for a line on its standard input before it touches the GPU.
    """
    command = [sys.executable, "-m", "benchmarks.models.lora_peers", "--model", options.model]
    command += ["--folder", str(options.folder), *(["--dry"] if options.dry else [])]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    def start(job: tuple[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, "--only", *job], text=True, cwd=ROOT, start_new_session=True, **pipes)

    def stop(child: subprocess.Popen[str]) -> None:
        if child.poll() is None:  # with the processes that it started, compilers say
            os.killpg(child.pid, signal.SIGKILL)

    children: list[subprocess.Popen[str]] = []
    try:
        for n, job in enumerate(jobs):
            children += [start(other) for other in jobs[len(children) : n + 2]]
            child, late = children[n], ""
            try:
                printed, wrong = child.communicate("go\n", timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                stop(child)
                printed, wrong = child.communicate()
                late = f"\ngiven up after {PATIENCE} seconds"
            lines = printed.strip().splitlines()
            if child.returncode:  # out of memory, say: the other rows are still worth having
                print(f"{', '.join(job)}:\n{wrong[-6000:]}", file=sys.stderr, flush=True)
                why = (wrong + late).strip() or f"ended with code {child.returncode}"
                yield (*job, None, [*lines, why.splitlines()[-1]])
            else:
                yield (*job, json.loads(lines[-1]), lines[:-1])
    finally:
        for child in children:
            stop(child)


def run_all(options: argparse.Namespace) -> None:
    """Measure every row, print it, and keep what there is so far."""
    methods = ("lora",) if options.dry else ("lora", "qlora")
    jobs = [(method, way) for method in methods for way in WAYS]
    jobs = [job for job in jobs if job != ("qlora", "script 02")]  # notebook 12's script does that
    if find_spec("unsloth") is None:
        jobs = [job for job in jobs if job[1] != "unsloth"]
        print("unsloth: not installed")
    if not (options.folder / "config.json").is_file():
        jobs.insert(0, WRITER)
    file = RESULTS / "lora_peers.json"
    rows = {(row["method"], row["way"]): row for row in json.loads(file.read_text())} if file.is_file() else {}
    for method, way, row, printed in in_turn(jobs, options):
        if way == "unsloth":
            said = [line for line in (printed if row else printed[:-1]) if not line.startswith("{")]
            print("\n".join(f"    {line}" for line in said))
        if row is None:
            print(f"{method}, {way}: {printed[-1]}", flush=True)
        elif "written" in row:
            print(f"weights to load: {row['written'] / 1e9:.1f} GB written", flush=True)
        else:
            rows[method, way] = row
            computed = row.get("computed_peak_gib")
            memory = f"{row['peak_gib']} GiB" + (f" (computed {computed})" if computed and not options.dry else "")
            speed = f"{row['tokens_per_second']:,.0f} tokens/s"
            print(f"{method}, {way}: {speed}, {memory}, losses {row['losses'][:3]} … {row['losses'][-1]}", flush=True)
            if not options.dry:
                write_text(file, json.dumps(list(rows.values()), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llama-2-7b")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the weights for Unsloth go, or are; a temporary one if left")
    parser.add_argument("--only", nargs=2, metavar=("METHOD", "WAY"), help="measure in this process and print JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if options.only:
        method, way = options.only
        print(json.dumps(measure_here(method, way, options)))
    elif options.folder:
        run_all(options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            options.folder = Path(folder)
            run_all(options)


if __name__ == "__main__":
    main()
