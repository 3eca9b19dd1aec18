# SPDX-License-Identifier: MIT
"""The distance of a changed model from the one before, on held-out rows of any data set: divergence and perplexity.

Both need no right answers, and see a change long before an answer flips.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.models.course_data import pad_right

__all__ = [
    "LOGITS_AT_ONCE",
    "completion_loss",
    "divergence",
    "drift",
    "expectations",
    "held_out_rows",
    "perplexity",
]

#: Probabilities that are computed at once, tokens times vocabulary: 256 MB in float64.
_AT_ONCE = 1 << 25
#: Numbers of the logits that a loss is computed of at once: 256 MiB in float32.
LOGITS_AT_ONCE = 1 << 26
#: Probabilities of a reference that are kept: 2 GB in float32.
_KEPT = 1 << 29
#: Tokens of a row that are judged; of a longer one its end.
_LONGEST = 1024


def held_out_rows(rows: Any, tokenizer: Any, most: int = 64) -> list[dict[str, str]]:
    """Return up to ``most`` held-out rows of any known layout, spread evenly, with ``prompt`` and ``completion``.

    Raises:
        GuideError: other columns, or no rows.
    """
    from rocm_guide.models.columns import held_out_pair, training_rows

    rows = training_rows(rows, tokenizer)
    if not len(rows):
        raise GuideError("the held-out part of the data set has 0 rows; give a data set with a split 'test'")
    chosen = range(0, len(rows), max(1, -(-len(rows) // most)))
    pairs = (held_out_pair(rows[i], tokenizer) for i in chosen)
    return [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]


def _encoded(sample: Mapping[str, Any], tokenizer: Any, longest: int) -> tuple[list[int], int]:
    """Return the token ids of a sample, and where its completion begins. Of a long one the end is judged."""
    # Encoded together, as TRL does; the completion begins where that departs from the prompt alone.
    prompt, ids = tokenizer(sample["prompt"]).input_ids, tokenizer(sample["prompt"] + sample["completion"]).input_ids
    start = next((i for i, (a, b) in enumerate(zip(prompt, ids, strict=False)) if a != b), min(len(prompt), len(ids)))
    cut = max(0, len(ids) - longest)
    return ids[cut:], max(1, start - cut)


def _batches(
    model: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]], what: str
) -> Iterator[tuple[Any, Any, list[int]]]:
    """Yield samples of similar length together: (rows, length) ids padded on the right, mask, lengths of prompts.

    A batch is as large as its logits allow: with a vocabulary of 262,144 and 512 tokens a row it is one row.
    """
    if not len(samples) or not {"prompt", "completion"} <= set(samples[0]):
        raise GuideError(f"{what} needs rows with 'prompt' and 'completion'; held_out_rows makes them of any data set")
    config = model.config.get_text_config()  # of a model that takes images too, the part that writes
    longest = min(_LONGEST, getattr(config, "max_position_embeddings", None) or _LONGEST)
    rows = [(ids, start) for ids, start in (_encoded(s, tokenizer, longest) for s in samples) if len(ids) > 1]
    rows.sort(key=lambda row: len(row[0]))
    while rows:
        size = 1
        while size < min(36, len(rows)) and (size + 1) * len(rows[size][0]) * config.vocab_size <= _AT_ONCE:
            size += 1
        part, rows = rows[:size], rows[size:]
        ids, mask = pad_right([ids for ids, _ in part]), pad_right([[1] * len(ids) for ids, _ in part])
        yield ids, mask, [start for _, start in part]


def _token_losses(model: Any, ids: Any, mask: Any) -> Any:
    """Return the loss of each token but the first, given those before it: (rows, tokens) to (rows, tokens - 1)."""

    def losses(logits: Any, begin: int) -> Any:
        wanted = ids[:, begin + 1 : begin + 1 + logits.shape[1]]
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2).float(), wanted, reduction="none")

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    last = ids.shape[1] - 1
    most = max(1, LOGITS_AT_ONCE // (len(ids) * base.config.get_text_config().vocab_size))
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    with torch.inference_mode():
        if most >= last or "logits_to_keep" not in inspect.signature(base.forward).parameters:
            return losses(model(**inputs).logits[:, :last], 0)
        # The layers run once. Then the model is asked for some positions at a time, and finds their result at hand; so
        # whatever a family does to its logits (scaling, capping) is done.
        layers = base.get_decoder()
        own, found = vars(layers).get("forward"), layers(**inputs)
        object.__setattr__(layers, "forward", lambda *_, **__: found)
        try:
            places = torch.arange(last, device=ids.device).split(most)
            pieces = [losses(base(**inputs, logits_to_keep=place).logits, int(place[0])) for place in places]
            return torch.cat(pieces, 1)
        finally:
            object.__delattr__(layers, "forward")
            if own is not None:
                object.__setattr__(layers, "forward", own)


def completion_loss(model: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean loss, in nats per token, of the completions of ``samples``; prompts are given, not judged.

    The layers see whole rows; the output layer takes some positions at a time, since the logits of 4,096 tokens over
    a vocabulary of 262,144 would be 4.3 GB in float32, and as much again in the loss.

    Raises:
        GuideError: no samples, rows without ``prompt`` and ``completion``, or none with a completion.
    """
    loss, count = 0.0, 0
    for ids, mask, starts in _batches(model, tokenizer, samples, "perplexity"):
        ids, mask = ids.to(model.device), mask.to(model.device)
        each = _token_losses(model, ids, mask)
        place = torch.arange(1, ids.shape[1], device=ids.device)
        judged = (place >= torch.tensor(starts, device=ids.device)[:, None]) & (mask[:, 1:] == 1)
        loss += each[judged].double().sum().item()
        count += int(judged.sum())
    if not count:
        raise GuideError("no held-out row has a completion of a token or more; check the columns of the data set")
    return loss / count


def perplexity(model: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """Return exp of :func:`completion_loss`.

    Raises:
        GuideError: see there.
    """
    return math.exp(min(completion_loss(model, tokenizer, samples), 80.0))


def _log_probabilities(model: Any, ids: Any, mask: Any) -> Any:
    """Return (tokens, vocabulary) float32 on the CPU: what ``model`` expects after each token that is not padding."""
    logits = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False).logits
    kept = logits[mask.to(logits.device) == 1].float()
    return kept.log_softmax(-1).cpu()


def expectations(model: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what ``model`` expects after every token of ``samples``, for :func:`drift` when the model itself has gone.

    A model in 16 bits and its copy in 8 need not be in memory together. At most 2 GB are kept: with a large vocabulary
    the longest samples may be left out, and :func:`drift` then leaves them out too.

    Returns:
        For each batch (tokens, vocabulary) log probabilities, float32 on the CPU.
    """
    kept: list[Any] = []
    with torch.inference_mode():
        for ids, mask, _ in _batches(model, tokenizer, samples, "divergence"):
            if kept and (sum(map(len, kept)) + int(mask.sum())) * kept[0].shape[1] > _KEPT:
                break
            kept.append(_log_probabilities(model, ids, mask))
    return kept


def drift(model: Any, reference: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return how far what ``model`` expects next has moved from what ``reference`` expects: (divergence, changed).

    Args:
        reference: the model before the change, or its :func:`expectations` on the same samples.

    Returns:
        The mean Kullback-Leibler divergence in nats per token, and the share of the tokens whose most likely successor
        is another. Both see a change long before an answer flips: every token of ``samples`` counts, prompts included,
        and the first is 0 only if both models give every next token the same probability.

    Raises:
        GuideError: no samples, or rows without ``prompt`` and ``completion``.
    """
    total, other, count = 0.0, 0, 0
    with torch.inference_mode():
        for number, (ids, mask, _) in enumerate(_batches(model, tokenizer, samples, "divergence")):
            if isinstance(reference, list) and number == len(reference):
                break
            known = isinstance(reference, list)
            before = reference[number] if known else _log_probabilities(reference, ids, mask)
            after = _log_probabilities(model, ids, mask)
            for p, q in zip(before.split(1024), after.split(1024), strict=True):
                p, q = p.double().log_softmax(-1), q.double().log_softmax(-1)  # float32 sums are 1 up to 1e-7 only
                total += (p.exp() * (p - q)).sum().item()
            other += int((before.argmax(-1) != after.argmax(-1)).sum())
            count += len(before)
    return total / count, other / count


def divergence(model: Any, reference: Any, tokenizer: Any, samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the first figure of :func:`drift`: nats per token between what ``model`` and ``reference`` expect next.

    Raises:
        GuideError: no samples, or rows without ``prompt`` and ``completion``.
    """
    return drift(model, reference, tokenizer, samples)[0]
