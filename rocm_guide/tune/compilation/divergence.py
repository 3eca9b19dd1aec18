# SPDX-License-Identifier: MIT
"""Does the compiled model write the same text, and if not: was the choice between two tokens open?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocm_guide.common.base import GuideError

__all__ = ["first_divergence"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The point where two greedy texts part: the ``position`` (tokens in common), and how close the choice was there.

    ``gap`` is the distance of the two logits in standard deviations of all logits. Rounding can only swap candidates
    that are almost equal (a few hundredths); a wrong computation picks tokens several standard deviations apart.
    """

    position: int
    gap: float


def first_divergence(
    model: torch.nn.Module, ids: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor
) -> Divergence | None:
    """Compare two continuations [1, tokens] of the prompt ``ids`` [1, prompt]; None when they are equal.

    In 16-bit types a compiled model may choose another token than the eager one, because fused kernels round less
    often. The (eager) model itself then says whether the choice was open.

    Raises:
        GuideError: a batch, or continuations of different lengths.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import torch
    >>> sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    >>> prompt, text = torch.tensor([[3, 4, 5]]), torch.tensor([[7, 8, 9]])
    >>> first_divergence(model, prompt, text, torch.tensor([[7, 8, 1]])).position
    2
    """
    if ours.shape != theirs.shape or len(ids) != 1 or len(ours) != 1:
        shapes = ", ".join(str(tuple(t.shape)) for t in (ids, ours, theirs))
        raise GuideError(f"shapes {shapes}: give a prompt [1, prompt] and two texts [1, tokens]")
    different = (ours != theirs)[0].nonzero()
    if not len(different):
        return None
    position = int(different[0])
    with torch.no_grad():
        logits = model(torch.cat([ids, theirs[:, :position]], 1), use_cache=False).logits[0, -1].float()
    first, second = (logits[int(t[0, position])] for t in (ours, theirs))
    return Divergence(position, float((first - second).abs() / logits.std()))
