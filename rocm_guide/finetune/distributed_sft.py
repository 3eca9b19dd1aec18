# SPDX-License-Identifier: MIT
"""The course's LoRA fine-tune with TRL on several processes, one machine or many; the launcher decides how.

On GPUs, weights sharded by FSDP:  accelerate launch --config_file FILE -m rocm_guide.finetune.distributed_sft --output
FOLDER On processors, weights copied:     torchrun --nproc-per-node 2 -m rocm_guide.finetune.distributed_sft --output
FOLDER
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, write_text
from rocm_guide.finetune.sft import recipe, sft_settings

__all__ = ["distributed_settings"]


def distributed_settings(
    folder: str | Path, *, processes: int, batch: int = 16, gpu: bool = False, **changes: Any
) -> Any:
    """Return an ``SFTConfig`` for one of ``processes`` that together take ``batch`` rows at each step.

    Args:
        gpu: whether each process has a GPU; without, they talk through gloo.
        changes: further fields, which win.

    Raises:
        GuideError: the batch cannot be dealt out evenly.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     distributed_settings(d, processes=2).per_device_train_batch_size
    8
    """
    if processes < 1 or batch % processes:
        raise GuideError(f"batch={batch} rows cannot be dealt out evenly to {processes} processes; change one of them")
    values = {"per_device_train_batch_size": batch // processes, "max_length": 256, "learning_rate": 5e-3}
    if not gpu:
        values["ddp_find_unused_parameters"] = False  # DDP would otherwise search for them at every step
    return sft_settings(folder, device="cuda" if gpu else "cpu", **{**values, **changes})


def sft_distributed(
    output: str | Path, *, model: str = "tiny", data: str = "tiny", epochs: float = 2, **changes: Any
) -> Path:
    """Train an adapter (rank 16, all seven kinds of matrices) as one process of however many were launched.

    Returns the folder with the adapter; ``losses.json`` beside it holds the curve.

    Args:
        output: folder that all processes see.
        changes: fields of ``SFTConfig``.

    Raises:
        GuideError: a model or data set that the course does not know.
    """
    import torch
    from peft import LoraConfig
    from transformers.trainer_callback import PrinterCallback, ProgressCallback
    from trl import SFTTrainer

    from rocm_guide.common.device import seed_all
    from rocm_guide.models.columns import TRAINED_ON, kind_of, training_rows
    from rocm_guide.models.load import load_data, load_model
    from rocm_guide.models.sizes import LORA_TARGETS

    output, gpu = Path(output), torch.cuda.is_available()
    local, world = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    sizes: dict[str, Any] = recipe(model, "lora") if model != "tiny" else {"num_train_epochs": epochs, "max_length": 64}
    sizes.pop("logging_steps", None)  # every step: the curve is what the run is looked at for
    settings = distributed_settings(
        output,
        processes=world,
        batch=sizes.pop("per_device_train_batch_size", 16 // world) * world,
        gpu=gpu,
        **{"num_train_epochs": epochs, **sizes, **changes},
    )
    base, tokenizer = load_model(model, device=f"cuda:{local}" if gpu else "cpu")
    seed_all(settings.seed)
    rows = training_rows(load_data(data)["train"], tokenizer)
    trainer = SFTTrainer(
        model=base,
        args=settings,
        train_dataset=rows.select_columns(list(TRAINED_ON[kind_of(rows.column_names)])),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM"),
    )
    for reporter in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(reporter)
    trainer.train()
    trainer.save_model(str(output / "adapter"))  # all processes: with FSDP each holds a part
    if trainer.is_world_process_zero():
        losses = [[row["step"], row["loss"]] for row in trainer.state.log_history if "loss" in row]
        kind = str(trainer.accelerator.distributed_type).rpartition(".")[2]
        write_text(output / "losses.json", json.dumps({"kind": kind, "processes": world, "losses": losses}))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # nobody leaves while another still talks
        # First the trainer with its DDP wrapper, then the group. A wrapper with the last hold on the group would wait
        # for gloo's threads and keep Python's lock, for which they wait (seen with torch 2.13; pytorch issue 56297).
        del trainer
        gc.collect()
        torch.distributed.destroy_process_group()
    return output / "adapter"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="rocm_guide.finetune.distributed_sft", description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--data", default="tiny")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--max-steps", type=int, default=-1)
    try:
        given = vars(parser.parse_args())
        sft_distributed(given.pop("output"), **given)
    except GuideError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
