# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 06: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocm_guide.exercises.common import no, yes

__all__ = ["check_config", "check_targets", "check_translation"]


def check_config(config: Any, processes: int) -> bool:
    """Check exercise 1: a torchtune configuration whose steps see 64 rows, 4 of them at a time on each process.

    >>> check_config({"batch_size": 4, "gradient_accumulation_steps": 1}, 4)
    [HINT] 4 rows x 1 x 4 processes = 16 rows for each optimizer step, and 64 are wanted
    False
    """
    if not isinstance(config, Mapping) or not {"batch_size", "gradient_accumulation_steps"} <= set(config):
        return no("give the configuration: a dictionary with batch_size and gradient_accumulation_steps")
    rows, steps = config["batch_size"], config["gradient_accumulation_steps"]
    if rows != 4:
        return no(f"batch_size counts the rows of one process at a time: it is {rows}, and 4 fit")
    if rows * steps * processes != 64:
        total = f"{rows} rows x {steps} x {processes} processes = {rows * steps * processes}"
        return no(f"{total} rows for each optimizer step, and 64 are wanted")
    return yes(f"{rows} rows x {steps} accumulated x {processes} processes = 64")


def check_translation(settings: Any, processes: int) -> bool:
    """Check exercise 2: an SFTConfig that trains as torchtune's llama2/7B_lora on 8 GPUs, but on ``processes`` GPUs.

    That configuration has batch_size 2, gradient_accumulation_steps 8, AdamW with lr 3e-4, 100 warm-up steps, a cosine
    schedule and 1 epoch.

    >>> from types import SimpleNamespace
    >>> check_translation(SimpleNamespace(), 4)
    [HINT] SimpleNamespace is no SFTConfig; make one with SFTConfig("unused", …)
    False
    """
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "warmup_steps")
    if not all(hasattr(settings, n) for n in names):
        return no(f'{type(settings).__name__} is no SFTConfig; make one with SFTConfig("unused", …)')
    rows = settings.per_device_train_batch_size * settings.gradient_accumulation_steps * processes
    if rows != 128:
        return no(f"{rows} rows for each step; torchtune's were 2 x 8 x 8 GPUs = 128")
    if settings.learning_rate != 3e-4 or settings.warmup_steps != 100:
        return no(f"rate {settings.learning_rate:g}, {settings.warmup_steps:g} steps of warm-up; 3e-4 and 100")
    if settings.num_train_epochs != 1 or "cosine" not in str(settings.lr_scheduler_type).lower():
        return no(f"{settings.num_train_epochs:g} epochs, {settings.lr_scheduler_type}; wanted: 1, cosine")
    return yes(f"128 rows for each step on {processes} GPUs, 3e-4 after 100 steps, cosine, 1 epoch")


def check_targets(section: Any) -> bool:
    """Check exercise 3: a configuration's model section with an adapter of rank 32 on all seven matrices, alpha 64.

    >>> check_targets({"lora_rank": 32, "lora_alpha": 32, "lora_attn_modules": ["q_proj"], "apply_lora_to_mlp": True})
    [HINT] lora_attn_modules misses k_proj, v_proj, output_proj
    False
    """
    names = ("lora_rank", "lora_alpha", "lora_attn_modules", "apply_lora_to_mlp")
    if not isinstance(section, Mapping) or not set(names) <= set(section):
        return no(f"give the model section: a dictionary with {', '.join(names)}")
    rank, alpha, attention, mlp = (section[name] for name in names)
    wanted = ("q_proj", "k_proj", "v_proj", "output_proj")
    if missing := [name for name in wanted if name not in attention]:
        return no(f"lora_attn_modules misses {', '.join(missing)}")
    if extra := [name for name in attention if name not in wanted]:
        return no(f"{extra[0]} is no matrix of torchtune's attention; it knows {', '.join(wanted)}")
    if mlp is not True:
        return no(f"apply_lora_to_mlp={mlp!r}: the three matrices of the MLP are adapted by this one line")
    if rank != 32 or alpha != 64:
        return no(f"rank {rank} and alpha {alpha}; wanted are 32 and twice that")
    return yes("rank 32 on q, k, v and output, and on the MLP's three")
