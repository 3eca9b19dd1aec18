# SPDX-License-Identifier: MIT
"""What a quantised model costs and what it still knows: the comparison at the end of notebooks 06, 07 and 08."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.device import Timing, clock
from rocm_guide.training.evaluation import answer
from rocm_guide.zoo.data import pad_right

#: Tokens of an answer that are timed: enough for a rate, and a model that unpacks its weights each time stays bearable.
_TIMED = 8

__all__ = ["case_table", "divergence", "drift", "measure", "model_bytes", "table"]


@dataclass(frozen=True)
class Measured:
    """One row of the comparison.

    Attributes:
        bits: stored bits for each weight of the decoder's linear layers, scales and zeros included.
        disk_bytes: all weight files of the saved model.
        memory_bytes: all parameters and buffers of the loaded model, embeddings and head included.
        exact: share of held-out questions answered word for word.
        perplexity: on the held-out answers; 1 would be certainty.
        seconds: to quantise, 0 where nothing is done.
        tokens_per_second: the first eight tokens of the answers to a third of the questions, in one batch; the median
            of three runs.
        spread: of these runs, half the distance between the quartiles.
        divergence: from the reference, in nats per token (:func:`drift`); None without a reference.
        changed: share of the next tokens whose first choice is another than the reference's; None without a reference.
    """

    bits: float
    disk_bytes: int
    memory_bytes: int
    exact: float
    perplexity: float
    seconds: float
    tokens_per_second: float
    spread: float = 0.0
    divergence: float | None = None
    changed: float | None = None


def _stored(module: Any) -> list[Any]:
    """Every tensor that a module keeps: parameters, buffers, and plain attributes (some kernels repack into those)."""
    import torch

    seen: dict[int, Any] = {}
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        own += [v for v in vars(part).values() if isinstance(v, torch.Tensor)]
        for tensor in list(own):
            state = getattr(tensor, "quant_state", None)  # bitsandbytes keeps the scales on the parameter
            own += [v for v in _state_tensors(state) if v is not None]
            own += [v for v in (getattr(tensor, "SCB", None),) if isinstance(v, torch.Tensor)]
        seen |= {t.untyped_storage().data_ptr(): t for t in own if t.numel()}
    return list(seen.values())


def _state_tensors(state: Any) -> list[Any]:
    if state is None:
        return []
    inner = getattr(state, "state2", None)
    return [state.absmax, getattr(state, "offset", None), *([inner.absmax] if inner is not None else [])]


def model_bytes(model: Any) -> int:
    """Bytes of everything that a model stores, tensors shared by several places counted once.

    >>> import torch
    >>> model_bytes(torch.nn.Linear(10, 10, bias=False).half())
    200
    """
    return sum(t.numel() * t.element_size() for t in _stored(model))


def decoder_bits(model: Any, weights: int) -> float:
    """Stored bits for each of the ``weights`` weights of a Llama's decoder, norms included (they are a few)."""
    return 8 * model_bytes(model.model.layers) / weights


def _batches(tokenizer: Any, samples: Sequence[dict[str, str]], what: str) -> Iterator[tuple[Any, Any, list[int]]]:
    """Samples of similar length together: (rows, length) ids padded on the right, their mask, each prompt's length."""
    if not len(samples) or not {"prompt", "completion"} <= set(samples[0]):
        raise GuideError(f"{what} needs rows with 'prompt' and 'completion'; the tiny data set has them")
    rows = [
        (tokenizer(s["prompt"] + s["completion"]).input_ids, len(tokenizer(s["prompt"]).input_ids)) for s in samples
    ]
    rows.sort(key=lambda row: len(row[0]))
    for i in range(0, len(rows), 36):
        part = rows[i : i + 36]
        ids, mask = pad_right([ids for ids, _ in part]), pad_right([[1] * len(ids) for ids, _ in part])
        yield ids, mask, [start for _, start in part]


def perplexity(model: Any, tokenizer: Any, samples: Sequence[dict[str, str]]) -> float:
    """exp of the mean loss per token of the completions of ``samples``; prompts are given, not judged.

    Raises:
        GuideError: no samples, or rows without ``prompt`` and ``completion``.
    """
    import torch

    loss, count = 0.0, 0
    with torch.inference_mode():
        for ids, mask, starts in _batches(tokenizer, samples, "perplexity"):
            ids, mask = ids.to(model.device), mask.to(model.device)
            logits = model(ids, attention_mask=mask, use_cache=False).logits[:, :-1].float()
            each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            place = torch.arange(1, ids.shape[1], device=ids.device)
            judged = (place >= torch.tensor(starts, device=ids.device)[:, None]) & (mask[:, 1:] == 1)
            loss += each[judged].sum().item()
            count += int(judged.sum())
    return math.exp(loss / count)


def drift(model: Any, reference: Any, tokenizer: Any, samples: Sequence[dict[str, str]]) -> tuple[float, float]:
    """How far what ``model`` expects next has moved from what ``reference`` expects: (divergence, changed).

    Returns:
        The mean Kullback-Leibler divergence in nats per token, and the share of the tokens whose most likely successor
        is another. Both see a change long before an answer flips: every token of ``samples`` counts, prompts included,
        and the first is 0 only if both models give every next token the same probability.

    Raises:
        GuideError: no samples, or rows without ``prompt`` and ``completion``.
    """
    import torch

    total, other, count = 0.0, 0, 0
    with torch.inference_mode():
        for ids, mask, _ in _batches(tokenizer, samples, "divergence"):
            logs = []
            for m in (reference, model):
                given = {"input_ids": ids.to(m.device), "attention_mask": mask.to(m.device)}
                logs.append(m(**given, use_cache=False).logits.double().log_softmax(-1).cpu())
            total += (logs[0].exp() * (logs[0] - logs[1])).sum(-1)[mask == 1].sum().item()
            other += int((logs[0].argmax(-1) != logs[1].argmax(-1))[mask == 1].sum())
            count += int(mask.sum())
    return total / count, other / count


def divergence(model: Any, reference: Any, tokenizer: Any, samples: Sequence[dict[str, str]]) -> float:
    """The first figure of :func:`drift`: nats per token between what ``model`` and ``reference`` expect next.

    Raises:
        GuideError: no samples, or rows without ``prompt`` and ``completion``.
    """
    return drift(model, reference, tokenizer, samples)[0]


def measure(
    model: Any,
    tokenizer: Any,
    samples: Sequence[dict[str, str]],
    folder: str | Path,
    *,
    seconds: float,
    weights: int,
    reference: Any = None,
) -> Measured:
    """Fill in one row of the comparison.

    Args:
        model: what answers.
        samples: held-out rows with prompt, completion, answer.
        folder: where the model was saved.
        seconds: what quantising took.
        weights: number of weights of the decoder's linear layers, as if unquantised.
        reference: the model before quantising, from which the drift is measured.

    Raises:
        GuideError: as :func:`perplexity`.
    """
    samples = list(samples)
    moved, changed = (None, None) if reference is None else drift(model, reference, tokenizer, samples)
    surprise = perplexity(model, tokenizer, samples)
    prompts = [s["prompt"] for s in samples]
    texts = answer(model, tokenizer, prompts, batch=len(samples))  # judged below; for the clock it is the warm-up
    rates = []
    for _ in range(3):
        began = clock(model.device.type)
        again = answer(model, tokenizer, prompts[::3], new_tokens=_TIMED, batch=len(samples))
        spent = clock(model.device.type) - began
        # One more for the token that ends an answer, if it came so early.
        counts = (len(tokenizer(text, add_special_tokens=False).input_ids) + 1 for text in again)
        rates.append(sum(min(n, _TIMED) for n in counts) / spent)
    speed = Timing.of(rates)
    disk = sum(p.stat().st_size for p in Path(folder).iterdir() if p.suffix in (".safetensors", ".bin"))
    return Measured(
        decoder_bits(model, weights),
        disk,
        model_bytes(model),
        sum(t == s["answer"] for t, s in zip(texts, samples, strict=True)) / len(samples),
        surprise,
        seconds,
        speed.median,
        speed.spread,
        moved,
        changed,
    )


def table(rows: dict[str, Measured]) -> str:
    """The comparison as text, one line for each model; sizes in MB, the divergence in 1/1000 nat per token.

    >>> nearest = Measured(4.66, 2_290_000, 2_280_000, 0.944, 1.1025, 0.1, 151.0, 37.0, 0.0043, 0.031)
    >>> before = Measured(32.0, 6_450_000, 6_440_000, 0.944, 1.0989, 0.0, 877.0, 280.0)
    >>> print(table({"none": before, "nearest": nearest}))
                              bits disk MB loaded  diverges changed  exact perplexity quantise     tokens/s
    none                     32.00    6.45   6.44         -       -  94.4%     1.0989    0.0 s    877 ± 280
    nearest                   4.66    2.29   2.28      4.30    3.1%  94.4%     1.1025    0.1 s    151 ±  37
    """
    head = f"{'':24s} {'bits':>5s} {'disk MB':>7s} {'loaded':>6s} {'diverges':>9s} {'changed':>7s}"
    lines = [head + f" {'exact':>6s} {'perplexity':>10s} {'quantise':>8s} {'tokens/s':>12s}"]
    for label, m in rows.items():
        sizes = f"{m.bits:5.2f} {m.disk_bytes / 1e6:7.2f} {m.memory_bytes / 1e6:6.2f}"
        moved = "-" if m.divergence is None else f"{1000 * m.divergence:.2f}"
        moved = f"{moved:>9s} {'-' if m.changed is None else f'{m.changed:.1%}':>7s}"
        speed = f"{m.seconds:6.1f} s {m.tokens_per_second:6,.0f} ± {m.spread:3,.0f}"
        lines.append(f"{label:24s} {sizes} {moved} {m.exact:6.1%} {m.perplexity:10.4f} {speed}")
    return "\n".join(lines)


def case_table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """Results of ``benchmarks/models/quantization_7b.py`` as text: memory and speed of each path, or why it has none.

    >>> print(case_table({"plain": {"model bytes": 2e9, "tokens/s, 1 row": 50.0, "tokens/s, 16 rows": 800.0,
    ...     "prompt of 2048 tokens, s": 0.07}, "other": {"reason": "no kernel"}}))
                                            in memory     1 row   16 rows  prompt of 2,048
    plain                                      2.0 GB      50/s     800/s            70 ms
    other                                  no kernel
    """
    lines = [f"{'':38s} {'in memory':>10s} {'1 row':>9s} {'16 rows':>9s} {'prompt of 2,048':>16s}"]
    for label, case in cases.items():
        if "reason" in case:
            lines.append(f"{label:38s} {case['reason']}")
            continue
        rates = f"{case['tokens/s, 1 row']:7,.0f}/s {case['tokens/s, 16 rows']:7,.0f}/s"
        prompt = f"{1000 * case['prompt of 2048 tokens, s']:13,.0f} ms"
        lines.append(f"{label:38s} {case['model bytes'] / 1e9:7.1f} GB {rates} {prompt}")
    return "\n".join(lines)
