# SPDX-License-Identifier: MIT
"""A model's answers, and how often they are right word for word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rocm_guide.common.base import GuideError

__all__ = ["answer", "exact_match"]


def answer(model: Any, tokenizer: Any, prompts: Sequence[str], *, new_tokens: int = 24, batch: int = 64) -> list[str]:
    """Return greedy continuations of ``prompts``, without the prompt and without special tokens, in their order.

    Rows are padded on the left, so that every prompt ends where its continuation begins.
    """
    import torch

    texts: list[str] = []
    for i in range(0, len(prompts), batch):
        rows = tokenizer(list(prompts[i : i + batch]), return_tensors="pt", padding=True, padding_side="left")
        rows = {k: v.to(model.device) for k, v in rows.items() if k in ("input_ids", "attention_mask")}
        how = {"max_new_tokens": new_tokens, "do_sample": False, "pad_token_id": tokenizer.pad_token_id}
        with torch.inference_mode():
            out = model.generate(**rows, **how)
        texts += tokenizer.batch_decode(out[:, rows["input_ids"].shape[1] :], skip_special_tokens=True)
    return [t.strip() for t in texts]


def exact_match(model: Any, tokenizer: Any, samples: Iterable[dict[str, str]]) -> tuple[float, list[str]]:
    """Return the share of samples answered word for word, and the answers given.

    Args:
        samples: rows with ``prompt`` and ``answer``.

    Raises:
        GuideError: there are no samples, or they lack these columns.
    """
    samples = list(samples)
    if not samples or not {"prompt", "answer"} <= set(samples[0]):
        raise GuideError("exact match needs rows with 'prompt' and 'answer'; the tiny data set has them")
    given = answer(model, tokenizer, [s["prompt"] for s in samples])
    return sum(g == s["answer"] for g, s in zip(given, samples, strict=True)) / len(samples), given
