# SPDX-License-Identifier: MIT
"""The settings of a whole fine-tuning job from a few numbers, and the figures that a trainer has written down."""

from __future__ import annotations

import resource
import sys
from typing import Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.finetune.sft import FineTuned, recipe, trainable_parameters

__all__ = ["adapter_size", "training_figures", "whole_job"]


def whole_job(
    model: str,
    method: str,
    *,
    epochs: float = 0,
    steps: int = 0,
    rate: float = 0,
    batch: int = 0,
    accumulation: int = 1,
    length: int = 0,
) -> dict[str, Any]:
    """Return fields of ``SFTConfig`` for a whole job; 0 takes what was seen to work (tiny) or is usual (any other).

    Other models train for one epoch, as the ROCm guide does, on rows of at most ``length`` tokens.

    Args:
        model: as :func:`rocm_guide.models.load.load_model` takes it.
        epochs, steps: how long; ``steps`` wins where both are given.
        batch: rows on the device at a time; ``batch`` x ``accumulation`` rows make a step of the optimizer.
        length: longest sample in tokens.

    Raises:
        GuideError: a number below zero, or no accumulation.

    >>> whole_job("random:llama-2-7b", "lora")["num_train_epochs"]
    1
    >>> whole_job("tiny", "lora", batch=8)["per_device_train_batch_size"]
    8
    """
    numbers = {"epochs": epochs, "steps": steps, "rate": rate, "batch": batch, "length": length}
    for name, value in numbers.items():
        if value < 0:
            raise GuideError(f"{name}={value}: give a number above 0, or 0 for the usual one")
    if accumulation < 1:
        raise GuideError(f"accumulation={accumulation}: give 1 or more")
    fields = recipe(model, method)
    for name in ("max_steps", "packing", "packing_strategy"):  # those of a recipe are for measuring speed
        fields.pop(name, None)
    fields.setdefault("num_train_epochs", 1)
    given = {
        "num_train_epochs": epochs,
        "max_steps": steps,
        "learning_rate": rate,
        "per_device_train_batch_size": batch,
        "max_length": length,
    }
    fields |= {name: value for name, value in given.items() if value}
    often = 20 if model == "tiny" else 5  # reading the loss waits for the device
    # A short run shows a few losses too.
    fields["logging_steps"] = min(often, max(1, int(fields.get("max_steps", 4 * often)) // 4))
    return fields | {"gradient_accumulation_steps": accumulation}


def adapter_size(model: str, rank: int = 0, alpha: int = 0) -> tuple[int, int]:
    """Return (rank, alpha) of a LoRA adapter; for 0 the tiny model has 16 and 32, others the ROCm guide's 64 and 16.

    >>> adapter_size("tiny"), adapter_size("random:llama-2-7b"), adapter_size("tiny", rank=4, alpha=8)
    ((16, 32), (64, 16), (4, 8))
    """
    usual = (16, 32) if model == "tiny" else (64, 16)
    if rank < 0 or alpha < 0:
        raise GuideError(f"rank={rank}, alpha={alpha}: give numbers above 0, or 0 for the usual ones")
    return rank or usual[0], alpha or usual[1]


def training_figures(trainer: Any, resumed_from: str | None = None) -> FineTuned:
    """Return what an ``SFTTrainer`` wrote down about its last ``train()``: losses, steps, seconds, tokens, memory.

    Everything comes from ``trainer.state.log_history``, so it works for a trainer that you wrote yourself. Tokens per
    second are those of the whole call, the first slow steps included. A call that only resumed a finished run has no
    speed: 0.

    Args:
        resumed_from: the checkpoint that it went on from, as ``…/checkpoint-204``; its tokens were not computed now.
    """
    result = FineTuned(trainer.model)
    result.trainable, result.total = trainable_parameters(trainer.model)
    history = trainer.state.log_history
    logged = [row for row in history if "loss" in row]
    result.losses, result.loss_steps = [row["loss"] for row in logged], [row["step"] for row in logged]
    start = int(str(resumed_from).rsplit("-", 1)[1]) if resumed_from else 0
    tokens = {row["step"]: row["num_tokens"] for row in history if "num_tokens" in row}
    result.tokens = int(max(tokens.values(), default=0))
    fresh = result.tokens - int(max((n for step, n in tokens.items() if step <= start), default=0))
    result.seconds = float(next((row["train_runtime"] for row in reversed(history) if "train_runtime" in row), 0.0))
    result.tokens_per_second = fresh / result.seconds if fresh > 0 and result.seconds > 0 else 0.0
    if trainer.args.use_cpu or not torch.cuda.is_available():
        unit = 1 if sys.platform == "darwin" else 1024
        result.peak_bytes = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result.peak_what = "resident memory of this process, since it began"
    else:
        result.peak_bytes = torch.cuda.max_memory_allocated()
        result.peak_what = "device memory that torch allocated, since it began"
    trainer.model.eval()
    return result
