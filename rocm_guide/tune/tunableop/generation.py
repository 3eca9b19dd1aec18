# SPDX-License-Identifier: MIT
"""One way to generate text that is the same on a GPU, on a CPU and on the meta device, for recording and planning."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

from rocm_guide.common.base import GuideError

if TYPE_CHECKING:
    import torch

__all__ = ["generate_fixed", "padded_prompt"]


def padded_length(length: int, multiple: int) -> int:
    """Return the length after padding to a multiple, as a tokenizer's ``pad_to_multiple_of`` does it.

    >>> [padded_length(n, 8) for n in (1, 8, 9)]
    [8, 8, 16]
    """
    if length < 1 or multiple < 1:
        raise GuideError(f"length={length}, multiple={multiple}: both are at least 1")
    return -(-length // multiple) * multiple


def padded_prompt(batch: int, length: int, multiple: int = 1, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask [batch, padded length]; padding stands on the left, for generation.

    >>> ids, mask = padded_prompt(1, 3, 4)
    >>> ids.tolist(), mask.tolist()
    ([[0, 5, 6, 7]], [[0, 1, 1, 1]])
    """
    import torch

    total = padded_length(length, multiple)
    mask = torch.zeros(batch, total, dtype=torch.long)
    mask[:, total - length :] = 1
    ids = (mask.cumsum(1) % 16 + 4) * mask
    return ids.to(device), mask.to(device)


def generate_fixed(
    model: torch.nn.Module,
    ids: torch.Tensor,
    mask: torch.Tensor,
    new_tokens: int,
    *,
    cache: str = "dynamic",
    stop_after: int | None = None,
    disable_compile: bool = True,
) -> torch.Tensor:
    """Generate exactly ``new_tokens`` tokens greedily; return ids [batch, prompt + tokens].

    ``cache`` is ``dynamic`` (grows by one token per step) or ``static`` (all of its final size from the start).
    ``stop_after`` ends early without making a static cache smaller, for looking at the first steps only.
    transformers compiles decoding by itself when the cache is static and a GPU is there: ``disable_compile`` keeps
    the model eager, so that cache and compiler can be judged one at a time.

    Raises:
        GuideError: unknown cache, or fewer than one token.
    """
    from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

    if cache not in ("dynamic", "static") or new_tokens < 1:
        raise GuideError(f"cache={cache}, new_tokens={new_tokens}: cache is dynamic or static, and at least one token")
    stop_at = ids.shape[1] + min(stop_after or new_tokens, new_tokens)

    class Stop(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return input_ids.new_full((len(input_ids),), input_ids.shape[1] >= stop_at, dtype=bool)

    fixed = {"do_sample": False, "num_beams": 1, "use_cache": True, "pad_token_id": 0}
    kind = "static" if cache == "static" else None
    config = GenerationConfig(
        max_new_tokens=new_tokens, cache_implementation=kind, disable_compile=disable_compile, **fixed
    )
    # A model's own defaults (an end-of-text token, a cache) would override what is not set here.
    with warnings.catch_warnings(), mock.patch.object(model, "generation_config", config):
        # Without weights the ids are real numbers on the CPU and the model is on the meta device, on purpose.
        warnings.filterwarnings("ignore", message="You are calling .generate")
        return model.generate(
            ids, attention_mask=mask, generation_config=config, stopping_criteria=StoppingCriteriaList([Stop()])
        )
