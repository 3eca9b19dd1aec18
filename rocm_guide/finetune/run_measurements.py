# SPDX-License-Identifier: MIT
"""The figures of a passport, for any causal language model and any data set that can be trained on."""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.device import accelerator, clock
from rocm_guide.models.evaluation import answer
from rocm_guide.quantize.held_out import completion_loss, held_out_rows
from rocm_guide.quantize.scores import model_bytes, weight_bytes

__all__ = ["held_out_pairs", "held_out_prompts", "measure_stage"]

#: Answers of at most so many tokens are compared word for word; longer ones have many right forms.
_SHORT = 16
_PREFILL, _DECODED = 512, 16


def held_out_pairs(rows: Any, tokenizer: Any, most: int = 64) -> list[tuple[str, str]]:
    """Return (prompt, completion) of up to ``most`` held-out rows, spread evenly over them.

    Raises:
        GuideError: there are none.
    """
    return [(row["prompt"], row["completion"]) for row in held_out_rows(rows, tokenizer, most)]


def held_out_prompts(rows: Any, tokenizer: Any, most: int = 8) -> list[str]:
    """Return the prompts of up to ``most`` held-out rows, of any layout; of a row that asks nothing, how it begins.

    >>> from datasets import Dataset
    >>> held_out_prompts(Dataset.from_list([{"text": "MI300X has 304 compute units."}]), None)
    ['MI300X has 304 compute units.']
    """
    return [prompt or answer[:200] for prompt, answer in held_out_pairs(rows, tokenizer, most)]


def word_for_word(model: Any, tokenizer: Any, rows: Sequence[Mapping[str, str]]) -> float | None:
    """Return the share of exactly right answers to rows with prompt and completion; None where those are long."""
    special = set(tokenizer.all_special_tokens)
    wanted = []
    for row in rows:
        text = row["completion"]
        for token in special:
            text = text.replace(token, "")
        wanted.append(text.strip())
    lengths = [len(tokenizer(w, add_special_tokens=False).input_ids) for w in wanted]
    if not all(row["prompt"] for row in rows) or statistics.quantiles([*lengths, lengths[-1]], n=10)[-1] > _SHORT:
        return None
    given = answer(model, tokenizer, [row["prompt"] for row in rows], batch=64)
    return sum(g == w for g, w in zip(given, wanted, strict=True)) / len(wanted)


def speeds(model: Any, *, prompt: int = _PREFILL, new: int = _DECODED, runs: int = 3) -> dict[str, float]:
    """Measure tokens per second of one row: ``prefill_tokens_per_s`` of a prompt, ``decode_tokens_per_s`` after it.

    The median of ``runs``, after one that is thrown away; random tokens, greedy decoding with the KV cache.
    """
    config = model.config
    prompt = min(prompt, max(8, (getattr(config, "max_position_embeddings", 0) or prompt) - new - 1))
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, min(config.vocab_size, 1000), (1, prompt), generator=generator).to(device)
    kind = device.type
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    # Only the last position's logits are wanted, as when a model writes.
    keep = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(base.forward).parameters else {}
    first, rest = [], []
    with torch.inference_mode():
        for run in range(runs + 1):
            began = clock(kind)
            out = model(input_ids=ids, use_cache=True, **keep)
            token = out.logits[:, -1:].argmax(-1)
            middle = clock(kind)
            for _ in range(new):
                out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            if run:
                first.append(middle - began)
                rest.append(clock(kind) - middle)
    return {
        "prefill_tokens_per_s": prompt / statistics.median(first),
        "decode_tokens_per_s": new / statistics.median(rest),
    }


def measure_stage(
    model: Any,
    tokenizer: Any,
    rows: Any,
    *,
    folder: str | Path | None = None,
    most: int = 64,
    training: Any = None,
) -> dict[str, Any]:
    """Measure everything that the passport says of a stage, as :func:`rocm_guide.finetune.passport.add_stage` takes it.

    Args:
        model: loaded, in evaluation mode; of PEFT, quantised, or plain.
        folder: where the stage was saved, for its size on disk.
        training: what :func:`rocm_guide.finetune.sft.fine_tune` gave back, for its speed.

    Raises:
        GuideError: nothing to judge, or a data set with unknown columns.
    """
    judged = held_out_rows(rows, tokenizer, most)
    loss = completion_loss(model, tokenizer, judged)
    exact = word_for_word(model, tokenizer, judged)
    three = judged[:: max(1, len(judged) // 3)][:3]
    prompts = [row["prompt"] or row["completion"][:80] for row in three]
    texts = answer(model, tokenizer, prompts, new_tokens=32, batch=len(prompts))
    held_out = {"rows": len(judged), "loss": loss, "perplexity": math.exp(min(loss, 80.0)), "exact_match": exact}
    size: Mapping[str, Any] = {
        "disk_bytes": weight_bytes(folder) if folder else None,
        "memory_bytes": model_bytes(model),
    }
    speed: dict[str, float | None] = {"training_tokens_per_s": getattr(training, "tokens_per_second", None)}
    return {
        "folder": Path(folder).name if folder else None,
        "held_out": held_out,
        "size": dict(size),
        "speed": speed | speeds(model),
        "generations": [{"prompt": p, "text": t} for p, t in zip(prompts, texts, strict=True)],
        "hardware": accelerator().label(),
    }
