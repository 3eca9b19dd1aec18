# SPDX-License-Identifier: MIT
"""A real training step on the CPU and the bytes alive during it: the memory formulae's measure."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rocm_guide.models.sizes import sizes_of


class LiveBytes(TorchDispatchMode):
    """A counter of the bytes of every storage that an operation makes, until it is let go.

    A context manager. It sees what torch's operations return, so tensors that were there before are told to it with
    :meth:`watch`, and what an operation needs for itself is not counted.

    Attributes:
        now, peak: bytes alive at this moment, and most of them so far.

    >>> with LiveBytes() as live:
    ...     x = torch.zeros(1000)  # 4 bytes each
    ...     x = x + 1
    >>> live.now, live.peak
    (4000, 8000)
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: dict[int, int] = {}

    def watch(self, tensor: torch.Tensor) -> None:
        """Count a tensor that was there before."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.seen:
            return
        self.seen[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self.seen.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.watch(leaf)
        return out


def training_step(config: Any, work: Any) -> dict[str, int]:
    """Three steps of ``work`` as TRL does them, with torch's kernels; bytes at rest, after forward, and at the peak."""
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    live, found = LiveBytes(), {}
    with live:
        model = base = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if work.wide else torch.bfloat16)
        if work.checkpointing:
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
    if work.checkpointing:
        model.enable_input_require_grads()
    return model
