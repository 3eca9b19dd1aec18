# SPDX-License-Identifier: MIT
"""A real training step on the CPU and the bytes alive during it: the memory formulae's measure."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from rocm_guide.finetune.recompute import recompute_halves
from rocm_guide.models.live import LiveBytes
from rocm_guide.models.sizes import sizes_of


def training_step(config: Any, work: Any) -> dict[str, int]:
    """Three steps of ``work`` as TRL does them, with torch's kernels; bytes at rest, after forward, and at the peak."""
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    live, found = LiveBytes(), {}
    with live:
        model = base = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if work.wide else torch.bfloat16)
        if work.tiles:
            recompute_halves(model, work.tiles)
        elif work.checkpointing:
            model.gradient_checkpointing_enable()
        if work.method != "full":
            model = _adapted(model, work, sizes_of(config).lora_targets())
        model.train()
        add_fused_lm_head(base, outputs=("log_probs", "entropy", "is_top1"))
        for parameter in model.parameters():
            live.watch(parameter)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
        ids = torch.randint(3, config.vocab_size, (work.batch, work.seq))
        for _ in range(3):
            live.peak = live.now
            waiting = _elsewhere(config.hidden_size) if work.offloading else nullcontext()
            with torch.autocast("cpu", dtype=torch.bfloat16), waiting:
                out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
                loss = -out.log_probs.sum() / 100
            found["forward"] = live.now
            del out
            loss.backward()
            del loss
            optimizer.step()
            found["peak"] = live.peak
            optimizer.zero_grad()
            found["rest"] = live.now
    return found


def _elsewhere(width: int) -> saved_tensors_hooks:
    """As if tensors of the hidden size were offloaded: kept in arrays of numpy, which are not counted."""

    def away(x: torch.Tensor) -> Any:
        kept = x.dim() == 3 and x.shape[-1] == width and x.dtype == torch.bfloat16
        return x.detach().view(torch.int16).numpy().copy() if kept else x

    def back(x: Any) -> torch.Tensor:
        return x if isinstance(x, torch.Tensor) else torch.from_numpy(x).clone().view(torch.bfloat16)

    return saved_tensors_hooks(away, back)


def _adapted(model: Any, work: Any, linear: tuple[str, ...]) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=work.rank, target_modules=list(work.targets or linear), task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    if not work.adapter_fp32:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)
    if work.checkpointing and not work.tiles:
        model.enable_input_require_grads()
    return model
