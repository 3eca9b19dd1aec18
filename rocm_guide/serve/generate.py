# SPDX-License-Identifier: MIT
"""Generate and look closely: time of every token with and without the KV cache, batches against single rows, models
against each other."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import Timing, clock

__all__ = ["continuations", "generate_timed", "largest_difference"]


@dataclass(frozen=True)
class Generated:
    """The result of :func:`generate_timed`.

    Attributes:
        ids: (batch, prompt + new) token ids, prompt included.
        prompt_length: columns of ``ids`` that were given.
        step_seconds: seconds of every step, the median over the runs; the first one read the whole prompt.
        first_token: time to the first new token.
        per_token: time of one step after the first; the spread is over all such steps of all runs.
        use_cache: whether keys and values were kept.
    """

    ids: torch.Tensor
    prompt_length: int
    step_seconds: tuple[float, ...]
    first_token: Timing
    per_token: Timing
    use_cache: bool

    @property
    def new_ids(self) -> torch.Tensor:
        """(batch, new) token ids without the prompt."""
        return self.ids[:, self.prompt_length :]

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows per second after the first token."""
        return float(self.ids.shape[0] / self.per_token.median)


def generate_timed(
    model: Any,
    ids: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    new_tokens: int = 32,
    use_cache: bool = True,
    runs: int = 3,
    warmup: int = 1,
) -> Generated:
    """Decode greedily, one forward pass per token, each pass timed until the device has finished it.

    The loop is what ``model.generate(do_sample=False)`` does inside, without its stopping rules: every run makes
    exactly ``new_tokens`` tokens, so runs and settings can be compared.

    Args:
        model: a causal language model of transformers (or one wrapped by PEFT).
        ids: (batch, length) token ids; pad on the left.
        mask: (batch, length), 1 for tokens and 0 for padding; all ones when None.
        new_tokens: tokens to make for every row.
        use_cache: keep keys and values of earlier tokens; without it each step reads the whole text again.
        runs: timed repetitions, after ``warmup`` repetitions that are thrown away.

    Raises:
        GuideError: no tokens asked for or given, no run, or ids that are not (batch, length).

    >>> from rocm_guide.models.shapes import config_of
    >>> from transformers import AutoModelForCausalLM
    >>> import torch
    >>> small = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 64}
    >>> model = AutoModelForCausalLM.from_config(config_of("llama-2-7b", **small), trust_remote_code=False).eval()
    >>> made = generate_timed(model, torch.tensor([[1, 5, 9]]), new_tokens=4)
    >>> tuple(made.new_ids.shape), len(made.step_seconds), made.first_token.median > 0
    ((1, 4), 4, True)
    """
    if ids.ndim != 2 or ids.numel() == 0:
        raise GuideError(f"ids of shape {tuple(ids.shape)}: give (batch, length) with at least one token")
    if new_tokens < 1 or runs < 1 or warmup < 0:
        raise GuideError(f"new_tokens={new_tokens}, runs={runs}, warmup={warmup}: at least 1, 1 and 0")
    mask = torch.ones_like(ids) if mask is None else mask
    # The last position alone is needed; without this a long prompt computes a row of logits for each of its tokens.
    last_only = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    table: list[list[float]] = []
    text = ids
    for run in range(warmup + runs):
        text, seconds = _greedy(model, ids, mask, new_tokens, use_cache, last_only)
        if run >= warmup:
            table.append(seconds)
    firsts = [row[0] for row in table]
    rest = [s for row in table for s in row[1:]] or firsts
    steps = tuple(statistics.median(column) for column in zip(*table, strict=True))
    return Generated(text, ids.shape[1], steps, Timing.of(firsts), Timing.of(rest), use_cache)


def _greedy(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, new_tokens: int, use_cache: bool, options: dict[str, Any]
) -> tuple[torch.Tensor, list[float]]:
    """Return one generation and the seconds of its steps."""
    seconds: list[float] = []
    past, text = None, ids
    with torch.inference_mode():
        for _ in range(new_tokens):
            began = clock(ids.device.type)
            # Padding takes no place: the first token of every row is at position 0.
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            new = slice(-1 if past is not None else 0, None)
            out = model(
                input_ids=text[:, new],
                attention_mask=mask,
                position_ids=positions[:, new],
                past_key_values=past,
                use_cache=use_cache,
                **options,
            )
            past = out.past_key_values if use_cache else None
            text = torch.cat([text, out.logits[:, -1].argmax(-1, keepdim=True)], dim=1)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            seconds.append(clock(ids.device.type) - began)
    return text, seconds


def continuations(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    batch: int = 64,
    side: Literal["left", "right"] = "left",
    new_tokens: int = 24,
) -> list[list[int]]:
    """Return the new token ids of every prompt, up to its end token, generated greedily ``batch`` prompts at a time.

    Args:
        side: where shorter prompts are padded. ``left`` is right for generation; ``right`` shows what goes wrong.

    Raises:
        GuideError: no prompts, an unknown side, or a batch size below 1.

    >>> continuations(None, None, [], side="left")
    Traceback (most recent call last):
        ...
    cdna.base.InputError: prompts: the list is empty; give at least one text
    """
    if not prompts:
        raise GuideError("prompts: the list is empty; give at least one text")
    if side not in ("left", "right") or batch < 1:
        raise GuideError(f"side={side!r}, batch={batch}: 'left' or 'right', and a batch of 1 or more")
    pad = tokenizer.pad_token_id
    rows: list[list[int]] = []
    for i in range(0, len(prompts), batch):
        given = tokenizer(list(prompts[i : i + batch]), return_tensors="pt", padding=True, padding_side=side)
        given = {k: given[k].to(model.device) for k in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            out = model.generate(**given, max_new_tokens=new_tokens, do_sample=False, pad_token_id=pad)
        rows += out[:, given["input_ids"].shape[1] :].tolist()
    end = tokenizer.eos_token_id
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def largest_difference(
    model_a: Any, model_b: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, *, last: bool = False
) -> float:
    """Return the largest absolute difference of two models' logits on the same tokens, compared in float64.

    Args:
        ids: (batch, length) token ids.
        mask: (batch, length); padding (0) is left out, because nobody reads what a model says there.
        last: compare the last position of each row only, which decides what is written next; pad on the left.

    Raises:
        GuideError: the models have vocabularies of different size.

    >>> import torch
    >>> from types import SimpleNamespace as Out
    >>> a = lambda **kw: Out(logits=torch.nn.functional.one_hot(kw["input_ids"], 4).float())
    >>> b = lambda **kw: Out(logits=a(**kw).logits * 1.25)
    >>> largest_difference(a, b, torch.tensor([[0, 3]]))
    0.25
    """
    mask = torch.ones_like(ids) if mask is None else mask
    with torch.inference_mode():
        a, b = (m(input_ids=ids, attention_mask=mask).logits for m in (model_a, model_b))
    if a.shape != b.shape:
        raise GuideError(f"logits of shape {tuple(a.shape)} and {tuple(b.shape)}: two vocabularies cannot agree")
    off = (a.double() - b.to(a.device).double()).abs()
    return float((off[:, -1] if last else off[mask.to(a.device).bool()]).max().item())
